"""The tables of `nsm reproduce`: results beside the published numbers, and meanwhile the runs under way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.table import Table

from nsm.checks import printable
from nsm.commands.terminal import Pace, console, figures
from nsm.experiments import campaign
from nsm.experiments.engines.engine import Job, Outcome
from nsm.experiments.paper import PUBLISHED_BABI_FAILED, PUBLISHED_BABI_MEAN, PUBLISHED_BABI_TASKS
from nsm.experiments.params import Count
from nsm.experiments.summary import Summary, TaskErrors, number

ESSENTIAL = ("paper", "best", "mean ± sd", "solved", "iterations", "seeds")
"""The columns of a terminal that is too narrow for all."""

FIGURES = {
    "continual": ("accuracy after the last task", 3),
    "fewshot": ("accuracy at the second presentation", 3),
    "babi": ("share of wrong answer words, mean over the tasks", 3),
    "babi-tasks": ("share of wrong answer words", 3),
}
"""What an experiment's table shows, if not wrong bits, and to how many digits."""


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
    if any(summary.presentations for summary in summaries):
        yield _presentations(summaries)
    if any(len(summary.by_task) > 1 for summary in summaries):
        yield _by_task(summaries)


def _table(name: str, preset: str, summaries: list[Summary]) -> Table:
    figure, digits = FIGURES.get(name, ("wrong bits per sequence", 2))
    rows = []
    for s in summaries:
        rows.append(
            {
                "paper": number(s.published, digits),
                "best": number(s.best, digits),
                "mean ± sd": number(s.mean, digits) + (f" ± {number(s.sd, digits)}" if s.sd is not None else ""),
                "median": number(s.median, digits),
                "Σ|p−y|": number(s.extra.get("l1_errors")),
                "solved": "–" if s.solved is None else f"{s.solved:.0%}",
                "iterations": number(s.solved_steps, 0),
                "seconds": number(s.solved_seconds, 0),
                "seeds": f"{s.seeds}" + (f" ({s.failed} failed)" if s.failed else ""),
            }
        )
    columns = ESSENTIAL if console().width < 110 else tuple(rows[0])
    table = _plain_table(f"{name}, {preset} settings: {figure}", ("row", "model"), columns)
    for s, row in zip(summaries, rows, strict=True):
        table.add_row(s.row, s.model, *(row[column] for column in columns))
    captions = []
    if any(s.solved_steps is not None for s in summaries):
        captions.append("iterations, seconds: until solved, medians")
    if left_out := [column for column in rows[0] if column not in columns]:
        captions.append(f"on a wider terminal also {', '.join(left_out)}")
    optima = {s.row: s.extra["optimum_bits"] for s in summaries if "optimum_bits" in s.extra}
    captions += [f"{row}: bits of cross-entropy, best possible {bits:.2f}" for row, bits in optima.items()]
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
            table.add_row(s.model, after, *(number(phase[task], 3) for task in tasks))
    return table


def _presentations(summaries: list[Summary]) -> Table:
    """Few-shot learning: per cent right at each presentation of a class, and under it what the paper has."""
    places = list(dict.fromkeys(place for s in summaries for place in s.presentations))
    table = _plain_table(
        "per cent right at each presentation of a class, 95 % interval over episodes", ("row", "model"), tuple(places)
    )
    for s in summaries:
        ours, papers = [], []
        for place in places:
            accuracy, interval, published = s.presentations.get(place, (None, None, None))
            ours.append("–" if accuracy is None or interval is None else f"{100 * accuracy:.1f}±{100 * interval:.1f}")
            papers.append("" if published is None else f"{100 * published:.1f}")
        table.add_row(s.row, s.model, *ours)
        table.add_row("", "paper", *papers)
    return table


def _by_task(summaries: list[Summary]) -> Table:
    """Question answering: per cent of wrong answer words in every task, of the best seed and on average."""
    found = [summary for summary in summaries if len(summary.by_task) > 1]
    table = _plain_table(
        "per cent of wrong answer words, best seed (mean ± sd)",
        ("task",),
        ("paper p=4 best", "paper p=4 mean", *(s.model for s in found)),
    )

    def percent(errors: TaskErrors | None) -> str:
        if errors is None:
            return "–"
        sd = "" if errors.sd is None else f" ({100 * errors.mean:.1f} ± {100 * errors.sd:.1f})"
        return f"{100 * errors.best:.1f}{sd}"

    for number_of_task, (title, best, mean) in enumerate(PUBLISHED_BABI_TASKS, start=1):
        ours = [percent(s.by_task.get(f"qa{number_of_task}")) for s in found]
        table.add_row(f"{number_of_task}: {title}", f"{best:.1f}", f"{mean:.1f}", *ours)
    table.add_row(
        "mean error",
        *map(str, PUBLISHED_BABI_MEAN),
        *(percent(TaskErrors(s.best or 0, s.mean or 0, s.sd, 0)) for s in found),
    )
    failed = [f"{s.failed_tasks[0]}" + (f" ({fmean(s.failed_tasks):.1f})" if s.seeds > 1 else "") for s in found]
    table.add_row("failed (above 5 %)", *map(str, PUBLISHED_BABI_FAILED), *failed)
    questions = [f"{100 * fmean(errors.questions for errors in s.by_task.values()):.1f}" for s in found]
    table.add_row("mean error of questions", "", "", *questions)
    return table


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

    def __call__(self, known: dict[Job, Outcome | None]) -> None:
        if self.live:
            self.live.update(self._table(known), refresh=True)
            return
        for job, outcome in known.items():
            if outcome is not None and job not in self.said:
                self.said.add(job)
                words = f"{len(self.said)}/{len(self.planned)} runs, {job.name} {outcome.status} {outcome.reason}"
                print(printable(f"{self.name}: {words.rstrip()}"), file=sys.stderr, flush=True)

    def _table(self, known: dict[Job, Outcome | None]) -> Table:
        count = {status: 0 for status in ("done", "failed", "interrupted")}
        for outcome in known.values():
            if outcome is not None:
                count[outcome.status] += 1
        done = ", ".join(f"{runs} {status}" for status, runs in count.items() if runs) or "none done"
        title = f"{self.name}: {len(self.planned)} runs, {done}"
        table = _plain_table(title, ("under way",), ("iterations", "per second", "left"))
        table.add_column("now")
        for job, outcome in known.items():
            if outcome is None:
                step, line = campaign.progress(job)
                rate, left = self.paces.setdefault(job, Pace(job.config.iterations)).at(step)
                table.add_row(job.name, f"{step:,} of {job.config.iterations:,}", rate, left, figures(line))
        return table
