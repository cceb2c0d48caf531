"""A task with extra blank channels, to share a model with wider tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nsm.checks import UserError
from nsm.tasks.arrays import Floats
from nsm.tasks.batch import Batch
from nsm.tasks.classification import Classification
from nsm.tasks.layout import aligned_zeros
from nsm.tasks.measures import Breakdown, Figures, Measure
from nsm.tasks.metrics import Sums
from nsm.tasks.randomness import Draws
from nsm.tasks.task import Task

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Padded(Task):
    """The same sequences, with blank channels after the task's own; the target on blank output channels is zero.

    Attributes:
        task: the task.
        inputs: I.
        outputs: O.
    """

    task: Task
    inputs: int
    outputs: int

    def __post_init__(self) -> None:
        if isinstance(self.task, Classification):
            raise UserError(f"Padded.task is a {type(self.task).__name__}: blank channels would be answers to choose.")
        for field, size, least in (
            ("inputs", self.inputs, self.task.input_size),
            ("outputs", self.outputs, self.task.output_size),
        ):
            if size < least:
                raise UserError(
                    f"Padded.{field} is {size}: it must be at least the {least} of {type(self.task).__name__}."
                )

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def input_size(self) -> int:
        return self.inputs

    @property
    def output_size(self) -> int:
        return self.outputs

    @property
    def max_length(self) -> int:
        return self.task.max_length

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        return self.task.lay_out(self.own_draws(draws), input_size, output_size)

    def examination(self, seed: int, stream: int, sequences: int, filling: int = 0) -> Iterator[Batch]:
        task = replace(self.task, ragged=self.task.ragged and self.ragged)
        for batch in task.examination(seed, stream, sequences, filling):
            yield batch._replace(inputs=_wider(batch.inputs, self.inputs), targets=_wider(batch.targets, self.outputs))

    def like_training(self) -> Task:
        return replace(self, ragged=True, task=self.task.like_training())

    def require(self) -> None:
        self.task.require()

    @property
    def notes(self) -> tuple[str, ...]:
        return self.task.notes

    def min_slots(self, batch: Batch) -> int:
        return self.task.min_slots(batch)

    # Scores are the task's own. The loss is not: it includes the blank channels.

    @property
    def measures(self) -> tuple[Measure, ...]:  # type: ignore[override]
        return self.task.measures

    @property
    def solvable(self) -> bool:  # type: ignore[override]
        return self.task.solvable

    @property
    def breakdown(self) -> Breakdown | None:
        return self.task.breakdown

    @property
    def subtask_names(self) -> tuple[str, ...]:
        return self.task.subtask_names

    def sentence(self, figures: Figures) -> str:
        return self.task.sentence(figures)

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Sums:
        return self.task.metrics(logits, batch)

    def singles(self) -> tuple[Task, ...]:
        return self.task.singles()

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        return replace(self, task=self.task.mapped(change))


def _wider(values: Floats, channels: int) -> Floats:
    wide: Floats = aligned_zeros((*values.shape[:2], channels), values.dtype)
    wide[..., : values.shape[2]] = values
    return wide
