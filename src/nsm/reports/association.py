"""What the programs of a machine have to do with what it is doing: mutual information, and what chance makes of it.

A phase is what is done at a step: listening or answering, and the subtask. Where a head takes another program in
another phase, one tells the other. Both last for many steps, so that a program which changes slowly, whatever is being
done, seems to tell something, too. Chance is therefore the same machine with the phases of every sequence shifted
around its end, by a number of steps drawn anew for each: both last as long as they did, but part company.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsm.plots.heads import by_programs
from nsm.reports.execution import Array, Execution

SHIFTS = 1_000
"""How often phases are shifted: p is at least one in this many."""


class Association(NamedTuple):
    """Of phases with the programs of a head, in bits."""

    head: str
    bits: float
    possible: float
    """What they could be at most: the entropy of the phases, or of as many programs."""
    chance: float
    """What the strongest head of the machine stays below in 95 of 100 shifts."""
    p: float
    """The share of shifts in which the strongest head has as much."""

    @property
    def found(self) -> bool:
        """Whether it is more than chance makes of it."""
        return self.p < 0.05 and self.bits > self.chance


def information(joint: Array) -> Array:
    """Mutual information, in bits, of joint distributions (…, phases, programs) that need not be normalised."""
    joint = joint / joint.sum(axis=(-2, -1), keepdims=True)
    apart = joint.sum(axis=-1, keepdims=True) * joint.sum(axis=-2, keepdims=True)
    ratio = np.divide(joint, apart, out=np.ones_like(joint), where=joint > 0)
    bits: Array = np.sum(joint * np.log2(ratio), axis=(-2, -1))
    return bits


def associations(phases: Sequence[Sequence[str]], heads: Mapping[str, Sequence[Array]]) -> list[Association]:
    """Of the phases (T,) of sequences with the programs (T, P) of every head in each, the strongest first.

    Every step counts alike, and at every step each program with its weight.
    """
    names = sorted({phase for sequence in phases for phase in sequence})
    marks = [np.array([[phase == name for name in names] for phase in sequence], float) for sequence in phases]
    counts = np.sum([mark.sum(axis=0) for mark in marks], axis=0)
    widest = max(mixes[0].shape[1] for mixes in heads.values())
    possible = min(float(information(np.diag(counts))), float(np.log2(widest)))
    random = np.random.default_rng(0)
    # Without a shift first. All heads have the same ones: the strongest by chance is found among as many.
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
    """Of what a machine does in some sequences with its programs; nothing for one that has none."""
    phases, heads = usage(runs, Execution.doing)
    return associations(phases, heads) if heads else []


def usage(
    runs: Sequence[Execution], doing: Callable[[Execution], list[str]]
) -> tuple[list[list[str]], dict[str, list[Array]]]:
    """The phases of sequences, and the programs (T, P) of every head in each; steps of no phase are left out."""
    phases: list[list[str]] = []
    heads: dict[str, list[Array]] = {}
    for run in runs:
        every = doing(run)
        told = np.array([bool(phase) for phase in every])
        phases.append([phase for phase in every if phase])
        for name, mix in by_programs(run.heads):
            heads.setdefault(name, []).append(mix[told].astype(float))
    return phases, heads
