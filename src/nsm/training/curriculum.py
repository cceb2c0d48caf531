"""Curricula: which parts of a mixture of tasks are drawn how often, as training goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from nsm.checks import UserError
from nsm.tasks import Figures, Task
from nsm.tree import OneOf

Weights = tuple[float, ...]
"""How often each part is drawn, in proportion."""


@dataclass(frozen=True)
class Curriculum(OneOf, ABC):
    """A rule for weights; it may depend on how far training has come and on what the last evaluation found."""

    comparable: ClassVar[bool] = True
    """Whether validation losses of different times compare. Where they don't, there is no best machine, and what is
    known of every part is measured at the end of each phase."""

    def check(self, task: Task) -> None:
        """Refuse a task that it can't weigh."""
        if not task.part_names:
            raise UserError(f"a curriculum needs a task made of several: {task.name} is one")

    @abstractmethod
    def start(self, task: Task) -> Weights:
        """Before anything is learned."""

    def at(self, weights: Weights, step: int, iterations: int) -> Weights:
        """After `step` of so many iterations."""
        return weights

    def evaluated(self, task: Task, weights: Weights, figures: Figures) -> Weights:
        """After an evaluation."""
        return weights


@dataclass(frozen=True)
class OneByOne(Curriculum):
    """Continual learning: the parts one after another, each for an equal share of the iterations."""

    comparable: ClassVar[bool] = False

    def start(self, task: Task) -> Weights:
        return _only(0, len(task.part_names))

    def at(self, weights: Weights, step: int, iterations: int) -> Weights:
        each = max(1, iterations // len(weights))
        return _only(min(step // each, len(weights) - 1), len(weights))


def _only(part: int, parts: int) -> Weights:
    return tuple(float(number == part) for number in range(parts))


@dataclass(frozen=True)
class LookUpFirst(Curriculum):
    """One task alone until it is learned, then all, drawn by the error that is left on each.

    Twenty tasks at once keep a machine from learning to look anything up: each pulls at it, and all are answered a
    little better by what was mentioned lately. So it learns to look up first, from one task alone. From then on tasks
    are drawn by what is left to gain, because those that are solved have nothing more to teach.
    """

    first: str = "qa1"
    """The part that comes alone: one supporting fact, a person's last place."""
    enough: float = 0.25
    """It does until its error is below this."""
    floor: float = 0.02
    """What is added to every error, so that solved tasks are not forgotten."""
    limit: float = 0.3
    """An error counts for no more than this: a task that no machine learns would be drawn more and more."""

    def check(self, task: Task) -> None:
        super().check(task)
        if task.breakdown is None or set(task.breakdown.names) != set(task.part_names):
            raise UserError(f"{task.name} reports no error for each of its parts: this curriculum weighs by them")

    def start(self, task: Task) -> Weights:
        if self.first not in task.part_names:
            return (1.0,) * len(task.part_names)
        return _only(task.part_names.index(self.first), len(task.part_names))

    def evaluated(self, task: Task, weights: Weights, figures: Figures) -> Weights:
        assert task.breakdown is not None
        errors = {part: figures[task.breakdown.names[part]] for part in task.part_names}
        alone = len(errors) > 1 and 0 in weights and weights == self.start(task)
        if alone and errors[self.first] > self.enough:
            return weights
        return tuple(self.floor + min(error, self.limit) for error in errors.values())
