"""Which of its run's processes this one is: read off the environment, before anything is imported."""

from __future__ import annotations

import os


def rank_and_size() -> tuple[int, int]:
    """The rank of this process and the number of ranks, as torchrun tells them in the environment."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (rank, size) if size > 1 else (0, 1)
