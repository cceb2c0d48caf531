"""The tables of `nsm reproduce`: results beside the published numbers, and the progress of a campaign."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from rich.live import Live
from rich.table import Table

from nsm.bar import figures
from nsm.checks import UserError
from nsm.experiments import campaign, cost
from nsm.experiments.engines import Job, Status
from nsm.experiments.params import Count
from nsm.experiments.summary import Summary, columns, number
from nsm.screen import Pace, about, console, many, plain_table, say
from nsm.training.result import Outcome
from nsm.training.run import RunDirectory

WIDE = 1_000
"""Characters; wider than any table."""
DISPENSABLE = ("seconds", "optimum", "best Σ|p−y|", "median", "iterations")
"""Columns that are left out on a narrow terminal, in this order."""


def parameters(rows: list[Count]) -> Table:
    """Published parameter counts beside ours."""
    table = plain_table("Parameters", ("row", "model"), ("published", "ours", ""))
    table.add_column("note")
    for row in rows:
        verdict = "exact" if row.published == row.ours else "differs"
        table.add_row(row.row, row.model, f"{row.published:,}", f"{row.ours:,}", verdict, row.note)
    return table


def results(name: str, preset: str, summaries: list[Summary]) -> Iterator[Table]:
    """The table of an experiment, and further tables for some kinds of tasks."""
    yield _table(name, preset, summaries)
    if any(summary.phases for summary in summaries):
        yield _phases(summaries)
    for row in dict.fromkeys(summary.cell.row for summary in summaries if len(summary.breakdown) > 1):
        yield _breakdown(row, [s for s in summaries if s.cell.row == row and len(s.breakdown) > 1])


def _table(name: str, preset: str, summaries: list[Summary]) -> Table:
    rows = columns(summaries)
    measures = dict.fromkeys(s.cell.measure.words for s in summaries)
    title = f"{name}, {preset} settings: {', or '.join(measures)}"
    shown = list(rows[0])
    left_out: list[str] = []
    while True:
        table = plain_table(title, ("row", "model"), tuple(shown))
        for s, row in zip(summaries, rows, strict=True):
            table.add_row(s.cell.row, s.cell.model, *(row[column] for column in shown))
        dispensable = [column for column in DISPENSABLE if column in shown]
        needed = console().measure(table, options=console().options.update_width(WIDE)).minimum
        if not dispensable or needed <= console().width:
            break
        shown.remove(dispensable[0])
        left_out.append(dispensable[0])
    told = any(s.solved_steps is not None for s in summaries)
    captions = ["iterations, seconds: median until solved"] if told else []
    if left_out:
        captions.append(f"not shown on this narrow terminal: {', '.join(left_out)}")
    table.caption = "; ".join(captions)
    return table


def _phases(summaries: list[Summary]) -> Table:
    """Continual learning: the accuracy on every task after each phase."""
    tasks = list(dict.fromkeys(task for s in summaries for phase in s.phases for task in phase))
    table = plain_table("accuracy on every task after each phase", ("row", "model", "after"), tuple(tasks))
    for s in summaries:
        for after, phase in zip(tasks, s.phases, strict=False):
            table.add_row(s.cell.row, s.cell.model, after, *(number(phase[task], 3) for task in tasks))
    return table


def _breakdown(row: str, shown: list[Summary]) -> Table:
    """The parts of a task: the mean over seeds with its 95 % interval or deviation, and the published value."""
    parts = list(dict.fromkeys(part for s in shown for part in s.breakdown))
    words = [s.cell.experiment.task.breakdown.words for s in shown if s.cell.experiment.task.breakdown]
    table = plain_table(f"{row}: {words[0]}", ("",), tuple(s.cell.model for s in shown))
    for part in parts:
        table.add_row(part, *(_spread(s, part) for s in shown))
    return table


def _spread(summary: Summary, part: str) -> str:
    breakdown, found = summary.cell.experiment.task.breakdown, summary.breakdown.get(part)
    if breakdown is None or found is None:
        return "–"
    text = breakdown.measure.text
    cell = summary.cell
    published = {cell.measure.name: cell.published, **dict(cell.beside)}.get(breakdown.names[part])
    words = text(found.mean) + (f" ± {text(found.interval or found.sd)}" if found.interval or found.sd else "")
    return words + (f", paper {text(published)}" if published is not None else "")


class Display:
    """Progress of a campaign, on standard error: a live table on a terminal, elsewhere a line per finished run."""

    def __init__(self, name: str, planned: list[Job]) -> None:
        self.name, self.planned = name, planned
        self.said: set[Job] = set()
        self.paces: dict[Job, Pace] = {}
        self.costs = {job: cost.seconds(job.experiment) for job in unfinished(planned)}
        self.whole = Pace(sum(self.costs.values()))
        self.live = Live(console=console(stderr=True), transient=True) if sys.stderr.isatty() else None

    def __enter__(self) -> Display:
        self.whole.begin(self._done({}))
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, known: dict[Job, Status | None]) -> None:
        if self.live:
            self.live.update(self._table(known), refresh=True)
            return
        for job, status in known.items():
            if status is not None and job not in self.said:
                self.said.add(job)
                words = f"{len(self.said)}/{len(self.planned)} runs{self._left(known)}; {job.name} {status.word}"
                say(f"{self.name}: {words}" + (f": {status.reason}" if status.reason else ""))

    def _done(self, known: dict[Job, Status | None]) -> float:
        """The part of the expected cost that has been spent."""
        spent = 0.0
        for job, expected in self.costs.items():
            ended, iterations = known.get(job) is not None, job.experiment.schedule.iterations
            spent += expected * (1 if ended else campaign.progress(job)[0] / iterations)
        return spent

    def _left(self, known: dict[Job, Status | None]) -> str:
        """The time left for all runs: their expected cost, at the pace so far."""
        done = self._done(known)
        rate = self.whole.rate(done)
        return "" if rate is None or done >= self.whole.total else f", {about((self.whole.total - done) / rate)} left"

    def _table(self, known: dict[Job, Status | None]) -> Table:
        count = {word: 0 for word in ("done", "failed", "interrupted")}
        for status in known.values():
            if status is not None:
                count[status.word] += 1
        done = ", ".join(f"{runs} {word}" for word, runs in count.items() if runs) or "none done"
        title = f"{self.name}: {many(len(self.planned), 'run')}, {done}{self._left(known)}"
        table = plain_table(title, ("running",), ("iterations", "per second", "left"))
        table.add_column("now")
        for job, status in known.items():
            if status is None:
                (step, line), total = campaign.progress(job), job.experiment.schedule.iterations
                rate, left = self.paces.setdefault(job, Pace(total)).at(step)
                table.add_row(job.name, f"{step:,} of {total:,}", rate, left, figures(job.experiment.task, line))
        return table


def unfinished(planned: list[Job]) -> list[Job]:
    """The jobs without a valid result; the campaign reports what is wrong with a damaged one."""

    def outcome(job: Job) -> Outcome | None:
        with suppress(UserError):
            return RunDirectory(job.directory).outcome()
        return None

    return [job for job in planned if outcome(job) is None]


def expected(planned: list[Job], at_a_time: int) -> str:
    """The number of runs, how many are done, and how long the rest will take."""
    left = unfinished(planned)
    done = len(planned) - len(left)
    words = many(len(planned), "run") + (f", {done} done" if done else "")
    # Runs that several experiments share are trained once.
    costs = {job.experiment: cost.seconds(job.experiment) for job in left}
    if not costs:
        return words
    seconds = max(*costs.values(), sum(costs.values()) / at_a_time)
    return f"{words}, {about(seconds)} to go (rough estimate)"
