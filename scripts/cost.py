"""What a campaign costs: time a few iterations of every cell and say how long all of it would take on one core.

Example: python scripts/cost.py --preset paper --seeds 10

Time is that of the processor, not of the clock, so that other work on the machine matters little. Runs that are equal
in two experiments are counted once, as `nsm reproduce` trains them once.
"""

from __future__ import annotations

import argparse
import time

from nsm.experiments.paper import EXPERIMENTS, cells
from nsm.names import PRESETS
from nsm.training.config import RunConfig
from nsm.training.loop import _batches, build, task_pair

SYNTHETIC = ["single", "ablation", "sequencing", "continual", "factorial"]
SECONDS = 3.0
"""How long each cell is timed."""


def seconds_per_iteration(config: RunConfig) -> float:
    """Of the processor, on one thread, after everything is compiled."""
    task = task_pair(config).train
    learner = build(config, "fused")
    learner.prepare(task)
    begun, steps = time.process_time(), 0
    # From several places of the run: the phases of continual learning differ.
    starts = [config.iterations * part // 4 for part in range(4)]
    for part, start in enumerate(starts, start=1):
        for step, batch in enumerate(_batches(task, config, start), start=start):
            learner.step(task, batch, step)
            steps += 1
            if time.process_time() - begun > SECONDS * part / len(starts):
                break
    return (time.process_time() - begun) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="paper", choices=PRESETS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("experiments", nargs="*", default=SYNTHETIC)
    options = parser.parse_args()
    counted: dict[RunConfig, str] = {}
    total = 0.0
    print(f"| experiment | cell | iterations | ms an iteration | minutes a run | hours for {options.seeds} seeds |")
    print("|---|---|---|---|---|---|")
    for experiment in options.experiments:
        if experiment not in EXPERIMENTS:
            parser.error(f"no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}")
        for cell in cells(experiment, options.preset):
            config = cell.config
            if config in counted:
                print(f"| {experiment} | {cell.name} | that of {counted[config]} | | | |")
                continue
            counted[config] = f"{experiment}, {cell.name}"
            each = seconds_per_iteration(config)
            run = each * config.iterations
            total += run * options.seeds
            print(
                f"| {experiment} | {cell.name} | {config.iterations:,} | {1000 * each:.2f} | {run / 60:.1f} | "
                f"{run * options.seeds / 3600:.2f} |",
                flush=True,
            )
    print(f"\nAll of it: {total / 3600:.1f} hours of one core.")


if __name__ == "__main__":
    main()
