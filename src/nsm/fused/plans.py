"""The chunks of a batch: which steps of which sequences go together, and what decides how much room they take."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nsm.fused.chunks import Plan
from nsm.fused.layout import Array
from nsm.fused.tape import SOME
from nsm.fused.workspace import Form


class Planned(NamedTuple):
    """A plan, and the address of its record."""

    plan: Plan
    address: int
    form: Form

    @property
    def rows(self) -> tuple[Array, Array, Array]:
        """Per row the step of the batch, the sample of the batch, and that of the chunk."""
        plan = self.plan
        steps = np.repeat(np.arange(len(plan.counts)), plan.counts)
        samples = np.arange(plan.rows) - plan.first[steps]
        return steps + plan.start, plan.samples[samples], samples


@lru_cache(maxsize=128)
def plans(lengths: tuple[int, ...], size: int, start: int = 0, stop: int = 1 << 62) -> tuple[Planned, ...]:
    """The chunks of a batch of sequences of these lengths, `size` each, of sequences about as long as each other; of
    those that reach it, the steps from `start` on. Which samples go together does not depend on the stretch, so that
    each finds the state which its own lane left."""
    found = []
    whole = np.array(lengths, np.int64)
    ends = np.minimum(whole, stop) - start
    order = np.argsort(-whole, kind="stable")
    for place in range(0, np.count_nonzero(ends > 0), size):
        samples = order[place : place + size]
        samples = samples[ends[samples] > 0]
        steps = int(ends[samples[0]])
        counts = (ends[samples][None, :] > np.arange(steps)[:, None]).sum(1)
        first = np.concatenate([[0], np.cumsum(counts)])
        plan = Plan(samples, ends[samples], first, counts, start, int(first[-1]))
        form = Form(plan)
        found.append(Planned(plan, form.words.ctypes.data, form))
    return tuple(found)


class Extent(NamedTuple):
    """What decides how much room a chunk takes."""

    rows: int
    batch: int
    steps: int
    slots: int
    noisy: tuple[bool, bool] = (True, True)
    """whether there is noise on cells, and for programs"""
    keeps: int = SOME
    """how many tapes are kept"""
    input_gradient: bool = True
