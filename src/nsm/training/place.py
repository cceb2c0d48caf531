"""Where this process stands among those of its run: read off the environment, before anything is imported."""

from __future__ import annotations

import os


def place() -> tuple[int, int]:
    """The rank of this process and the number of ranks, as torchrun tells them in the environment."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (rank, size) if size > 1 else (0, 1)
