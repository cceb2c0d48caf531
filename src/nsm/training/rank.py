"""The rank of this process, from the environment; imports nothing slow."""

from __future__ import annotations

import os


def rank_and_size() -> tuple[int, int]:
    """The rank of this process and the number of ranks, as torchrun sets them."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (rank, size) if size > 1 else (0, 1)
