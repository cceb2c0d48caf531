"""Equality, which comes before any time: what a system answers, and how far that is from what it should be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from nsm.bench.work import Work
from nsm.fused.layout import Array
from nsm.machine import Machine
from nsm.training.losses import counted

TOLERANCE = 1e-3
"""How far a number may be from what it should be, as a share of the largest entry of its tensor: what is wrong is off
by more, and what float32 rounds, over steps that each build on the one before, by less."""
SAMPLES = 8
"""Sequences that the exact reference runs at a time: it keeps every step of them, in float64."""


class Answer(NamedTuple):
    """What a system makes of a batch before it has learned anything."""

    outputs: Array | None
    """(T, B, O), None if it does not hand them out"""
    gradients: dict[str, Array]
    """of the mean loss, by the parameter's name in the machine; nothing where none are computed"""


class Unequal(Exception):
    """A system computes something else: what it takes for that is of no interest."""


def gradients(machine: Machine) -> dict[str, Array]:
    """Those that lie in a machine, copied."""
    return {name: weight.grad.numpy().copy() for name, weight in machine.named_parameters() if weight.grad is not None}


def exact(work: Work, learning: bool = True) -> Answer:
    """The reference in float64, some sequences of about the same length after others; gradients if it is learning."""
    machine, batch = work.machine("reference").double(), work.batch
    order = np.argsort(-batch.lengths, kind="stable")
    outputs = np.zeros(batch.targets.shape)
    whole = counted(work.task, batch)
    for chosen in np.split(order, range(SAMPLES, len(order), SAMPLES)):
        part = batch.part(chosen)
        part = part._replace(targets=part.targets.astype(np.float64))
        with torch.set_grad_enabled(learning):
            logits, _ = machine(torch.from_numpy(part.inputs).double(), lengths=part.lengths)
        if learning:
            (work.task.loss(logits, part) * (counted(work.task, part) / whole)).backward()
        outputs[: len(logits), chosen] = logits.detach().numpy()
    return Answer(outputs, gradients(machine))


def check(found: Answer, expected: Answer) -> float:
    """The worst error, as a share of the largest entry of its tensor.

    Raises:
        Unequal: it is above the tolerance, or something is missing.
    """
    errors = {}
    if found.outputs is not None and expected.outputs is not None:
        errors["outputs"] = _relative(found.outputs, expected.outputs).max()
    if found.gradients:
        missing = expected.gradients.keys() ^ found.gradients.keys()
        if missing:
            raise Unequal(f"the gradient of {min(missing)} is missing, or is one too many")
        for name, gradient in expected.gradients.items():
            errors[f"the gradient of {name}"] = _relative(found.gradients[name], gradient).max()
    worst = max(errors, key=errors.__getitem__)
    return _within(worst, float(errors[worst]))


def check_most(found: Array | None, expected: Array | None) -> float:
    """The error of the typical sequence's outputs, the median of all: where rounding decides, it decides about few.

    Raises:
        Unequal: it is above the tolerance.
    """
    assert found is not None
    assert expected is not None
    error = _relative(found, expected)
    return _within("the typical sequence", float(np.median(error.max((0, 2))) if error.ndim else error))


def _within(what: str, error: float) -> float:
    if error > TOLERANCE:
        raise Unequal(f"{what} is off by {error:.1e} of the largest entry, more than {TOLERANCE:.0e}")
    return error


def _relative(found: Array, expected: Array) -> Array:
    """Entry by entry; endless where there is no number, or no such entry."""
    if found.shape != expected.shape:
        return np.array(np.inf)
    error = np.abs(found - expected) / max(np.abs(expected).max(), 1e-30)
    return np.where(np.isfinite(error), error, np.inf)
