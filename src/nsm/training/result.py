"""The outcome of a run, and the result of a test: typed, and readable."""

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
    """How a run ended; the content of result.json."""

    steps: int
    seconds: float
    solved_step: int | None
    solved_seconds: float | None
    validation_loss: float | None
    """The lowest one."""
    best_step: int | None
    parameters: int
    backend: str
    best: Score | None = None
    """The test of the checkpoint with the lowest validation loss; None in continual learning."""
    last: Score | None = None
    phases: tuple[dict[str, float], ...] = ()
    """Continual learning: bit accuracy on every task after each phase."""
    notes: tuple[str, ...] = ()
    """Remarks on the data that was used."""

    def __post_init__(self) -> None:
        if not self.phases and (self.best is None or self.last is None or "loss" not in self.best.figures):
            raise UserError("an outcome needs the figures of the best and the last checkpoint, or phases")
        if not all(self.phases):
            raise UserError("a phase has no figures")

    def figure(self, measure: Measure) -> float:
        """The figure by which a run is judged: of its best machine, or the mean over tasks after the last phase."""
        if self.best is None:
            return fmean(self.phases[-1].values())
        if measure.name not in self.best.figures:
            raise UserError(f"a result has no {measure.name}")
        return self.best.figures[measure.name]

    @property
    def badness(self) -> float:
        """Distance from perfect, to compare runs of one experiment: less is better."""
        return 1 - fmean(self.phases[-1].values()) if self.best is None else self.best.figures["loss"]


@dataclass(frozen=True)
class Failure:
    """Why a run failed; the content of failure.json."""

    reason: str
    step: int | None
    diverged: bool


def solves(task: Task, outcome: Outcome | None, failure: Failure | None) -> bool | None:
    """Whether a run solved its task; False if it diverged.

    None if unknown: its process died, continual learning is not judged task by task, or no answer to the task is
    perfect.
    """
    if not task.solvable:
        return None
    if outcome is None:
        return False if failure is not None and failure.diverged else None
    return None if outcome.phases else outcome.solved_step is not None


@dataclass(frozen=True)
class Result:
    """The result of a test. Prints as sentences; a notebook shows a table."""

    task: Task
    figures: Figures
    settings: Mapping[str, object]
    """Settings of the test: checkpoint, sequences, tape."""

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
    """A task's ranges; for a task made of several, prefixed by their names."""
    singles = task.singles()
    prefixes = [f"{single.name}." for single in singles] if len(singles) > 1 else [""]
    return {
        f"{prefix}{field}": getattr(single, field)
        for prefix, single in zip(prefixes, singles, strict=True)
        for field in single.ranges
    }


def shown_range(value: int | tuple[int, int]) -> str:
    if isinstance(value, int):
        return str(value)
    return str(value[0]) if value[0] == value[1] else f"{value[0]}–{value[1]}"
