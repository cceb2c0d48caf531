"""How the programs of a machine depend on the phase: mutual information, and its chance level.

The phase of a step is reading the input or answering, and the subtask. If a head uses different programs in different
phases, one carries information about the other. But both last for many steps, so a program that merely changes slowly
also seems informative. The chance level is therefore estimated from the same runs, with the phases of every sequence
shifted circularly by a random number of steps: durations are kept, the alignment is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsm.plots.heads import by_programs
from nsm.reports.execution import Array, Execution

SHIFTS = 1_000
"""Number of random shifts; the smallest possible p is one in this many."""


class Association(NamedTuple):
    """Mutual information between phases and the programs of a head, in bits."""

    head: str
    bits: float
    possible: float
    """The maximum: the entropy of the phases, or of as many programs."""
    chance: float
    """The 95th percentile over shifts, of the strongest head of the machine."""
    p: float
    """The share of shifts in which the strongest head reaches as much."""

    @property
    def found(self) -> bool:
        """Whether it is above chance level."""
        return self.p < 0.05 and self.bits > self.chance


def information(joint: Array) -> Array:
    """Mutual information, in bits, of joint distributions (…, phases, programs) that need not be normalised."""
    joint = joint / joint.sum(axis=(-2, -1), keepdims=True)
    apart = joint.sum(axis=-1, keepdims=True) * joint.sum(axis=-2, keepdims=True)
    ratio = np.divide(joint, apart, out=np.ones_like(joint), where=joint > 0)
    bits: Array = np.sum(joint * np.log2(ratio), axis=(-2, -1))
    return bits


def associations(phases: Sequence[Sequence[str]], heads: Mapping[str, Sequence[Array]]) -> list[Association]:
    """Between the phases (T,) of sequences and the programs (T, P) of every head, the strongest head first.

    Every step has the same weight, and at every step each program its own.
    """
    names = sorted({phase for sequence in phases for phase in sequence})
    marks = [np.array([[phase == name for name in names] for phase in sequence], float) for sequence in phases]
    counts = np.sum([mark.sum(axis=0) for mark in marks], axis=0)
    widest = max(mixes[0].shape[1] for mixes in heads.values())
    possible = min(float(information(np.diag(counts))), float(np.log2(widest)))
    random = np.random.default_rng(0)
    # The first is no shift. All heads share the shifts, so the chance level is that of the strongest of as many heads.
    shifts = [np.append(0, random.integers(len(mark), size=SHIFTS)) for mark in marks]
    bits = {
        name: information(
            sum(association_of(mark, mix)[by] for mark, mix, by in zip(marks, mixes, shifts, strict=True))
        )
        for name, mixes in heads.items()
    }
    strongest = np.max([found[1:] for found in bits.values()], axis=0)
    chance = float(np.quantile(strongest, 0.95))
    found = [
        Association(name, float(own[0]), possible, chance, (1 + int((strongest >= own[0]).sum())) / (1 + SHIFTS))
        for name, own in bits.items()
    ]
    return sorted(found, key=lambda association: -association.bits)


def association_of(mark: Array, weights: Array) -> Array:
    """(T, phases, programs): the joint weight of phases (T, phases) and programs (T, P) for every shift of the phases.

    Σ_t mark[t]·weights[t + s] around the end of the sequence, by FFT.
    """
    one, other = np.fft.rfft(mark, axis=0), np.fft.rfft(weights, axis=0)
    joint = np.fft.irfft(one.conj()[:, :, None] * other[:, None, :], n=len(mark), axis=0)
    return np.maximum(joint, 0)


def by_phase(runs: Sequence[Execution]) -> list[Association]:
    """Between phases and programs of a machine on some sequences; empty if it stores no programs."""
    phases, heads = usage(runs, Execution.doing)
    return associations(phases, heads) if heads else []


def usage(
    runs: Sequence[Execution], doing: Callable[[Execution], list[str]]
) -> tuple[list[list[str]], dict[str, list[Array]]]:
    """The phases of sequences and the programs (T, P) of every head, without the steps outside any phase."""
    phases: list[list[str]] = []
    heads: dict[str, list[Array]] = {}
    for run in runs:
        every = doing(run)
        told = np.array([bool(phase) for phase in every])
        phases.append([phase for phase in every if phase])
        for name, mix in by_programs(run.heads):
            heads.setdefault(name, []).append(mix[told].astype(float))
    return phases, heads
