"""The memory kernels work in: one block of it for what a backward pass needs, one for what is forgotten.

Fresh memory costs a page fault per 4 KiB and is in no cache, so blocks are used again. Only as much is held as a
training iteration uses; large blocks go back to the system at once, where a fault is little beside what is done on a
page.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from nsm.fused.layout import Array, padded

LARGE = 64 << 20
"""Blocks of more bytes are not held for the next time."""
HELD = 256 << 20
"""How many bytes of blocks are held at most."""
LINE = 64
"""Bytes of a cache line. A vector that straddles two costs two loads, so every array begins a line."""


ABSOLUTE, KEPT, USED = range(3)


class Span(NamedTuple):
    """An array that is not there yet: where in which block it begins, and how many numbers it has."""

    block: int
    start: int
    size: int


class Room:
    """Counts what a chunk of a batch needs: arrays to `keep` for the way back, and arrays to `use`."""

    def __init__(self) -> None:
        self.kept = self.used = 0

    def keep(self, size: int) -> Span:
        """An array of `size` numbers, more if they fill no whole vector, whose content the backward pass finds."""
        start, self.kept = self.kept, self.kept + _room(size)
        return Span(KEPT, start, padded(size))

    def use(self, size: int) -> Span:
        """An array of `size` numbers, more if they fill no whole vector; whatever was left in it."""
        start, self.used = self.used, self.used + _room(size)
        return Span(USED, start, padded(size))


def _room(size: int) -> int:
    """With room for a whole vector after the last: some kernels read and write up to there."""
    return padded(size) + 16


class Form:
    """Named tuples of spans, arrays and numbers, to be laid over two blocks as records for kernels (`records.unfold`).

    To make arrays of all of them for every call would take longer than small kernels do.
    """

    def __init__(self, *records: Any) -> None:
        self.records = records
        """the tuples; arrays in them stay where they are"""
        self.starts: list[int] = []
        """where each record begins, in bytes"""
        words: list[tuple[int, int]] = []
        for field in (field for record in records for field in (None, *record)):
            if field is None:
                self.starts.append(8 * len(words))
            elif isinstance(field, Span):
                words += [(4 * field.start, field.block), (field.size, ABSOLUTE)]
            elif isinstance(field, np.ndarray):
                words += [(field.ctypes.data, ABSOLUTE), (field.size, ABSOLUTE)]
            else:
                number = np.float64(field).view(np.int64) if isinstance(field, float) else field
                words.append((int(number), ABSOLUTE))
        self.words, self.blocks = (np.array(column, np.int64) for column in zip(*words, strict=True))
        """the records, as long as blocks begin at 0, and which block each word counts from"""

    def lay(self, kept: int, used: int, out: Array) -> None:
        """The records over blocks at these addresses, to `out`."""
        np.add(self.words, np.array((0, kept, used))[self.blocks], out=out)


class Laid:
    """A named tuple of spans over two blocks, for Python: its fields as attributes."""

    def __init__(self, fields: Any, kept: Array, used: Array) -> None:
        self._fields, self._blocks = fields, (NOTHING, kept, used)

    def __getattr__(self, name: str) -> Any:
        field = getattr(self._fields, name)
        return self._blocks[field.block][field.start : field.start + field.size] if isinstance(field, Span) else field


NOTHING = np.zeros(0, np.float32)


class Block:
    """Some memory, and where it is: to ask NumPy takes a microsecond."""

    __slots__ = ("address", "array", "thread")

    def __init__(self, size: int, zero: bool = False) -> None:
        self.array = zeros(size) if zero else _aligned(size)
        self.address = int(self.array.ctypes.data)
        self.thread = 0
        """who had it last"""


class Pool:
    """Blocks that were used and will be used again, if possible by the same thread: they are in its core's cache."""

    fill_value: float | None = None
    """Set by tests to NaN: what is handed out is filled with it, so that a cell nobody wrote shows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Block] = []
        # Blocks come back when the last that held them is collected, in any thread and at any line, this file's too.
        self._returned: deque[Block] = deque()

    def borrow(self, size: int) -> Block:
        """At least `size` numbers, for who gives them back."""
        me = threading.get_ident()
        with self._lock:
            self._collect()
            best = None
            for block in self._free:
                room = block.array.size
                if size <= room <= 4 * size + (1 << 16) and (
                    best is None or (block.thread != me, room) < (best.thread != me, best.array.size)
                ):
                    best = block
            if best is not None:
                self._free.remove(best)
        if best is None:
            best = Block(size if 4 * size > LARGE else _rounded(size))
        best.thread = me
        if self.fill_value is not None:
            best.array.fill(self.fill_value)
        return best

    def give(self, block: Block) -> None:
        """Give a block back."""
        self._returned.append(block)

    def take(self, size: int) -> Array:
        """`size` numbers that nobody else has until the array is collected; views of it keep it alive only as their
        base, so hold on to the array itself."""
        block = self.borrow(size)
        handed: Array = block.array[:size]
        finalize(handed, self._returned.append, block).atexit = False
        return handed

    def take_tensor(self, size: int) -> Tensor:
        """The same as a tensor of bytes, which no gradient flows through."""
        return torch.from_numpy(self.take(size)).view(torch.uint8)

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            if block.array.nbytes <= LARGE:
                self._free.append(block)
        while self.bytes > HELD:
            self._free.pop(0)

    @property
    def bytes(self) -> int:
        """How many bytes are held for the next time."""
        return sum(block.array.nbytes for block in self._free)


def _aligned(size: int) -> Array:
    raw = np.empty(4 * size + LINE, np.uint8)
    offset = -raw.ctypes.data % LINE
    return raw[offset : offset + 4 * size].view(np.float32)


def _rounded(size: int) -> int:
    """Up to an eighth more, so that a block fits what is about as large, too."""
    step = max(16, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


pool = Pool()


def zeros(size: int) -> Array:
    """Numbers of one's own, all zero, in whole cache lines."""
    array = _aligned(padded(size))
    array.fill(0)
    return array


def floats(block: Tensor) -> Array:
    """A block of bytes as the numbers it holds."""
    array: Any = block.numpy().view(np.float32)
    return array


# --- tables -----------------------------------------------------------------------------------------------------------

Table = ctypes.Array[ctypes.c_int64]
"""Words that kernels read. NumPy takes four times as long to make a small array and to tell where it is."""


def words(values: Sequence[int]) -> Table:
    """Numbers for a kernel."""
    return _table(len(values))(*values)


@cache
def _table(size: int) -> type[Table]:
    return ctypes.c_int64 * size


def span_of(table: Table) -> tuple[int, int]:
    """Where it is, and how long."""
    return ctypes.addressof(table), len(table)


def address(array: Array) -> int:
    """Where an array is."""
    return int(array.ctypes.data)


def addresses(tensors: Iterable[Any]) -> Table:
    """Where tensors are."""
    return words([*map(Tensor.data_ptr, tensors)])
