"""Where a training step's time goes, place by place: NSM_PROFILE=1 python scripts/profile_kernels.py [shape]"""

from __future__ import annotations

import sys
import time

from nsm.bench import Work, loop, shapes
from nsm.fused import clock

ITERATIONS = 300


def main(wanted: str) -> None:
    if not clock.PROFILING:
        sys.exit("set NSM_PROFILE=1: the clock is compiled into the kernels")
    for shape in shapes():
        if wanted not in f"{shape.name} {shape.batch}":
            continue
        work = Work(shape)
        learner = loop(work, 1)
        for step in range(5):
            learner.step(work.task, work.batch, step)
        clock.cycles[:] = 0
        began = time.perf_counter()
        rounds = max(3, ITERATIONS // shape.batch)
        for step in range(rounds):
            learner.step(work.task, work.batch, step)
        took = time.perf_counter() - began
        _print(shape.name, shape.batch, clock.cycles.copy(), rounds * shape.words, took)


def _print(name: str, batch: int, spent, sample_steps: int, took: float) -> None:
    spent[0] = 0
    print(f"\n{name}, batch {batch}: {1e6 * took / sample_steps:.2f} µs a sample-step on one thread")
    print("| cycles a sample-step | share of those in the kernels | |\n|---|---|---|")
    for place, i in clock.PLACES.items():
        if spent[i]:
            print(f"| {spent[i] / sample_steps:,.0f} | {spent[i] / spent.sum():.1%} | {place} |")
    print(f"| {spent.sum() / sample_steps:,.0f} | | all kernels |")


main(" ".join(sys.argv[1:]))
