"""What a run came to, and what a test found: typed, and readable."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from nsm.checks import UserError
from nsm.tasks import Figures, Measure, Task


@dataclass(frozen=True)
class Score:
    """The figures of one checkpoint on test sequences."""

    step: int
    figures: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: what result.json has."""

    steps: int
    seconds: float
    solved_step: int | None
    solved_seconds: float | None
    validation_loss: float | None
    """The lowest."""
    best_step: int | None
    parameters: int
    backend: str
    best: Score | None = None
    """The checkpoint of the lowest validation loss on the test sequences; None where a curriculum makes phases."""
    last: Score | None = None
    phases: tuple[dict[str, float], ...] = ()
    """Continual learning: bit accuracy on every task after each phase."""
    notes: tuple[str, ...] = ()
    """What has to be said about the data that was used."""

    def __post_init__(self) -> None:
        if not self.phases and (self.best is None or self.last is None or "loss" not in self.best.figures):
            raise UserError("an outcome has the figures of the best and the last checkpoint, or phases")
        if not all(self.phases):
            raise UserError("a phase has no figures")

    def figure(self, measure: Measure) -> float:
        """The figure that a run is judged by: of its best machine, or after the last phase on average over tasks."""
        if self.best is None:
            return fmean(self.phases[-1].values())
        if measure.name not in self.best.figures:
            raise UserError(f"a result has no {measure.name}")
        return self.best.figures[measure.name]

    @property
    def badness(self) -> float:
        """How far it is from perfect: less is better, among runs of one experiment."""
        return 1 - fmean(self.phases[-1].values()) if self.best is None else self.best.figures["loss"]


@dataclass(frozen=True)
class Failure:
    """Why a run failed: what failure.json has."""

    reason: str
    step: int | None
    diverged: bool


def solves(task: Task, outcome: Outcome | None, failure: Failure | None) -> bool | None:
    """Whether a run learned its task: no if it diverged, but a process that died tells nothing.

    None where it can't be told: continual learning is not judged task by task, and some tasks have no perfect answer.
    """
    if not task.solvable:
        return None
    if outcome is None:
        return False if failure is not None and failure.diverged else None
    return None if outcome.phases else outcome.solved_step is not None


@dataclass(frozen=True)
class Result:
    """What a machine did on sequences of a task. Prints as sentences, shows as a table in a notebook."""

    task: Task
    figures: Figures
    settings: Mapping[str, object]
    """What it was tested with: the checkpoint, the sequences, the tape."""

    def __getitem__(self, name: str) -> float:
        return self.figures[name]

    def __str__(self) -> str:
        ranges = ", ".join(f"{name} {shown_range(value)}" for name, value in ranges_of(self.task).items())
        where = [
            self.task.name,
            ranges,
            f"{self.settings['slots']} slots",
            f"{self.figures['sequences']:,.0f} sequences",
        ]
        notes = "".join(f"\n  Note: {note}." for note in self.task.notes)
        return f"{', '.join(filter(None, where))}:\n  {self.task.sentence(self.figures)}{notes}"

    def _repr_html_(self) -> str:
        rows = [(m.words, m.text(self.figures[m.name])) for m in self.task.measures if m.name in self.figures]
        if (parts := self.task.breakdown) is not None:
            found = {part: name for part, name in parts.names.items() if name in self.figures}
            rows += [(f"{parts.words}: {part}", parts.measure.text(self.figures[name])) for part, name in found.items()]
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in rows)
        first = html.escape(str(self).partition("\n")[0])
        return f"<table><caption>{first}</caption><tbody>{cells}</tbody></table>"


def ranges_of(task: Task) -> dict[str, int | tuple[int, int]]:
    """A task's ranges as they are; of a task made of several, under the name of each."""
    singles = task.singles()
    prefixes = [f"{single.name}." for single in singles] if len(singles) > 1 else [""]
    return {
        f"{prefix}{field}": getattr(single, field)
        for prefix, single in zip(prefixes, singles, strict=True)
        for field in single.ranges
    }


def shown_range(value: int | tuple[int, int]) -> str:
    """A range in words."""
    if isinstance(value, int):
        return str(value)
    return str(value[0]) if value[0] == value[1] else f"{value[0]}–{value[1]}"
