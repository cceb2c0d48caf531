"""Several tasks for one machine, distinguished only by their sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

import numpy as np

from nsm.checks import UserError
from nsm.tasks.batch import Batch
from nsm.tasks.measures import BITS, Measure
from nsm.tasks.padded import Padded
from nsm.tasks.randomness import Draws
from nsm.tasks.task import Task

_PART = 255
"""A purpose that no task uses: a draw shared with a task would make its lengths depend on which task is drawn."""


@dataclass(frozen=True)
class Mixture(Task):
    """Batches of several tasks, each batch of one of them, padded to the channels of the widest.

    Attributes:
        mixed: the tasks; all answer bit by bit.
        weights: how often each is drawn, in proportion; empty: equally often. Continual learning has one at a time.
    """

    measures: ClassVar[tuple[Measure, ...]] = (BITS[3], *BITS[:3], *BITS[4:])

    mixed: tuple[Task, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        names = self.part_names
        if not names or len(set(names)) < len(names):
            raise UserError(f"Mixture.mixed has the names {names}: it must have at least one, and no name twice.")
        for task in self.mixed:
            if task.choice:
                raise UserError(
                    f"Mixture.mixed has {task.name!r}, which chooses one answer: all must answer bit by bit."
                )
            if task.part_names:
                raise UserError(f"Mixture.mixed has {task.name!r}, itself made of several: mix those instead.")
        if self.weights and (len(self.weights) != len(names) or min(self.weights) < 0 or sum(self.weights) <= 0):
            raise UserError(f"weights must be one for each of the {len(names)} tasks, were {self.weights}")

    @property
    def input_size(self) -> int:
        return max(task.input_size for task in self.mixed)

    @property
    def output_size(self) -> int:
        return max(task.output_size for task in self.mixed)

    @property
    def max_length(self) -> int:
        return max(task.max_length for task in self.mixed)

    @property
    def part_names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.mixed)

    @property
    def parts(self) -> Mapping[str, Task]:
        """Every task on the common channels, by name, in order."""
        return {task.name: Padded(task, self.input_size, self.output_size) for task in self.mixed}

    def like_training(self) -> Task:
        return replace(self, ragged=True, mixed=tuple(task.like_training() for task in self.mixed))

    def require(self) -> None:
        for task in self.mixed:
            task.require()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for task in self.mixed for note in task.notes))

    def weighted(self, weights: tuple[float, ...]) -> Mixture:
        return replace(self, weights=weights)

    @property
    def _drawn(self) -> list[Task]:
        """The tasks with a positive weight."""
        return [task for task, weight in zip(self.mixed, self._weights, strict=True) if weight]

    @property
    def _weights(self) -> tuple[float, ...]:
        return self.weights or (1.0,) * len(self.mixed)

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        draws = self.own_draws(draws)
        upto = np.cumsum(self._weights) / np.sum(self._weights)
        # One draw per step, from its first sequence: a batch has a single task.
        chance = draws.uniform(_PART, 1).reshape(draws.steps, draws.batch_size)[:, 0]
        part = np.searchsorted(upto, chance, side="right")
        batches: list[Batch] = []
        for index, steps in groupby(range(draws.steps), key=lambda step: int(part[step])):
            first, *more = steps
            piece = replace(draws, first_step=draws.first_step + first, steps=1 + len(more))
            batches += self.mixed[index].lay_out(piece, input_size, output_size)
        return batches

    def examination(self, seed: int, stream: int, sequences: int, filling: int = 0) -> Iterator[Batch]:
        """An equal number of sequences of each task with a positive weight."""
        drawn = self._drawn
        for task in drawn:
            part = Padded(task, self.input_size, self.output_size)
            yield from part.examination(seed, stream, -(-sequences // len(drawn)), filling)

    def min_slots(self, batch: Batch) -> int:
        return max(task.min_slots(batch) for task in self.mixed)

    def singles(self) -> tuple[Task, ...]:
        return tuple(single for task in self.mixed for single in task.singles())

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        return replace(self, mixed=tuple(task.mapped(change) for task in self.mixed))
