"""Sequencing tasks: several subtasks in an order that is given at the beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from nsm.checks import UserError
from nsm.tasks import metrics
from nsm.tasks.arrays import Ints
from nsm.tasks.batch import Batch
from nsm.tasks.layout import Segment, assemble
from nsm.tasks.measures import Breakdown
from nsm.tasks.metrics import Metrics
from nsm.tasks.randomness import Draws
from nsm.tasks.task import PhasedTask, Task

if TYPE_CHECKING:
    import torch

_ORDER = 0


@dataclass(frozen=True)
class Sequencing(Task):
    """The inputs of several subtasks, then the answers to all of them, both in the same random order.

    Inputs: an order step, the encoding phases of the subtasks in that order, zero steps.
    Targets: the answers of the subtasks in that order. Narrower subtasks leave the last channels blank.

    In the order step each of the k subtasks has its own channel, spread evenly over all I: subtask i has channel
    i (I − 1) / (k − 1), rounded. It is 1 for the first subtask in the order, falling evenly to 0 for the last. With two
    subtasks, the first channel is set if the first subtask comes first, the last channel if the second does.

    Attributes:
        subtasks: two or more tasks whose input is complete before the answer begins.
    """

    subtasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        if len(self.subtasks) < 2:
            raise UserError(f"Sequencing.subtasks has {len(self.subtasks)}: it must have at least 2 tasks.")
        for index, subtask in enumerate(self.subtasks):
            if not isinstance(subtask, PhasedTask):
                raise UserError(
                    f"Sequencing.subtasks[{index}] is {type(subtask).__name__}: "
                    f"it must be a task whose input is complete before its answer begins."
                )
        if len(self.subtasks) > self.input_size:
            raise UserError(
                f"Sequencing.subtasks has {len(self.subtasks)}: it must have at most {self.input_size} tasks, one per "
                f"input channel, because the order step has a channel for each."
            )

    @property
    def input_size(self) -> int:
        return max(subtask.input_size for subtask in self.subtasks)

    @property
    def output_size(self) -> int:
        return max(subtask.output_size for subtask in self.subtasks)

    @property
    def max_length(self) -> int:
        return 1 + sum(subtask.max_length for subtask in self.subtasks)

    @property
    def name(self) -> str:
        return "+".join(self.subtask_names)

    @property
    def breakdown(self) -> Breakdown:
        names = {name: f"bit_errors/{name}" for name in self.subtask_names}
        return Breakdown("wrong bits by subtask", "lower", False, names)

    @property
    def subtask_names(self) -> tuple[str, ...]:
        """The subtasks' names, a repeated one with its number: copy, copy-2."""
        names = [subtask.name for subtask in self.subtasks]
        earlier = [names[:index].count(name) for index, name in enumerate(names)]
        return tuple(name if same == 0 else f"{name}-{same + 1}" for name, same in zip(names, earlier, strict=True))

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        draws = self.own_draws(draws)
        turn = draws.structure.permutations(_ORDER, len(self.subtasks))
        # The field accepts any task, to refuse a wrong one with a message; here all are of the right kind.
        subtasks = cast(tuple[PhasedTask, ...], self.subtasks)
        parts = [subtask.phases(draws.subtask(index)) for index, subtask in enumerate(subtasks)]
        return assemble(draws, parts, turn, input_size, output_size, order_step=self._order_step(turn))

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Metrics:
        return metrics.measure(logits, batch, self.subtask_names)

    def like_training(self) -> Task:
        return replace(self, ragged=True, subtasks=tuple(subtask.like_training() for subtask in self.subtasks))

    def singles(self) -> tuple[Task, ...]:
        return self.subtasks

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        return replace(self, subtasks=tuple(change(subtask) for subtask in self.subtasks))

    def _order_step(self, turn: Ints) -> Segment:
        """The order step for turns (N, k)."""
        sequences, last = turn.shape[0], turn.shape[1] - 1
        step = np.zeros((sequences, 1, self.input_size), dtype=np.float32)
        for index in range(last + 1):
            step[:, 0, round(index * (self.input_size - 1) / last)] = (last - turn[:, index]) / last
        return Segment.of(step)
