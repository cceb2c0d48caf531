"""From the results of many seeds to a line of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from nsm.checks import UserError
from nsm.experiments.paper import Cell
from nsm.experiments.results import outcome, solves


class TaskErrors(NamedTuple):
    """Errors on one task of bAbI: words of the best seed, mean and deviation over seeds; questions."""

    best: float
    mean: float
    sd: float | None
    questions: float


@dataclass(frozen=True)
class Summary:
    """What the seeds of a cell came to. Figures are those of each seed's best machine on the test sequences."""

    row: str
    model: str
    metric: str
    published: float | None
    seeds: int
    failed: int
    best: float | None
    mean: float | None
    sd: float | None
    median: float | None
    solved: float | None
    """Share of seeds whose held-out loss fell below the threshold; those that diverged are among the others."""
    solved_steps: float | None
    """Median iteration at which those seeds got there."""
    solved_seconds: float | None
    extra: dict[str, float]
    """The least of the seeds' l1_errors and the mean of their optimum_bits, where they belong beside the metric."""
    phases: list[dict[str, float]]
    """Continual learning: the mean accuracy on every task after each phase."""
    presentations: dict[str, tuple[float, float, float | None]]
    """Few-shot learning, by presentation of a class: mean accuracy, half its 95 % interval, what was published."""
    by_task: dict[str, TaskErrors]
    """Question answering: errors on every task."""
    failed_tasks: list[int]
    """Question answering: how many tasks have an error above 5 %, seed by seed, the best seed first."""
    notes: list[str]
    """What has to be said about the data that was used."""
    figures: list[float]
    """The figure of every seed that finished."""


def summarise(cell: Cell, places: list[Path]) -> Summary:
    """Sum up the finished runs of a cell, from their directories or from the files that are kept of them."""
    outcomes = [_outcome(cell, place) for place in places]
    results = [result for result, _ in outcomes if result is not None]
    failed = sum(failure is not None for _, failure in outcomes)
    figures, extra = _figures(cell, results)
    ascending = "accuracy" not in cell.metric
    verdicts = [verdict for found in outcomes if (verdict := solves(*found)) is not None]
    solved = [result for result in results if result["solved_step"] is not None]
    # Of a run that was killed after a checkpoint and before its clock was written, it is not known how long it took.
    seconds = [result["solved_seconds"] for result in solved if result["solved_seconds"] is not None]
    return Summary(
        cell.row,
        cell.model,
        cell.metric,
        cell.published,
        len(results),
        failed,
        (min if ascending else max)(figures) if figures else None,
        fmean(figures) if figures else None,
        stdev(figures) if len(figures) > 1 else None,
        median(figures) if figures else None,
        fmean(verdicts) if verdicts and all(solves(result, None) is not None for result in results) else None,
        median(result["solved_step"] for result in solved) if solved else None,
        median(seconds) if seconds else None,
        extra,
        _phases([result["phases"] for result in results]) if cell.metric == "bit_accuracy" else [],
        _presentations(cell, [result["best"] for result in results]) if cell.metric.startswith("accuracy/") else {},
        *_by_task(sorted((result.get("best", {}) for result in results), key=lambda test: float(test.get("error", 0)))),
        list(dict.fromkeys(note for result in results for note in result.get("notes", ()))),
        figures,
    )


def _outcome(cell: Cell, place: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What a seed came to, which must be one of this cell."""
    result, failure = outcome(place)
    if result is not None and result["task"] != cell.config.task:
        raise UserError(f"{place} is a result of {result['task']}, and lies among those of {cell.config.task}")
    figures = "phases" if cell.metric == "bit_accuracy" else "best"
    if result is not None and (figures not in result or (figures == "best" and cell.metric not in result["best"])):
        raise UserError(f"{place} is damaged: it has no {cell.metric}")
    return result, failure


def _figures(cell: Cell, results: list[dict[str, Any]]) -> tuple[list[float], dict[str, float]]:
    if not results:
        return [], {}
    if cell.metric == "bit_accuracy":
        # After the last phase, on average over all tasks.
        return [fmean(result["phases"][-1].values()) for result in results], {}
    tests = [result["best"] for result in results]
    extra = {"l1_errors": min(test["l1_errors"] for test in tests)} if "l1_errors" in tests[0] else {}
    if "optimum_bits" in tests[0]:
        extra["optimum_bits"] = fmean(test["optimum_bits"] for test in tests)
    return [test[cell.metric] for test in tests], extra


def _phases(seeds: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """The accuracies of several seeds, averaged phase by phase and task by task."""
    return [{task: fmean(phase[task] for phase in phases) for task in phases[0]} for phases in zip(*seeds, strict=True)]


def _presentations(cell: Cell, tests: list[dict[str, float]]) -> dict[str, tuple[float, float, float | None]]:
    """Seeds are tested on episodes of their own, so that their intervals shrink when they are averaged."""
    published = dict(cell.beside) | {cell.metric: cell.published}
    found = {}
    for name in [name for name in (tests[0] if tests else {}) if f"{name} ±" in tests[0]]:
        interval = math.hypot(*(test[f"{name} ±"] for test in tests)) / len(tests)
        found[name.removeprefix("accuracy/")] = (fmean(test[name] for test in tests), interval, published.get(name))
    return found


def _by_task(tests: list[dict[str, float]]) -> tuple[dict[str, TaskErrors], list[int]]:
    """Question answering, from the tests of all seeds, the best first: errors by task, numbers of failed tasks."""
    if not tests or "failed_tasks" not in tests[0]:
        return {}, []
    found = {}
    for name in [name for name in tests[0] if name.startswith("word_error/")]:
        words = [test[name] for test in tests]
        questions = [test[name.replace("word", "question")] for test in tests]
        deviation = stdev(words) if len(words) > 1 else None
        found[name.removeprefix("word_error/")] = TaskErrors(words[0], fmean(words), deviation, fmean(questions))
    return found, [int(test["failed_tasks"]) for test in tests]


def number(value: float | None, digits: int = 2) -> str:
    """A figure for a table; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.{digits}f}"
