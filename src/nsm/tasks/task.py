"""What a task is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nsm.checks import UserError
from nsm.tasks import metrics
from nsm.tasks.batch import Batch
from nsm.tasks.layout import Phases, Sample, assemble, batch_of
from nsm.tasks.measures import BITS, Breakdown, Figures, Measure
from nsm.tasks.metrics import Sums
from nsm.tasks.randomness import Draws
from nsm.tree import OneOf

if TYPE_CHECKING:
    import torch

EXAMINED = 50
"""Sequences per batch in validation and test."""
BLOCK_BYTES = 1 << 20
"""Batches are made in blocks of about this size: large enough to amortise overhead, small enough for the cache."""
TRIED = 32
"""Samples from which the sizes of a task are taken if it does not declare them."""


@dataclass(frozen=True)
class Task(OneOf):
    """An endless supply of batches, each a function of (seed, stream, step), and the scoring of outputs.

    A task of your own needs a method `sample`, which makes one sequence; everything else has a default. Fields of a
    frozen dataclass become its options. For speed, `lay_out` can make all sequences of a block at once.
    """

    ranges: ClassVar[tuple[str, ...]] = ()
    """The fields for lengths and counts, which `with_ranges` may change without changing the model's shape."""
    solvable: ClassVar[bool] = True
    """Whether a perfect answer exists: the loss of predicting random bits never comes near zero."""

    ragged: bool = field(default=True, kw_only=True)
    """Draw lengths per sequence (True), or once per batch as the published code does (False)."""
    test: Task | None = field(default=None, kw_only=True)
    """The task used for the test, for example a longer one; None: this one."""
    validation: Task | None = field(default=None, kw_only=True)
    """The task used for validation and to choose the best checkpoint, for example a longer one; None: this one."""

    # --- a sequence ---------------------------------------------------------------------------------------------------

    def sample(self, random: np.random.Generator) -> Sample:
        """One sequence: inputs (T, I), targets (T, O) of zeros and ones, and a mask (T,) of the scored steps.

        Without a mask all steps are scored. All randomness must come from `random`.
        """
        raise UserError(f"{type(self).__name__} has no method sample(random) that returns inputs and targets")

    @property
    def input_size(self) -> int:
        """I, the number of input channels."""
        return int(_examples(self)[0].inputs.shape[2])

    @property
    def output_size(self) -> int:
        """O, the number of output channels."""
        return int(_examples(self)[0].targets.shape[2])

    @property
    def max_length(self) -> int:
        """The maximum length of a sequence in steps, by default estimated from a few samples."""
        return max(len(batch.inputs) for batch in _examples(self))

    @property
    def name(self) -> str:
        """Its name: repeat-copy for a RepeatCopy."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(self).__name__).lower()

    def require(self) -> None:
        """Raise a UserError if something that batches need, such as a data set, is missing."""
        return

    # --- batches ------------------------------------------------------------------------------------------------------

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        """The batches of a block, one for each of `draws.steps`, with blank channels after the task's own ones."""
        batches = []
        for step in range(draws.first_step, draws.first_step + draws.steps):
            samples = [self.sample(draws.generator(step, number)) for number in range(draws.batch_size)]
            batches.append(self._judged(batch_of(samples, self._sample_name, input_size, output_size)))
        return batches

    @property
    def _sample_name(self) -> str:
        return f"a sample of {type(self).__name__}"

    def _judged(self, batch: Batch) -> Batch:
        """The batch, if the loss accepts its targets; a loss of the user's own may accept any."""
        if type(self).loss is Task.loss and not np.isin(batch.targets, (0, 1)).all():
            raise UserError(f"{self._sample_name} must have targets of zeros and ones")
        return batch

    def batch(self, seed: int, stream: int, step: int, batch_size: int) -> Batch:
        """The batch of one step."""
        return self.block(seed, stream, step, 1, batch_size)[0]

    def block(self, seed: int, stream: int, first_step: int, steps: int, batch_size: int) -> list[Batch]:
        """The batches of consecutive steps: the same bytes as from `batch`, in a fraction of the time."""
        return self.lay_out(Draws(seed, stream, first_step, steps, batch_size), self.input_size, self.output_size)

    def batches(self, seed: int, stream: int, first: int, last: int, batch_size: int) -> Iterator[Batch]:
        """The batches of steps `first` to `last`, exclusive, made in blocks."""
        size = 4 * self.max_length * batch_size * (self.input_size + self.output_size)
        block = max(1, min(256, BLOCK_BYTES // size))
        for start in range(first, last, block):
            yield from self.block(seed, stream, start, min(block, last - start), batch_size)

    def examination(self, seed: int, stream: int, sequences: int, filling: int = 0) -> Iterator[Batch]:
        """The batches of a validation or test: `sequences` sequences, or all there are if fewer.

        They are preceded by `filling` batches that are not scored.
        """
        starts = chain(repeat(0, filling), range(0, sequences, EXAMINED))
        for step, start in enumerate(starts):
            yield self.batch(seed, stream, step, min(EXAMINED, sequences - start))

    def min_slots(self, batch: Batch) -> int:
        """The minimum number of memory slots for the batch.

        One for every step of the longest encoding phase, flags included, because the plain way to memorise a sequence
        is a write head that advances by one slot per step. For Copy this is the length + 2.
        """
        return max(1, int(batch.decoding.max()))

    # --- other forms of the task --------------------------------------------------------------------------------------

    def like_training(self) -> Task:
        """Sequences as in training: this task, with lengths drawn for every sequence."""
        return replace(self, ragged=True)

    @property
    def validated(self) -> Task:
        """The task for validation: `validation`, or one as in training."""
        return self.like_training() if self.validation is None else self.validation

    @property
    def tested(self) -> Task:
        """The task for the test: `test`, or this one with lengths drawn for every sequence."""
        return replace(self, ragged=True) if self.test is None else self.test

    @property
    def parts(self) -> Mapping[str, Task]:
        """The tasks it is tested on, one at a time: itself, or the parts of a mixture."""
        return {self.name: self}

    @property
    def part_names(self) -> tuple[str, ...]:
        """The parts that a curriculum can weight; empty for a single task."""
        return ()

    def weighted(self, weights: tuple[float, ...]) -> Task:
        """The task with its parts drawn in proportion to `weights`."""
        raise UserError(f"{self.name} is not a mixture of tasks: a curriculum needs one")

    def unchanged(self) -> Task:
        """The task without augmentation of its training data."""
        return self

    def singles(self) -> tuple[Task, ...]:
        """The single tasks this one is made of: itself, or its subtasks or parts."""
        return (self,)

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        """This task with `change` applied to every single task it is made of."""
        return change(self)

    def own_draws(self, draws: Draws) -> Draws:
        """The draws, respecting `ragged`."""
        return draws if self.ragged else replace(draws, shared_structure=True)

    # --- scoring ----------------------------------------------------------------------------------------------------

    measures: ClassVar[tuple[Measure, ...]] = BITS
    """What it reports, the main score first."""

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean binary cross-entropy (nats) of logits (T, B, O) over the scored steps and all output channels."""
        return metrics.loss(logits, batch)

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Sums:
        """Sums over the batch's sequences, for logits (T, B, O)."""
        return metrics.measure(logits, batch)

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """The probability of a 1 for logits (T, B, O)."""
        return logits.sigmoid()

    def sentence(self, figures: Figures) -> str:
        """The result of a test, in words."""
        return (
            f"{figures['bit_errors']:.2f} wrong bits per sequence (Σ|p−y| {figures['l1_errors']:.2f}), "
            f"{figures['perfect']:.1%} of sequences without any, bit accuracy {figures['bit_accuracy']:.2%}"
        )

    @property
    def breakdown(self) -> Breakdown | None:
        """Its scores by part, if it reports parts."""
        return None

    @property
    def chance(self) -> float | None:
        """The loss at chance level, if known."""
        return float(np.log(2))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that every result on this task must carry, one sentence each."""
        return ()

    # --- for people ---------------------------------------------------------------------------------------------------

    choice: ClassVar[bool] = False
    """Whether an answer is one of O choices instead of O bits."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The names of the O choices, and of the inputs; empty if they have none."""
        return ()

    @property
    def picture(self) -> int:
        """The side of the square picture at the start of an input; 0 if there is none."""
        return 0

    @property
    def subtask_names(self) -> tuple[str, ...]:
        """The names of the subtasks that `Batch.subtask` numbers, if they are to be shown."""
        return ()


def hashable(task: Task) -> Task:
    """The task, if its fields are hashable."""
    try:
        hash(task)
    except TypeError as error:
        name = type(task).__name__
        raise UserError(f"{name} must have hashable fields, for example a tuple instead of a list: {error}") from None
    return task


def _examples(task: Task) -> list[Batch]:
    return _tried(hashable(task))


@lru_cache(maxsize=64)
def _tried(task: Task) -> list[Batch]:
    """Samples of a task that does not declare its sizes, a batch each."""
    samples = [task.sample(Draws(0, 0, 0, 1, TRIED).generator(0, number)) for number in range(TRIED)]
    return [task._judged(batch_of([sample], task._sample_name)) for sample in samples]


@dataclass(frozen=True)
class PhasedTask(Task, ABC):
    """A task whose input is complete before the answer begins: it can be a subtask of a sequence."""

    @abstractmethod
    def make_phases(self, draws: Draws) -> Phases:
        """The phases of the block's sequences, from draws that already respect `ragged`."""

    def phases(self, draws: Draws) -> Phases:
        """The phases of the block's sequences."""
        return self.make_phases(self.own_draws(draws))

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        alone = np.zeros((draws.sequences, 1), dtype=np.int64)
        return assemble(draws, [self.phases(draws)], alone, input_size, output_size)
