"""Equality, which comes before any time: what a system answers, and how far that is from what it should be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from nsm.bench.work import Work
from nsm.fused.layout import Array
from nsm.machine import Machine
from nsm.training.losses import counted

TYPICAL = 1e-3
"""How far the outputs of the typical sequence may be off, the median of all, where single ones may be further: rounding
decides about those, but never about most of them."""
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


def exact(work: Work) -> Answer:
    """The reference in float64, some sequences of about the same length after others."""
    machine, batch = work.machine("reference").double(), work.batch
    order = np.argsort(-batch.lengths, kind="stable")
    outputs = np.zeros(batch.targets.shape)
    whole = counted(work.task, batch)
    for chosen in np.split(order, range(SAMPLES, len(order), SAMPLES)):
        part = batch.part(chosen)
        part = part._replace(targets=part.targets.astype(np.float64))
        logits, _ = machine(torch.from_numpy(part.inputs).double(), lengths=part.lengths)
        (work.task.loss(logits, part) * (counted(work.task, part) / whole)).backward()
        outputs[: len(logits), chosen] = logits.detach().numpy()
    return Answer(outputs, gradients(machine))


def check(found: Answer, expected: Answer, tolerance: float) -> float:
    """The worst error, as a share of the largest entry of its tensor.

    Raises:
        Unequal: it is above the tolerance, or that of the typical sequence is not small, or something is missing.
    """
    errors = {}
    if found.outputs is not None and expected.outputs is not None:
        errors["outputs"] = _relative(found.outputs, expected.outputs)
        typical = _typical(found.outputs, expected.outputs)
        if not typical <= TYPICAL:
            raise Unequal(f"the outputs of a typical sequence are off by {typical:.1e} of the largest one")
    if found.gradients:
        missing = expected.gradients.keys() ^ found.gradients.keys()
        if missing:
            raise Unequal(f"the gradient of {min(missing)} is missing, or is one too many")
        for name, gradient in expected.gradients.items():
            errors[f"gradient of {name}"] = _relative(found.gradients[name], gradient)
    worst = max(errors, key=errors.__getitem__)
    # Not `>`: what is not a number is not equal either.
    if not errors[worst] <= tolerance:
        raise Unequal(f"{worst} is off by {errors[worst]:.1e} of its largest entry, more than {tolerance:g}")
    return errors[worst]


def _relative(found: Array, expected: Array) -> float:
    if found.shape != expected.shape:
        return float("inf")
    error = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
    return error if np.isfinite(error) else float("inf")


def _typical(found: Array, expected: Array) -> float:
    """The median of the sequences' errors. (T, B, O)"""
    if found.shape != expected.shape:
        return float("inf")
    return float(np.median(np.abs(found - expected).max((0, 2))) / np.abs(expected).max())
