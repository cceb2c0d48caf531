"""Curricula: how often each part of a mixture of tasks is drawn in the course of training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from nsm.checks import UserError, positive
from nsm.tasks import Figures, Task
from nsm.tree import OneOf

OTHERS = "others"
"""The parts of a mixture that are not named."""
Weights = tuple[float, ...]
"""How often each part is drawn, in proportion."""


@dataclass(frozen=True)
class Curriculum(OneOf, ABC):
    """A rule for the weights of a mixture; it may depend on the step and on the last evaluation."""

    comparable: ClassVar[bool] = True
    """Whether validation losses of different times can be compared. If not, there is no best machine, and the accuracy
    on every part is measured at the end of each phase."""

    def check(self, task: Task) -> None:
        """Raise a UserError for a task that it can't weigh."""
        if not task.part_names:
            raise UserError(f"a curriculum needs a mixture of tasks, and {task.name} is a single one")

    @abstractmethod
    def start(self, task: Task) -> Weights:
        """The weights at the start."""

    def at(self, task: Task, weights: Weights, step: int, iterations: int) -> Weights:
        """The weights after `step` of so many iterations."""
        return weights

    def evaluated(self, task: Task, weights: Weights, figures: Figures) -> Weights:
        """The weights after an evaluation."""
        return weights

    def augmented(self, task: Task, weights: Weights) -> bool:
        """Whether the schedule's cell noise and the task's augmentation are on."""
        return True


@dataclass(frozen=True)
class OneByOne(Curriculum):
    """Continual learning: the parts one after another, each for an equal share of the iterations."""

    comparable: ClassVar[bool] = False

    def start(self, task: Task) -> Weights:
        return _only(0, len(task.part_names))

    def at(self, task: Task, weights: Weights, step: int, iterations: int) -> Weights:
        each = max(1, iterations // len(weights))
        return _only(min(step // each, len(weights) - 1), len(weights))


def _only(part: int, parts: int) -> Weights:
    return tuple(float(number == part) for number in range(parts))


@dataclass(frozen=True)
class InStages(Curriculum):
    """Some parts first, more in every stage, all in the last; drawn by the error that is left on each.

    Among twenty tasks a machine does not learn what takes a new skill: each task pulls at it, and all are answered a
    little better by what was mentioned lately. Alone, such a task stands at chance for some thousand updates and is
    then learned at once. So tasks that need a skill come one at a time, while those before them are rehearsed: what is
    drawn is what is left to gain, because tasks that are solved have nothing more to teach.
    """

    stages: tuple[str, ...] = ("qa1", "qa15", "others", "qa19", "qa17", "qa3+qa16")
    """Parts that join in each stage, connected by +; others: all that are not named, by default in the last stage."""
    enough: float = 0.15
    """A stage is over when the mean error of the parts that joined in it is at most this."""
    share: float = 0.75
    """All parts are drawn after this share of the iterations at the latest, and each stage lasts for an equal part of
    it at most: a skill that is not found must not keep the others waiting."""
    floor: float = 0.02
    """What is added to every error, so that solved tasks are not forgotten."""
    limit: float = 0.3
    """An error counts for no more than this: a task that no machine learns would be drawn more and more."""
    focus: float = 0.0
    """At least this share of what is drawn is of the parts that joined last, until all have joined."""

    def __post_init__(self) -> None:
        if not 0 <= self.focus < 1:
            raise UserError(f"focus must be at least 0 and below 1, was {self.focus}")
        positive("floor", self.floor)
        for name in ("enough", "share", "limit"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{name} must be at least 0, was {getattr(self, name)}")

    def check(self, task: Task) -> None:
        super().check(task)
        if task.breakdown is None or set(task.breakdown.names) != set(task.part_names):
            raise UserError(f"{task.name} reports no error for each of its parts: this curriculum weighs by them")

    def start(self, task: Task) -> Weights:
        first = self._joining(task)[0]
        return tuple(float(part in first) for part in task.part_names)

    def at(self, task: Task, weights: Weights, step: int, iterations: int) -> Weights:
        joining, until = self._joining(task), self.share * iterations
        begun = len(joining) if step >= until else 1 + int((len(joining) - 1) * step / until)
        due = {part for parts in joining[:begun] for part in parts}
        now = dict(zip(task.part_names, weights, strict=True))
        if all(now[part] for part in due):
            return weights
        most = self.floor + self.limit
        shares = {part: min(weight, most) or most for part, weight in now.items() if weight or part in due}
        return self._focused(task, shares)

    def evaluated(self, task: Task, weights: Weights, figures: Figures) -> Weights:
        assert task.breakdown is not None
        errors = {part: figures[task.breakdown.names[part]] for part in task.part_names}
        drawn = {part for part, weight in zip(task.part_names, weights, strict=True) if weight}
        joining = self._joining(task)
        joined = [parts for parts in joining if drawn.issuperset(parts)]
        if len(joined) < len(joining) and fmean(errors[part] for part in joined[-1]) <= self.enough:
            joined.append(joining[len(joined)])
            drawn.update(joined[-1])
        return self._focused(
            task, {part: self.floor + min(error, self.limit) for part, error in errors.items() if part in drawn}
        )

    def _focused(self, task: Task, shares: dict[str, float]) -> Weights:
        """The weights of all parts from those of the parts that joined, the last of which have what `focus` says."""
        joining = self._joining(task)
        joined = [parts for parts in joining if shares.keys() >= set(parts)]
        if len(joined) < len(joining):
            newest = sum(shares[part] for part in joined[-1])
            others = sum(shares.values()) - newest
            wanted = max(newest, others * self.focus / (1 - self.focus))
            shares |= {part: shares[part] * wanted / newest for part in joined[-1]}
        return tuple(shares.get(part, 0.0) for part in task.part_names)

    def augmented(self, task: Task, weights: Weights) -> bool:
        """From the widest stage on. Before, skills are looked for one at a time, and are not found in noise."""
        joining = self._joining(task)
        _, widest = max((len(parts), number) for number, parts in enumerate(joining))
        drawn = {part for part, weight in zip(task.part_names, weights, strict=True) if weight}
        return drawn.issuperset(joining[widest])

    def _joining(self, task: Task) -> list[list[str]]:
        """The parts that join in every stage, which are all of the task's."""
        stages = self.stages if OTHERS in self.stages else (*self.stages, OTHERS)
        named = [stage.split("+") for stage in stages]
        others = sorted(set(task.part_names).difference(*named))
        joining = [
            [part for part in (others if names == [OTHERS] else names) if part in task.part_names] for names in named
        ]
        return [parts for parts in joining if parts]
