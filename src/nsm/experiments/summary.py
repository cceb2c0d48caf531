"""The seeds of a cell, summarised in a row of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, stdev
from typing import NamedTuple

from nsm.checks import UserError
from nsm.experiments import results
from nsm.experiments.paper import Cell
from nsm.experiments.results import Record
from nsm.tasks import Figures, Measure
from nsm.training.result import Outcome
from nsm.training.run import Line


class Spread(NamedTuple):
    """A figure over seeds."""

    best: float
    """Of the seed that is best by the cell's own figure."""
    mean: float
    sd: float | None
    interval: float | None
    """Half of the 95 % confidence interval of the mean, if every seed has its own interval."""


@dataclass(frozen=True)
class Summary:
    """All seeds of a cell. Figures are those of each seed's best machine on the test sequences."""

    cell: Cell
    records: list[Record]

    @cached_property
    def finished(self) -> list[Outcome]:
        """The outcomes of the seeds that finished."""
        return [record.outcome for record in self.records if record.outcome is not None]

    @property
    def seeds(self) -> int:
        return len(self.finished)

    @property
    def failed(self) -> int:
        return sum(record.failure is not None for record in self.records)

    @property
    def curves(self) -> list[list[Line]]:
        """The learning curves of the seeds that finished; if none has, of those under way."""
        return [r.curve for r in self.records if r.curve and (r.outcome is not None or not self.finished)]

    @cached_property
    def figures(self) -> list[float]:
        """The cell's own figure, of every seed that finished."""
        return [outcome.figure(self.cell.measure) for outcome in self.finished]

    @cached_property
    def tests(self) -> list[Figures]:
        """All figures of these seeds; empty in continual learning."""
        return [outcome.best.figures for outcome in self.finished if outcome.best is not None]

    def values(self, name: str) -> list[float]:
        """One figure of these seeds."""
        return [test[name] for test in self.tests if name in test]

    @property
    def beside(self) -> dict[Measure, list[float]]:
        """Further figures of the task: Σ|p−y|, the best possible cross-entropy."""
        found = {m: self.values(m.name) for m in self.cell.experiment.task.measures if m.column}
        return {measure: values for measure, values in found.items() if values}

    @property
    def best(self) -> float | None:
        return self.cell.measure.best(self.figures) if self.figures else None

    @property
    def mean(self) -> float | None:
        return fmean(self.figures) if self.figures else None

    @property
    def median(self) -> float | None:
        return median(self.figures) if self.figures else None

    @property
    def sd(self) -> float | None:
        return stdev(self.figures) if len(self.figures) > 1 else None

    @property
    def solving(self) -> list[bool]:
        """For every seed that is known to: whether it solved the task."""
        return [record.solved for record in self.records if record.solved is not None]

    @property
    def solved(self) -> float | None:
        """The share of seeds that solved the task."""
        told = all(record.solved is not None for record in self.records if record.outcome is not None)
        return fmean(self.solving) if self.solving and told else None

    @property
    def solved_steps(self) -> float | None:
        """Median iteration at which these seeds solved it."""
        return _median(outcome.solved_step for outcome in self.finished)

    @property
    def solved_seconds(self) -> float | None:
        """Median time until then; unknown for a run that was killed between a checkpoint and its clock."""
        return _median(outcome.solved_seconds for outcome in self.finished)

    @property
    def phases(self) -> list[dict[str, float]]:
        """Continual learning: the mean accuracy on every task after each phase."""
        seeds = [outcome.phases for outcome in self.finished if outcome.phases]
        return [{task: fmean(p[task] for p in phases) for task in phases[0]} for phases in zip(*seeds, strict=True)]

    @property
    def notes(self) -> list[str]:
        """Remarks on the data that was used."""
        return list(dict.fromkeys(note for outcome in self.finished for note in outcome.notes))

    @cached_property
    def breakdown(self) -> dict[str, Spread]:
        """The parts of the task; every seed has its own test episodes, so more seeds narrow the intervals."""
        parts = self.cell.experiment.task.breakdown
        if parts is None or not self.tests:
            return {}
        names = {part: name for part, name in parts.names.items() if all(name in test for test in self.tests)}
        found = {part: self._spread(self.values(name), self.values(f"{name} ±")) for part, name in names.items()}
        if parts.aside and found.keys() >= set(parts.names):
            others = [name for part, name in names.items() if part not in parts.aside]
            means = [fmean(test[name] for name in others) for test in self.tests]
            found[f"mean without {', '.join(parts.aside)}"] = self._spread(means, [])
        return found

    def _spread(self, values: list[float], halves: list[float]) -> Spread:
        assert self.best is not None
        half = math.hypot(*halves) / len(values) if len(halves) == len(values) else None
        return Spread(values[self.figures.index(self.best)], *mean_and_deviation(values), half)

    @property
    def count(self) -> str:
        """How many seeds finished, failed, and are under way."""
        under_way = len(self.records) - self.seeds - self.failed
        others = [f"{n} {word}" for n, word in ((self.failed, "failed"), (under_way, "under way")) if n]
        return f"{self.seeds}" + (f" ({', '.join(others)})" if others else "")

    def document(self) -> dict[str, object]:
        """The summary as JSON data."""
        names = ["best", "mean", "sd", "median", "seeds", "failed", "figures", "solved", "solved_steps"]
        names += ["solved_seconds", "phases", "notes"]
        cell = {"row": self.cell.row, "model": self.cell.model, "measure": self.cell.measure.name}
        return {
            **cell,
            "published": self.cell.published,
            **{name: getattr(self, name) for name in names},
            "beside": {m.name: {"best": m.best(v), "mean": fmean(v)} for m, v in self.beside.items()},
            "breakdown": {part: found._asdict() for part, found in self.breakdown.items()},
        }


def summarise(cell: Cell, paths: list[Path]) -> Summary:
    """The seeds of a cell, from run directories or published files."""
    found = {path: results.read(path) for path in paths if path.suffix or (path / "config.json").exists()}
    for path, record in found.items():
        ours, theirs = cell.experiment.task.name, record.experiment.task.name
        if ours != theirs:
            raise UserError(f"{path} is a result of {theirs} among results of {ours}: move it away")
        try:
            if record.outcome is not None:
                record.outcome.figure(cell.measure)
        except UserError as error:
            raise UserError(f"{path} is damaged: {error}") from None
    return Summary(cell, list(found.values()))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Over seeds; a single one has no deviation."""
    return fmean(values), stdev(values) if len(values) > 1 else None


def columns(summaries: Sequence[Summary]) -> list[dict[str, str]]:
    """The rows of a table by column: the columns of every experiment, and those of its tasks' measures."""
    beside = list(dict.fromkeys(measure for summary in summaries for measure in summary.beside))
    published = any(summary.cell.published is not None for summary in summaries)
    return [
        {
            **({"paper": s.cell.measure.text(s.cell.published)} if published else {}),
            "best": s.cell.measure.text(s.best),
            "mean ± sd": spread(s.figures, s.cell.measure),
            "median": s.cell.measure.text(s.median),
            **{m.column if m.better == "neither" else f"best {m.column}": _beside(s, m) for m in beside},
            "solved": "–" if s.solved is None else f"{s.solved:.0%}",
            "iterations": number(s.solved_steps, 0),
            "seconds": number(s.solved_seconds, 0),
            "seeds": s.count,
        }
        for s in summaries
    ]


def _beside(summary: Summary, measure: Measure) -> str:
    """A further figure: the best seed, or the mean where no value is better; and the published number."""
    values = summary.beside.get(measure)
    if values is None:
        return "–"
    published = dict(summary.cell.beside).get(measure.name)
    words = measure.text(fmean(values) if measure.better == "neither" else measure.best(values))
    return words + (f"; mean {measure.text(fmean(values))}, paper {measure.text(published)}" if published else "")


def spread(values: Sequence[float], measure: Measure, digits: int = 2) -> str:
    """Mean ± standard deviation over seeds; a dash without seeds."""
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    return measure.text(mean, digits) + (f" ± {measure.text(deviation, digits)}" if deviation is not None else "")


def number(value: float | None, digits: int = 2) -> str:
    """A number for a table; a dash if it is missing."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.{digits}f}"
