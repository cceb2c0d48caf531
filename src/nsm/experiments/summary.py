"""From the results of many seeds to a line of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import NamedTuple

from nsm.checks import UserError
from nsm.experiments import results
from nsm.experiments.paper import Cell
from nsm.training.result import Outcome


class Spread(NamedTuple):
    """A figure over seeds."""

    best: float
    """Of the seed that is best by the figure the cell is judged by."""
    mean: float
    sd: float | None
    interval: float | None
    """Half of the 95 % confidence interval of the mean, where every seed knows its own."""


@dataclass(frozen=True)
class Summary:
    """What the seeds of a cell came to. Figures are those of each seed's best machine on the test sequences."""

    cell: Cell
    seeds: int
    failed: int
    figures: list[float]
    """The figure of every seed that finished, by which the cell is judged."""
    solved: float | None
    """Share of seeds whose validation loss fell below the threshold; those that diverged are among the others."""
    solved_steps: float | None
    """Median iteration at which those seeds got there."""
    solved_seconds: float | None
    extra: dict[str, float]
    """The least of the seeds' l1_errors and the mean of their optimum_bits, where they belong beside the figure."""
    phases: list[dict[str, float]]
    """Continual learning: the mean accuracy on every task after each phase."""
    breakdown: dict[str, Spread]
    """The task's parts, by what they are."""
    notes: list[str]
    """What has to be said about the data that was used."""

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

    def document(self) -> dict[str, object]:
        """What a program reads."""
        fields = {name: value for name, value in vars(self).items() if name != "cell"}
        spread = {"best": self.best, "mean": self.mean, "sd": self.sd, "median": self.median}
        breakdown = {part: found._asdict() for part, found in self.breakdown.items()}
        cell = {"row": self.cell.row, "model": self.cell.model, "measure": self.cell.measure.name}
        return {**cell, "published": self.cell.published, **spread, **fields, "breakdown": breakdown}


def summarise(cell: Cell, paths: list[Path]) -> Summary:
    """Sum up the finished runs of a cell, from their directories or from the files that are published of them."""
    found = {path: results.read(path) for path in paths if path.suffix or (path / "config.json").exists()}
    records = list(found.values())
    outcomes = [record.outcome for record in records if record.outcome is not None]
    for path, record in found.items():
        ours, theirs = cell.experiment.task.name, record.experiment.task.name
        if ours != theirs:
            raise UserError(f"{path} is a result of {theirs}, and lies among those of {ours}")
        try:
            if record.outcome is not None:
                record.outcome.figure(cell.measure)
        except UserError as error:
            raise UserError(f"{path} is damaged: {error}") from None
    verdicts = [record.solved for record in records if record.solved is not None]
    solved = [outcome for outcome in outcomes if outcome.solved_step is not None]
    # Of a run that was killed after a checkpoint and before its clock was written, it is not known how long it took.
    seconds = [outcome.solved_seconds for outcome in solved if outcome.solved_seconds is not None]
    told = verdicts and all(record.solved is not None for record in records if record.outcome is not None)
    return Summary(
        cell,
        len(outcomes),
        sum(record.failure is not None for record in records),
        [outcome.figure(cell.measure) for outcome in outcomes],
        fmean(verdicts) if told else None,
        median(outcome.solved_step for outcome in solved if outcome.solved_step is not None) if solved else None,
        median(seconds) if seconds else None,
        _extra(outcomes),
        _phases([outcome.phases for outcome in outcomes if outcome.phases]),
        _breakdown(cell, outcomes),
        list(dict.fromkeys(note for outcome in outcomes for note in outcome.notes)),
    )


def _extra(outcomes: list[Outcome]) -> dict[str, float]:
    tests = [outcome.best.figures for outcome in outcomes if outcome.best is not None]
    found = {}
    if tests and "l1_errors" in tests[0]:
        found["l1_errors"] = min(test["l1_errors"] for test in tests)
    if tests and "optimum_bits" in tests[0]:
        found["optimum_bits"] = fmean(test["optimum_bits"] for test in tests)
    return found


def _phases(seeds: list[tuple[dict[str, float], ...]]) -> list[dict[str, float]]:
    """The accuracies of several seeds, averaged phase by phase and task by task."""
    return [{task: fmean(phase[task] for phase in phases) for task in phases[0]} for phases in zip(*seeds, strict=True)]


def _breakdown(cell: Cell, outcomes: list[Outcome]) -> dict[str, Spread]:
    """The task's parts over all seeds; seeds are tested on episodes of their own, so that intervals shrink."""
    parts = cell.experiment.task.breakdown
    tests = [outcome.best.figures for outcome in outcomes if outcome.best is not None]
    if parts is None or not tests:
        return {}
    best = tests[[outcome.figure(cell.measure) for outcome in outcomes].index(_best(cell, outcomes))]
    found = {}
    for part, name in parts.names.items():
        if all(name in test for test in tests):
            values = [test[name] for test in tests]
            intervals = [test[f"{name} ±"] for test in tests if f"{name} ±" in test]
            half = math.hypot(*intervals) / len(tests) if len(intervals) == len(tests) else None
            found[part] = Spread(best[name], fmean(values), stdev(values) if len(values) > 1 else None, half)
    return found


def _best(cell: Cell, outcomes: list[Outcome]) -> float:
    return cell.measure.best([outcome.figure(cell.measure) for outcome in outcomes])


def number(value: float | None, digits: int = 2) -> str:
    """A figure for a table; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.{digits}f}"
