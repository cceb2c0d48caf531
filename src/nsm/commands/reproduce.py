"""nsm reproduce"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.table import Table

from nsm.checks import UserError, at_least, choose
from nsm.commands.data import DataDir
from nsm.commands.terminal import Pace, console, figures, option
from nsm.data.source import look_in
from nsm.experiments import campaign, params
from nsm.experiments.campaign import RunsFailed
from nsm.experiments.engines import ENGINES
from nsm.experiments.engines.cluster import RayCluster
from nsm.experiments.engines.engine import Engine, Job, Outcome
from nsm.experiments.engines.local import Local
from nsm.experiments.paper import EXPERIMENTS, PUBLISHED_BABI_FAILED, PUBLISHED_BABI_MEAN, PUBLISHED_BABI_TASKS, cells
from nsm.experiments.summary import Summary, TaskErrors, number, summarise
from nsm.names import BACKENDS, PRESETS
from nsm.training.loop import task_pair
from nsm.training.signals import Interrupted


@dataclass(frozen=True)
class Reproduce:
    """Regenerate a table of the paper beside the published numbers. What is unfinished goes on.

    Ends with code 1 if a run failed, 75 if it was stopped.

    Example: nsm reproduce single --seeds 5 --jobs 2

    On a Ray cluster: nsm reproduce single --engine ray --address 10.0.0.1:6379 --jobs 60
    """

    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]
    """params, single, ablation, sequencing, continual, fewshot, babi, all; or what the paper does not have: factorial
    (models × initial scales), babi-tasks (one by one)."""
    preset: str = "paper"
    """paper (its settings), default (what learns reliably) or authors (the published code's)."""
    seeds: int = 5
    """Runs per cell, seeds 0, 1, …"""
    jobs: int = 2
    """Runs at a time, one thread each."""
    engine: str = "local"
    """local (processes of this machine) or ray (a Ray cluster; needs nsm[ray])."""
    address: Annotated[str | None, option("STR", "a cluster of its own, on this machine")] = None
    """Of an existing Ray cluster, host:port or auto."""
    only: Annotated[str | None, option("STR", "all")] = None
    """Only the cell or row of this name (copy/nutm, copy), else those whose names contain it; several with commas."""
    budget: Annotated[int | None, option("INT", "the paper's")] = None
    """At most this many iterations per run."""
    out: Path = Path("runs")
    """Where the runs lie."""
    results: Annotated[Path | None, option("PATH", "none")] = None
    """Take what nsm collect has kept there instead of running it again."""
    data_dir: DataDir = None
    """Where data sets lie; see nsm data."""
    backend: str = "auto"
    """auto, reference or fused."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        choose("experiment", self.experiment, ("params", *EXPERIMENTS, "all"))
        choose("preset", self.preset, PRESETS)
        choose("backend", self.backend, BACKENDS)
        at_least("seeds", self.seeds, 1)
        at_least("jobs", self.jobs, 1)
        choose("engine", self.engine, ENGINES)
        if self.address is not None and self.engine != "ray":
            raise UserError(f"--address needs --engine ray, was {self.engine}")
        if self.budget is not None:
            at_least("budget", self.budget, 1)
        if self.results is not None and not self.results.is_dir():
            raise UserError(f"results must be a directory, was {str(self.results)!r}")
        look_in(self.data_dir)
        plans = self._plans()
        document: dict[str, Any] = {}
        failed: list[str] = []
        if self.experiment in ("params", "all"):
            document["params"] = self._parameters()
        if plans:
            with self._engine() as engine:
                for name, planned in plans.items():
                    document[name], reasons = self._experiment(name, planned, engine)
                    failed += reasons
        if self.json:
            print(json.dumps(document if self.experiment == "all" else document[self.experiment], indent=2))
        if failed:
            raise RunsFailed("\n".join(failed))

    def _plans(self) -> dict[str, list[Job]]:
        """The runs of every experiment asked for; nothing starts before all of them are known to make sense."""
        names = EXPERIMENTS if self.experiment == "all" else [self.experiment] if self.experiment != "params" else []
        plans, mistakes = {}, []
        for name in names:
            try:
                chosen = cells(name, self.preset, self.only, self.budget)
            except UserError as error:
                mistakes.append(error)
                continue
            for cell in chosen:
                task_pair(cell.config)  # whose data may be missing
            root = self.out / name / (self.preset if self.budget is None else f"{self.preset}-{self.budget}")
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"{root} can't be written: {error.strerror}") from None
            plans[name] = campaign.jobs(chosen, self.seeds, root)
        if mistakes and not plans:
            raise mistakes[0]
        return plans

    def _engine(self) -> Engine:
        if self.engine == "local":
            return Local(self.jobs, self.backend)
        return RayCluster(self.jobs, self.backend, self.address)

    def _parameters(self) -> list[dict[str, object]]:
        rows = params.table()
        if not self.json:
            table = _plain_table("Parameters", ("row", "model"), ("published", "ours", ""))
            table.add_column("note")
            for row in rows:
                verdict = "exact" if row.published == row.ours else "differs"
                table.add_row(row.row, row.model, f"{row.published:,}", f"{row.ours:,}", verdict, row.note)
            console().print(table)
        return [dataclasses.asdict(row) for row in rows]

    def _experiment(self, name: str, planned: list[Job], engine: Engine) -> tuple[list[dict[str, object]], list[str]]:
        """The table of an experiment, and the reasons of runs that failed."""
        adopted = campaign.adopt(planned, self.out, self.backend)
        if adopted:
            print(f"{adopted} runs of {name} were finished by other experiments: copied", file=sys.stderr)
        kept = campaign.kept(planned, self.results, self.backend) if self.results else {}
        if kept:
            print(f"{len(kept)} runs of {name} have their results in {self.results}: not repeated", file=sys.stderr)
        left = [job for job in planned if job not in kept]
        with _display(name, left) as tick:
            outcomes = campaign.run(left, engine, tick)
        chosen = list(dict.fromkeys(job.cell for job in planned))
        summaries = [
            summarise(cell, [kept.get(job, job.directory) for job in planned if job.cell == cell]) for cell in chosen
        ]
        if not self.json:
            console().print(_table(name, self.preset, summaries))
            if any(summary.phases for summary in summaries):
                console().print(_phases(summaries))
            if any(summary.presentations for summary in summaries):
                console().print(_presentations(summaries))
            if any(len(summary.by_task) > 1 for summary in summaries):
                console().print(_by_task(summaries))
            for note in dict.fromkeys(note for summary in summaries for note in summary.notes):
                console().print(f"Note: {note}.")
        if len(outcomes) < len(left) or any(outcome.status == "interrupted" for outcome in outcomes.values()):
            raise Interrupted
        failed = [f"{job.name} failed: {outcome.reason}" for job, outcome in outcomes.items() if outcome.reason]
        return [dataclasses.asdict(summary) for summary in summaries], failed


ESSENTIAL = ("paper", "best", "mean ± sd", "solved", "iterations", "seeds")
"""The columns of a terminal that is too narrow for all."""

FIGURES = {
    "continual": ("accuracy after the last task", 3),
    "fewshot": ("accuracy at the second presentation", 3),
    "babi": ("share of wrong answer words, mean over the tasks", 3),
    "babi-tasks": ("share of wrong answer words", 3),
}
"""What an experiment's table shows, if not wrong bits, and to how many digits."""


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


class _display:
    """Progress of a campaign: one live table on a terminal, a line per finished run elsewhere; on standard error."""

    def __init__(self, name: str, planned: list[Job]) -> None:
        self.name, self.planned = name, planned
        self.said: set[Job] = set()
        self.paces: dict[Job, Pace] = {}
        self.live = Live(console=console(stderr=True), transient=True) if sys.stderr.isatty() else None

    def __enter__(self) -> _display:
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
                print(f"{self.name}: {words.rstrip()}", file=sys.stderr, flush=True)

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
