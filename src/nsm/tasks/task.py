"""What a task is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nsm.tasks import metrics
from nsm.tasks.batch import Batch
from nsm.tasks.layout import Phases, assemble
from nsm.tasks.metrics import Sums
from nsm.tasks.randomness import Draws

if TYPE_CHECKING:
    import torch

EXAMINED = 50
"""Sequences per batch where nothing is learnt."""


@dataclass(frozen=True)
class Task(ABC):
    """An endless supply of batches, each a function of (seed, stream, step), and the judgement of answers to them.

    Attributes:
        ragged: lengths are drawn for every sequence; otherwise all sequences of a batch share one draw, that of the
            first. A task inside another one shares if either of them says so.
    """

    ranges: ClassVar[tuple[str, ...]] = ()
    """The fields that say how long or how many: what `with_ranges` may change without changing the model's shape."""

    ragged: bool = field(default=True, kw_only=True)

    @property
    @abstractmethod
    def input_size(self) -> int:
        """I, the number of input channels."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """O, the number of output channels."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The longest a sequence can be, in steps."""

    @abstractmethod
    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        """The batches of a block, one for each of `draws.steps`, with blank channels after the task's own ones."""

    def require(self) -> None:
        """Raise a UserError if something that batches are made of, a data set say, is not there."""
        return

    def held_out(self) -> Task:
        """The task by which progress is judged: this one, with lengths drawn for every sequence."""
        return replace(self, ragged=True)

    def batch(self, seed: int, stream: int, step: int, batch_size: int) -> Batch:
        """The batch of one step."""
        return self.block(seed, stream, step, 1, batch_size)[0]

    def block(self, seed: int, stream: int, first_step: int, steps: int, batch_size: int) -> list[Batch]:
        """The batches of consecutive steps: the same bytes as `batch` gives, for a fraction of the time."""
        return self.lay_out(Draws(seed, stream, first_step, steps, batch_size), self.input_size, self.output_size)

    def examination(self, seed: int, stream: int, sequences: int, filling: int = 0) -> Iterator[Batch]:
        """The batches that a machine is judged by: `sequences` sequences, or all there are if those are fewer.

        Before them come `filling` batches by which it is not judged.
        """
        starts = chain(repeat(0, filling), range(0, sequences, EXAMINED))
        for step, start in enumerate(starts):
            yield self.batch(seed, stream, step, min(EXAMINED, sequences - start))

    @property
    def notes(self) -> tuple[str, ...]:
        """What every result on this task has to say, because it is not what one would expect: a sentence each."""
        return ()

    def min_slots(self, batch: Batch) -> int:
        """How many memory slots the batch needs at least.

        One for every step of the longest encoding phase, flags included, because the plain way to memorise a sequence
        is a write head that moves on by one slot a step. For Copy this is the length + 2.
        """
        return int(batch.decoding.max())

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean binary cross-entropy (nats) of logits (T, B, O) over the counted steps and all output channels."""
        return metrics.loss(logits, batch)

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Sums:
        """Sums over the batch's sequences, for logits (T, B, O)."""
        return metrics.measure(logits, batch)

    def singles(self) -> tuple[Task, ...]:
        """The single tasks this one is made of: itself, or its subtasks or phases."""
        return (self,)

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        """This task with `change` applied to every single task it is made of."""
        return change(self)

    def own_draws(self, draws: Draws) -> Draws:
        """The draws as `ragged` wants them."""
        return draws if self.ragged else replace(draws, shared_structure=True)


@dataclass(frozen=True)
class PhasedTask(Task):
    """A task that first shows everything and then asks: one that can be a subtask of a sequence."""

    name: ClassVar[str]
    """What its errors are reported under when it is a subtask."""

    @abstractmethod
    def make_phases(self, draws: Draws) -> Phases:
        """The phases of the block's sequences, from draws that already honour `ragged`."""

    def phases(self, draws: Draws) -> Phases:
        """The phases of the block's sequences."""
        return self.make_phases(self.own_draws(draws))

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        alone = np.zeros((draws.sequences, 1), dtype=np.int64)
        return assemble(draws, [self.phases(draws)], alone, input_size, output_size)
