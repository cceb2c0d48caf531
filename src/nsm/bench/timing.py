"""How time is taken: the fastest of many rounds, since on a noisy machine disturbances only ever add."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

ROUNDS = 3
"""At least so many, however long one takes."""


def fastest(action: Callable[[], Any], seconds: float) -> float:
    """The shortest of the times it takes, in seconds, over about `seconds`.

    Things are timed one after another, never by turns: in training no other pass comes between two steps, and takes
    the caches for itself.
    """
    best, spent, rounds = float("inf"), 0.0, 0
    while rounds < ROUNDS or spent < seconds:
        began = time.perf_counter()
        action()
        took = time.perf_counter() - began
        best, spent, rounds = min(best, took), spent + took, rounds + 1
    return best


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch's own threads, which the kernels take, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def gemm_gflops(seconds: float = 0.5) -> float:
    """What a large matrix product reaches with torch's current number of threads."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / fastest(lambda: a @ b, seconds) / 1e9
