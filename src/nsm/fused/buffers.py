"""Buffers that are used again: fresh memory costs a page fault per 4 KiB, more than the arithmetic done on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from nsm.fused.layout import Array, aligned, padded

T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """Something from a shelf, and the thread that has it."""

    thing: T
    thread: int


class Shelf(Generic[T]):
    """Things to be used again, if possible by the thread that had them last: they are in the cache of its core."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self.free: list[Held[T]] = []

    def take(self) -> Held[T]:
        me = threading.get_ident()
        with self._lock:
            for i in reversed(range(len(self.free))):
                if self.free[i].thread == me:
                    return self.free.pop(i)
            return Held(self.free.pop(0).thing if self.free else self._make(), me)

    def give(self, held: Held[T]) -> None:
        """Put something back."""
        self.free.append(held)


class Buffers:
    """Named float32 arrays that grow as needed and never shrink; their content is whatever was left in them."""

    fill_value: float | None = None
    """Set by tests to NaN: what is handed out is filled with it, so that a cell nobody wrote shows."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._masks: dict[tuple[int, int], Array] = {}
        self._made: dict[tuple[Any, ...], Any] = {}
        self._grown = 0

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` made of these buffers the last time it was asked for `key`, unless one has grown since."""
        if key not in self._made or self.fill_value is not None:
            grown = self._grown
            made = make()
            if self._grown != grown or len(self._made) > 512:
                self._made.clear()
            self._made[key] = made
        return self._made[key]

    def take(self, name: str, size: int) -> Array:
        """An array of at least `size` numbers, with room for a whole vector after the last."""
        array = self._arrays.get(name)
        if array is None or array.size < size + 16:
            array = self._arrays[name] = aligned(padded(size) * 5 // 4 + 16)
            self._grown += 1
        if self.fill_value is not None:
            array.fill(self.fill_value)
        return array

    def zeros(self, name: str, size: int) -> Array:
        """An array of at least `size` numbers that was all zeros when it was made, for padding that is only read."""
        array = self._arrays.get(name)
        if array is None or array.size < size + 16:
            array = self._arrays[name] = aligned(padded(size) + 16)
            self._grown += 1
        return array

    def mask(self, width: int, whole: int) -> Array:
        """1 for the first `width` of `whole` numbers, 0 for the others, which are padding."""
        if (width, whole) not in self._masks:
            self._masks[width, whole] = (np.arange(whole) < width).astype(np.float32)
        return self._masks[width, whole]

    @property
    def bytes(self) -> int:
        """What is held by now."""
        return sum(array.nbytes for array in self._arrays.values())


class Tally(Buffers):
    """Adds up what is asked for, and gives nothing."""

    asked = 0

    def take(self, name: str, size: int) -> Array:
        self.asked += 4 * size
        return np.zeros(0, np.float32)

    zeros = take
