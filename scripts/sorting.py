"""How finely a machine sorts: the accuracy of each place in its answer, by the distance to the next priority.

Example: python scripts/sorting.py results/models/single/default/priority-sort/nutm

Tests new sequences from the training distribution, of Priority Sort alone or among other tasks. A place is right if
all its bits are; its gap is the distance from the priority of the item that belongs there to the nearest other one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from nsm.checks import UserError
from nsm.machine import Machine
from nsm.tasks import Batch, PrioritySort, Task
from nsm.training.evaluation import TEST
from nsm.training.run import RunDirectory

EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 2.0)


def places(batch: Batch, wrong: np.ndarray, number: int, width: int) -> Iterator[tuple[float, int]]:
    """The gap and the wrong bits of every place, of all sequences; `wrong` (T, B, O), the sort is subtask `number`."""
    for b in range(batch.mask.shape[1]):
        mine = batch.subtask[:, b] == number
        shown = mine & (np.arange(len(mine)) < batch.decoding[b])
        ranked = np.sort(batch.inputs[shown, b, width])[::-1]
        distances = -np.diff(ranked)
        nearest = np.minimum(np.append(distances, np.inf), np.insert(distances, 0, np.inf))
        bits = wrong[mine & (batch.mask[:, b] > 0), b].sum(-1)
        yield from zip(nearest[: len(bits)].tolist(), bits.tolist(), strict=True)


def examine(machine: Machine, task: Task, sequences: int, seed: int) -> list[tuple[float, int]]:
    """The places of new sequences of a task."""
    singles = task.singles()
    sorts = [n for n, single in enumerate(singles) if isinstance(single, PrioritySort)]
    if not sorts:
        raise UserError(f"the machine must have learned to sort, it has learned {type(task).__name__}")
    found: list[tuple[float, int]] = []
    for batch in task.examination(seed, TEST, sequences, 0):
        with torch.no_grad():
            answers, _ = machine(torch.from_numpy(batch.inputs), lengths=batch.lengths.tolist())
        wrong = (answers.numpy() > 0) != (batch.targets > 0.5)
        found += places(batch, wrong, sorts[0], singles[sorts[0]].width)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--sequences", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for place in options.runs:
        run = RunDirectory(place)
        machine = run.machine("best")
        found = np.array(examine(machine, run.experiment.task, options.sequences, options.seed))
        print(f"{place}: {found[:, 1].mean():.2f} wrong bits a place, {(found[:, 1] == 0).mean():.1%} of them right")
        for low, high in pairwise(EDGES):
            bits = found[(found[:, 0] >= low) & (found[:, 0] < high), 1]
            if len(bits):
                share = bits.sum() / max(found[:, 1].sum(), 1)
                print(
                    f"  gap {low:5.3f} to {high:5.3f}: {len(bits) / len(found):5.1%} of places, "
                    f"{(bits == 0).mean():6.1%} right, {share:5.1%} of all wrong bits"
                )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"sorting.py: {error}") from None
