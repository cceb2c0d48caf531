"""Continual procedure learning: one task after another."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from nsm.checks import UserError
from nsm.tasks.batch import Batch
from nsm.tasks.classification import Classification
from nsm.tasks.fields import check_count
from nsm.tasks.padded import Padded
from nsm.tasks.randomness import Draws
from nsm.tasks.task import Task


@dataclass(frozen=True)
class Continual(Task):
    """A curriculum: training step s belongs to phase s // iterations_per_phase, or to the last if that is past it.

    All phases are padded to the channels of the widest. To see what is remembered, evaluate on each of `tasks`.

    Attributes:
        phases: names and tasks, in the order of training.
        iterations_per_phase: training steps of a phase.
    """

    phases: tuple[tuple[str, Task], ...]
    iterations_per_phase: int = 20_000

    def __post_init__(self) -> None:
        check_count(self, "iterations_per_phase")
        names = [name for name, _ in self.phases]
        if not names or len(set(names)) < len(names):
            raise UserError(f"Continual.phases has the names {names}: it must have at least one, and no name twice.")
        for name, task in self.phases:
            if isinstance(task, Classification):
                raise UserError(f"Continual.phases has {name!r}, which chooses one answer: all must answer bit by bit.")

    @property
    def input_size(self) -> int:
        return max(task.input_size for _, task in self.phases)

    @property
    def output_size(self) -> int:
        return max(task.output_size for _, task in self.phases)

    @property
    def max_length(self) -> int:
        return max(task.max_length for _, task in self.phases)

    @property
    def tasks(self) -> dict[str, Task]:
        """Every phase's task on the common channels, by name, in order."""
        return {name: Padded(task, self.input_size, self.output_size) for name, task in self.phases}

    def phase(self, step: int) -> int:
        """The index of the phase a training step belongs to."""
        return min(step // self.iterations_per_phase, len(self.phases) - 1)

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        draws = self.own_draws(draws)
        batches: list[Batch] = []
        step, end = draws.first_step, draws.first_step + draws.steps
        while step < end:
            index = self.phase(step)
            last = index == len(self.phases) - 1
            change = end if last else min(end, (index + 1) * self.iterations_per_phase)
            piece = replace(draws, first_step=step, steps=change - step)
            batches += self.phases[index][1].lay_out(piece, input_size, output_size)
            step = change
        return batches

    def min_slots(self, batch: Batch) -> int:
        return max(task.min_slots(batch) for _, task in self.phases)

    def singles(self) -> tuple[Task, ...]:
        return tuple(single for _, task in self.phases for single in task.singles())

    def mapped(self, change: Callable[[Task], Task]) -> Task:
        return replace(self, phases=tuple((name, task.mapped(change)) for name, task in self.phases))
