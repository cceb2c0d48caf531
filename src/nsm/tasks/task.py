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
"""Sequences per batch where nothing is learnt."""
BLOCK_BYTES = 1 << 20
"""Batches are made in blocks of about this size: large enough to amortise the work, small enough for the cache."""
TRIED = 32
"""Samples by which a task that does not say how long its sequences are is judged."""


@dataclass(frozen=True)
class Task(OneOf):
    """An endless supply of batches, each a function of (seed, stream, step), and the judgement of answers to them.

    A task of your own has a method `sample`, which makes one sequence; everything else has a default. Fields of a
    frozen dataclass make it adjustable. For speed, `lay_out` makes all sequences of a block at once, as ours do.
    """

    ranges: ClassVar[tuple[str, ...]] = ()
    """The fields that say how long or how many: what `with_ranges` may change without changing the model's shape."""
    solvable: ClassVar[bool] = True
    """Whether a perfect answer exists: a prediction that is no better than chance allows never comes near zero loss."""

    ragged: bool = field(default=True, kw_only=True)
    """Draw lengths per sequence (True), or once per batch as the published code does (False)."""
    test: Task | None = field(default=None, kw_only=True)
    """The task by which a trained machine is tested, longer say; None: this one."""
    validation: Task | None = field(default=None, kw_only=True)
    """The task by which progress is judged and the best checkpoint chosen, longer say; None: this one."""

    # --- a sequence ---------------------------------------------------------------------------------------------------

    def sample(self, random: np.random.Generator) -> Sample:
        """One sequence: inputs (T, I), targets (T, O) of zeros and ones, and a mask (T,) of the steps that count.

        Without a mask all steps count. Nothing may be random but what comes from `random`.
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
        """The longest a sequence can be, in steps; what is not known is taken from a few samples."""
        return max(len(batch.inputs) for batch in _examples(self))

    @property
    def name(self) -> str:
        """What it is called: repeat-copy for a RepeatCopy."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(self).__name__).lower()

    def require(self) -> None:
        """Raise a UserError if something that batches are made of, a data set say, is not there."""
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
        """The batch, if its targets are such as the loss takes; a loss of the user's own may take any."""
        if type(self).loss is Task.loss and not np.isin(batch.targets, (0, 1)).all():
            raise UserError(f"{self._sample_name} must have targets of zeros and ones")
        return batch

    def batch(self, seed: int, stream: int, step: int, batch_size: int) -> Batch:
        """The batch of one step."""
        return self.block(seed, stream, step, 1, batch_size)[0]

    def block(self, seed: int, stream: int, first_step: int, steps: int, batch_size: int) -> list[Batch]:
        """The batches of consecutive steps: the same bytes as `batch` gives, for a fraction of the time."""
        return self.lay_out(Draws(seed, stream, first_step, steps, batch_size), self.input_size, self.output_size)

    def batches(self, seed: int, stream: int, first: int, last: int, batch_size: int) -> Iterator[Batch]:
        """The batches of steps `first` to `last`, the last one left out, made in blocks."""
        size = 4 * self.max_length * batch_size * (self.input_size + self.output_size)
        block = max(1, min(256, BLOCK_BYTES // size))
        for start in range(first, last, block):
            yield from self.block(seed, stream, start, min(block, last - start), batch_size)

    def examination(self, seed: int, stream: int, sequences: int, filling: int = 0) -> Iterator[Batch]:
        """The batches that a machine is judged by: `sequences` sequences, or all there are if those are fewer.

        Before them come `filling` batches by which it is not judged.
        """
        starts = chain(repeat(0, filling), range(0, sequences, EXAMINED))
        for step, start in enumerate(starts):
            yield self.batch(seed, stream, step, min(EXAMINED, sequences - start))

    def min_slots(self, batch: Batch) -> int:
        """How many memory slots the batch needs at least.

        One for every step of the longest encoding phase, flags included, because the plain way to memorise a sequence
        is a write head that moves on by one slot a step. For Copy this is the length + 2.
        """
        return max(1, int(batch.decoding.max()))

    # --- other forms of the task --------------------------------------------------------------------------------------

    def like_training(self) -> Task:
        """Sequences like those of training: this task, with lengths drawn for every sequence."""
        return replace(self, ragged=True)

    @property
    def validated(self) -> Task:
        """The task by which progress is judged: `validation`, or one like that of training."""
        return self.like_training() if self.validation is None else self.validation

    @property
    def tested(self) -> Task:
        """The task by which a trained machine is tested: `test`, or this one with lengths drawn for every sequence."""
        return replace(self, ragged=True) if self.test is None else self.test

    @property
    def parts(self) -> Mapping[str, Task]:
        """The tasks it is tested by, one at a time: itself, or what it is a mixture of."""
        return {self.name: self}

    @property
    def part_names(self) -> tuple[str, ...]:
        """What a curriculum can weigh; nothing for a task that is one thing."""
        return ()

    def weighted(self, weights: tuple[float, ...]) -> Task:
        """The task with its parts drawn as often as `weights` say, in proportion."""
        raise UserError(f"{self.name} is no mixture of tasks: a curriculum needs one")

    def singles(self) -> tuple[Task, ...]:
        """The single tasks this one is made of: itself, or its subtasks or parts."""
        return (self,)

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        """This task with `change` applied to every single task it is made of."""
        return change(self)

    def own_draws(self, draws: Draws) -> Draws:
        """The draws as `ragged` wants them."""
        return draws if self.ragged else replace(draws, shared_structure=True)

    # --- judgement ----------------------------------------------------------------------------------------------------

    measures: ClassVar[tuple[Measure, ...]] = BITS
    """What it reports, the figure it is judged by first."""

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean binary cross-entropy (nats) of logits (T, B, O) over the counted steps and all output channels."""
        return metrics.loss(logits, batch)

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Sums:
        """Sums over the batch's sequences, for logits (T, B, O)."""
        return metrics.measure(logits, batch)

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """What logits (T, B, O) mean: the probability of a 1."""
        return logits.sigmoid()

    def sentence(self, figures: Figures) -> str:
        """What a test found, in words."""
        return (
            f"{figures['bit_errors']:.2f} wrong bits per sequence (Σ|p−y| {figures['l1_errors']:.2f}), "
            f"{figures['perfect']:.1%} of sequences without any, bit accuracy {figures['bit_accuracy']:.2%}"
        )

    @property
    def breakdown(self) -> Breakdown | None:
        """Its figures part by part, if it has parts that are reported."""
        return None

    @property
    def chance(self) -> float | None:
        """The loss of guessing, where that is known."""
        return float(np.log(2))

    @property
    def notes(self) -> tuple[str, ...]:
        """What every result on this task has to say, because it is not what one would expect: a sentence each."""
        return ()

    # --- for people ---------------------------------------------------------------------------------------------------

    choice: ClassVar[bool] = False
    """Whether an answer is one of O choices, and not O bits."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What the O choices are called, and the inputs, too; nothing where they have no names."""
        return ()

    @property
    def picture(self) -> int:
        """The side of the square picture an input begins with; 0 where there is none."""
        return 0

    @property
    def subtask_names(self) -> tuple[str, ...]:
        """The names of what `Batch.subtask` numbers, if they are shown."""
        return ()


def hashable(task: Task) -> Task:
    """The task, if its fields are such as can be told apart and remembered."""
    try:
        hash(task)
    except TypeError as error:
        name = type(task).__name__
        raise UserError(f"{name} must have fields that don't change, a tuple in place of a list: {error}") from None
    return task


def _examples(task: Task) -> list[Batch]:
    return _tried(hashable(task))


@lru_cache(maxsize=64)
def _tried(task: Task) -> list[Batch]:
    """Samples of a task that does not say what sizes they have, a batch each."""
    samples = [task.sample(Draws(0, 0, 0, 1, TRIED).generator(0, number)) for number in range(TRIED)]
    return [task._judged(batch_of([sample], task._sample_name)) for sample in samples]


@dataclass(frozen=True)
class PhasedTask(Task, ABC):
    """A task that first shows everything and then asks: one that can be a subtask of a sequence."""

    @abstractmethod
    def make_phases(self, draws: Draws) -> Phases:
        """The phases of the block's sequences, from draws that already honour `ragged`."""

    def phases(self, draws: Draws) -> Phases:
        """The phases of the block's sequences."""
        return self.make_phases(self.own_draws(draws))

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        alone = np.zeros((draws.sequences, 1), dtype=np.int64)
        return assemble(draws, [self.phases(draws)], alone, input_size, output_size)
