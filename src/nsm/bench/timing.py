"""How time is measured: the fastest of many rounds, since disturbances on a noisy machine only add time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

ROUNDS = 3
"""The minimum number of rounds, however long one takes."""


def fastest(action: Callable[[], Any], seconds: float) -> float:
    """The shortest duration in seconds, measured for about `seconds`.

    Actions are timed one after another, never interleaved: in training, too, nothing else runs between two steps and
    evicts the caches.
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
    """The number of torch's threads, which the kernels use, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def gemm_gflops(seconds: float = 0.5) -> float:
    """The speed of a large matrix product with torch's current number of threads."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / fastest(lambda: a @ b, seconds) / 1e9
