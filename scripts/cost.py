"""The cost of a campaign: time a few iterations of every cell and estimate how long all of it would take on one core.

Example: python scripts/cost.py --preset paper --seeds 10

It measures processor time, not wall-clock time, so that other work on the machine matters little. Runs that occur in
two experiments are counted once, because `nsm reproduce` trains them once.
"""

from __future__ import annotations

import argparse
import time

from nsm.experiments.paper import EXPERIMENTS, cells
from nsm.names import PRESETS
from nsm.tasks import Task
from nsm.training.experiment import Experiment
from nsm.training.loop import TRAIN, build

SYNTHETIC = ["single", "ablation", "sequencing", "continual", "factorial"]
SECONDS = 3.0
"""How long each cell is timed."""


def seconds_per_iteration(experiment: Experiment) -> float:
    """Of the processor, on one thread, after everything is compiled."""
    schedule = experiment.schedule
    learner = build(experiment, "fused", threads=1)
    learner.prepare(experiment.task)
    begun, steps = time.process_time(), 0
    # From several places of the run: the phases of continual learning differ.
    starts = [schedule.iterations * part // 4 for part in range(4)]
    for part, start in enumerate(starts, start=1):
        task = drawn_at(experiment, start)
        batches = task.batches(experiment.seed, TRAIN, start, schedule.iterations, schedule.batch_size)
        for step, batch in enumerate(batches, start=start):
            learner.step(task, batch, step)
            steps += 1
            if time.process_time() - begun > SECONDS * part / len(starts):
                break
    return (time.process_time() - begun) / steps


def drawn_at(experiment: Experiment, step: int) -> Task:
    """The task at a step, under a curriculum that depends on the step alone."""
    task, curriculum = experiment.task, experiment.schedule.curriculum
    if curriculum is None:
        return task
    return task.weighted(curriculum.at(curriculum.start(task), step, experiment.schedule.iterations))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="paper", choices=PRESETS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("experiments", nargs="*", default=SYNTHETIC)
    options = parser.parse_args()
    counted: dict[Experiment, str] = {}
    total = 0.0
    print(f"| experiment | cell | iterations | ms per iteration | minutes per run | hours for {options.seeds} seeds |")
    print("|---|---|---|---|---|---|")
    for name in options.experiments:
        if name not in EXPERIMENTS:
            parser.error(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
        for cell in cells(name, options.preset):
            experiment, iterations = cell.experiment, cell.experiment.schedule.iterations
            if experiment in counted:
                print(f"| {name} | {cell.name} | that of {counted[experiment]} | | | |")
                continue
            counted[experiment] = f"{name}, {cell.name}"
            each = seconds_per_iteration(experiment)
            run = each * iterations
            total += run * options.seeds
            print(
                f"| {name} | {cell.name} | {iterations:,} | {1000 * each:.2f} | {run / 60:.1f} | "
                f"{run * options.seeds / 3600:.2f} |",
                flush=True,
            )
    print(f"\nTotal: {total / 3600:.1f} hours on one core.")


if __name__ == "__main__":
    main()
