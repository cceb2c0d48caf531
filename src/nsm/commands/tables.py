"""The tables of `nsm reproduce`: results beside the published numbers, and meanwhile the runs under way."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.table import Table

from nsm.bar import figures
from nsm.checks import printable
from nsm.experiments import campaign
from nsm.experiments.engines.engine import Job, Status
from nsm.experiments.params import Count
from nsm.experiments.summary import Summary, columns, number
from nsm.screen import Pace, console

WIDE = 1_000
"""Columns of characters by which a table is measured: wider than any is."""
DISPENSABLE = ("seconds", "optimum", "best Σ|p−y|", "median", "iterations")
"""The columns that a terminal too narrow for all goes without, the first of them first."""


def parameters(rows: list[Count]) -> Table:
    """Published numbers of parameters, and ours."""
    table = _plain_table("Parameters", ("row", "model"), ("published", "ours", ""))
    table.add_column("note")
    for row in rows:
        verdict = "exact" if row.published == row.ours else "differs"
        table.add_row(row.row, row.model, f"{row.published:,}", f"{row.ours:,}", verdict, row.note)
    return table


def results(name: str, preset: str, summaries: list[Summary]) -> Iterator[Table]:
    """The table of an experiment, and those that only some kinds of tasks have."""
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
        table = _plain_table(title, ("row", "model"), tuple(shown))
        for s, row in zip(summaries, rows, strict=True):
            table.add_row(s.cell.row, s.cell.model, *(row[column] for column in shown))
        dispensable = [column for column in DISPENSABLE if column in shown]
        needed = console().measure(table, options=console().options.update_width(WIDE)).minimum
        if not dispensable or needed <= console().width:
            break
        shown.remove(dispensable[0])
        left_out.append(dispensable[0])
    told = any(s.solved_steps is not None for s in summaries)
    captions = ["iterations, seconds: until solved, medians"] if told else []
    if left_out:
        captions.append(f"on a wider terminal also {', '.join(left_out)}")
    table.caption = "; ".join(captions)
    return table


def _plain_table(title: str, names: tuple[str, ...], figures: tuple[str, ...]) -> Table:
    """A table of a few names and many figures, without frames: it fits where it can."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    for header in names:
        table.add_column(header, overflow="fold")
    for header in figures:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _phases(summaries: list[Summary]) -> Table:
    """Continual learning: what is known of every task after each."""
    tasks = list(dict.fromkeys(task for s in summaries for phase in s.phases for task in phase))
    table = _plain_table("accuracy on every task after each", ("model", "after"), tuple(tasks))
    for s in summaries:
        for after, phase in zip(tasks, s.phases, strict=False):
            table.add_row(s.cell.model, after, *(number(phase[task], 3) for task in tasks))
    return table


def _breakdown(row: str, shown: list[Summary]) -> Table:
    """The parts of a task: the mean over seeds with its 95 % interval or deviation, and what the paper has."""
    parts = list(dict.fromkeys(part for s in shown for part in s.breakdown))
    words = [s.cell.experiment.task.breakdown.words for s in shown if s.cell.experiment.task.breakdown]
    table = _plain_table(f"{row}: {words[0]}", ("",), tuple(s.cell.model for s in shown))
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
    """Progress of a campaign: one live table on a terminal, a line per finished run elsewhere; on standard error."""

    def __init__(self, name: str, planned: list[Job]) -> None:
        self.name, self.planned = name, planned
        self.said: set[Job] = set()
        self.paces: dict[Job, Pace] = {}
        self.live = Live(console=console(stderr=True), transient=True) if sys.stderr.isatty() else None

    def __enter__(self) -> Display:
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
                words = f"{len(self.said)}/{len(self.planned)} runs, {job.name} {status.word} {status.reason}"
                print(printable(f"{self.name}: {words.rstrip()}"), file=sys.stderr, flush=True)

    def _table(self, known: dict[Job, Status | None]) -> Table:
        count = {word: 0 for word in ("done", "failed", "interrupted")}
        for status in known.values():
            if status is not None:
                count[status.word] += 1
        done = ", ".join(f"{runs} {word}" for word, runs in count.items() if runs) or "none done"
        title = f"{self.name}: {len(self.planned)} runs, {done}"
        table = _plain_table(title, ("under way",), ("iterations", "per second", "left"))
        table.add_column("now")
        for job, status in known.items():
            if status is None:
                (step, line), total = campaign.progress(job), job.experiment.schedule.iterations
                rate, left = self.paces.setdefault(job, Pace(total)).at(step)
                table.add_row(job.name, f"{step:,} of {total:,}", rate, left, figures(job.experiment.task, line))
        return table
