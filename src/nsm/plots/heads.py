"""What each head of a memory did with one sequence: where it was at every step, and the programs that steered it.

Does not import matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
USED = 0.1
"""A slot counts as used if a head was ever on it to this degree."""
MARGIN = 2
"""Slots shown on either side of those in use."""


@dataclass(frozen=True)
class HeadTrace:
    """Where one head was at every step, and the programs that steered it."""

    name: str
    """read 1, write 1, …"""
    kind: str
    """read or write"""
    address: Array
    """(T, N)"""
    programs: Array | None
    """(T, P), None in a MANN"""


def head_traces(read: Array, write: Array, programs: Array | None, control: Sequence[str]) -> tuple[HeadTrace, ...]:
    """Heads by kind, numbered from 1; those that share a control head, as a DNC's read heads do, share its programs.

    read (T, R, N), write (T, W, N), programs (T, heads, P); `control` has the kinds of the control heads, in order.
    """
    mixes = None if programs is None else [programs[:, n] for n in range(len(control))]
    heads = []
    for kind, addresses in (("read", read), ("write", write)):
        places = [n for n, other in enumerate(control) if other == kind]
        for k in range(addresses.shape[1]):
            mix = mixes[places[min(k, len(places) - 1)]] if mixes and places else None
            heads.append(HeadTrace(f"{kind} {k + 1}", kind, addresses[:, k], mix))
    return tuple(heads)


def by_programs(heads: Sequence[HeadTrace]) -> list[tuple[str, Array]]:
    """The programs (T, P) that steered heads of one kind, with their names: "read 1", or "read 1–4" if shared."""
    groups = groupby((head for head in heads if head.programs is not None), key=lambda head: id(head.programs))
    found = []
    for group in (list(sharing) for _, sharing in groups):
        name = group[0].name if len(group) == 1 else f"{group[0].name}–{group[-1].name.split()[-1]}"
        found.append((name, cast(Array, group[0].programs)))
    return found


def used_slots(heads: Sequence[HeadTrace]) -> tuple[int, int]:
    """The stretch of the tape to show, a little more than the heads used: its first slot, and the number of slots.

    The tape of an NTM is a ring: a stretch may wrap around its end, and then its first slot is negative.
    """
    slots = int(heads[0].address.shape[1])
    used = np.flatnonzero(np.max([head.address.max(axis=0) for head in heads], axis=0) > USED)
    if used.size == 0:
        return 0, slots
    gaps = np.diff(np.append(used, used[0] + slots))  # from each used slot to the next, once around
    widest = int(gaps.argmax())
    first, count = int(used[(widest + 1) % used.size]), slots - int(gaps[widest]) + 1
    return (first - MARGIN, count + 2 * MARGIN) if count + 2 * MARGIN < slots else (0, slots)
