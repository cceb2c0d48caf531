"""The cost of routing without task labels in a repertoire: which program answers, and the accuracy with and without.

Example: python scripts/routing.py runs/continual/paper/continual-growing/ntm/seed-*

With a label, every task is answered by the program that is best at it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import torch

from nsm.repertoire import RepertoireMachine
from nsm.tasks import Task
from nsm.training.evaluation import VALIDATION, evaluate
from nsm.training.run import RunDirectory


def routed(machine: RepertoireMachine, task: Task, sequences: int, seed: int, program: int) -> float:
    """The share of the steps with an answer that a program gives."""
    given = steps = 0
    for batch in task.examination(seed, VALIDATION, sequences):
        counted = torch.from_numpy(batch.mask) > 0
        given += int((machine.route(torch.from_numpy(batch.inputs)) == program)[counted].sum())
        steps += int(counted.sum())
    return given / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--sequences", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for path in arguments.runs:
        run = RunDirectory(path)
        experiment, machine = run.experiment, run.machine("last")
        if not isinstance(machine, RepertoireMachine):
            parser.error(f"{path} is not the run of a repertoire")
        print(f"{path}: {int(machine.claimed)} programs claimed")
        routes, labels = [], []
        for name, task in experiment.task.parts.items():
            options = task, arguments.sequences, experiment.seed, VALIDATION
            alone = [
                evaluate(program, *options).averages()["bit_accuracy"]  # type: ignore[arg-type]
                for program in machine.programs[: int(machine.claimed)]
            ]
            best = max(range(len(alone)), key=alone.__getitem__)
            without = evaluate(machine, *options).averages()["bit_accuracy"]  # type: ignore[arg-type]
            share = routed(machine, task, arguments.sequences, experiment.seed, best)
            routes.append(without)
            labels.append(alone[best])
            print(f"  {name}: {without:.3f}, with a label {alone[best]:.3f}; program {best} answers {share:.1%}")
        print(f"  mean: {fmean(routes):.3f}, with labels {fmean(labels):.3f}")


if __name__ == "__main__":
    main()
