"""How sure a difference between two models is, from a handful of seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DRAWS = 10_000


def difference(ours: Sequence[float], theirs: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """The percentile bootstrap interval of mean(ours) − mean(theirs); None where a side has fewer than two seeds.

    Both sides are drawn again with replacement, always from the same random numbers.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    random = np.random.default_rng(0)
    means = [
        np.asarray(side)[random.integers(0, len(side), (DRAWS, len(side)))].mean(axis=1) for side in (ours, theirs)
    ]
    low, high = np.quantile(means[0] - means[1], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
