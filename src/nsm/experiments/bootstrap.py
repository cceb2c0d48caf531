"""How sure a difference between two models is, or a share of seeds, from a handful of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

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


def interval(successes: float, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share: sensible for few trials and for shares of 0 and 1."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = successes / trials, z * z / trials
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (share * (1 - share) / trials + weight / (4 * trials)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)
