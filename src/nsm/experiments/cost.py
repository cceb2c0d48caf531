"""How long a run will take, estimated before it begins from what its machine has to compute."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from nsm.sizes import least_memory
from nsm.training.experiment import Experiment

SECONDS = 3e-10
"""Per number that a step of a sequence reads, on one core."""
SLOT, STEP = 10, 10_000
"""How often a step reads each number of the state, and what it costs besides, in numbers.

Fitted to the times of all published runs: half of them took 0.7 to 1.6 times the estimate, nearly all 0.4 to 2.5 times.
"""
BATCHES = 8
"""Batches whose lengths are looked at."""


def seconds(experiment: Experiment) -> float:
    """What the iterations of a run take on one core of about 2020, within a factor of two or so."""
    return _seconds(replace(experiment, seed=0))


@cache
def _seconds(experiment: Experiment) -> float:
    # Of a repertoire one machine learns at a time.
    schedule, size = experiment.schedule, least_memory(replace(experiment.machine, repertoire=None), 1)
    batches = [experiment.task.batch(0, 0, step, schedule.batch_size) for step in range(BATCHES)]
    steps = sum(int(batch.lengths.sum()) for batch in batches) / BATCHES
    return schedule.iterations * steps * (size.weights / 4 + SLOT * size.state / 4 + STEP) * SECONDS
