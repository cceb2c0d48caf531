"""Equality, checked before any timing: the outputs and gradients of a system, and their errors."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch

from nsm.bench.work import Work
from nsm.fused.layout import Array
from nsm.machine import Machine
from nsm.training.losses import counted

TOLERANCE = 1e-3
"""The largest error allowed, as a share of the largest entry of its tensor: mistakes are larger, float32 rounding that
accumulates over the steps is smaller."""
SAMPLES = 8
"""Sequences per batch of the exact reference, which keeps every step in float64."""


class Answer(NamedTuple):
    """The outputs and gradients of a system on a batch, with the initial weights."""

    outputs: Array | None
    """(T, B, O), None if it does not return them"""
    gradients: dict[str, Array]
    """of the mean loss, by the parameter's name in the machine; empty if none are computed"""


class Peer(Protocol):
    """A system that trains on one batch repeatedly."""

    def answer(self) -> Answer:
        """Outputs and gradients with the current weights, without an update."""

    def iterate(self) -> None:
        """A whole training iteration: forward, loss, backward, update."""


class Absent(Exception):
    """Why a peer is not available here."""


class Unequal(Exception):
    """A system computes something else, so its time is meaningless."""


def gradients(machine: Machine) -> dict[str, Array]:
    """A copy of the gradients in a machine."""
    return {name: weight.grad.numpy().copy() for name, weight in machine.named_parameters() if weight.grad is not None}


def exact(work: Work, learning: bool = True) -> Answer:
    """The reference in float64, in batches of sequences of similar length; with gradients if it is learning."""
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
            raise Unequal(f"the gradient of {min(missing)} is missing or unexpected")
        for name, gradient in expected.gradients.items():
            errors[f"the gradient of {name}"] = _relative(found.gradients[name], gradient).max()
    worst = max(errors, key=errors.__getitem__)
    return _within(worst, float(errors[worst]))


def check_most(found: Array | None, expected: Array | None) -> float:
    """The median error over sequences: where rounding changes a decision, it does so in few of them.

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
    """The error of every entry; infinite for NaN or a wrong shape."""
    if found.shape != expected.shape:
        return np.array(np.inf)
    error = np.abs(found - expected) / max(np.abs(expected).max(), 1e-30)
    return np.where(np.isfinite(error), error, np.inf)
