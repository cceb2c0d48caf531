"""nsm reproduce"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.live import Live
from rich.table import Table

from nsm.checks import at_least, choose
from nsm.commands.terminal import console, figures
from nsm.experiments import campaign, params
from nsm.experiments.campaign import Job, Outcome
from nsm.experiments.paper import EXPERIMENTS, cells
from nsm.experiments.summary import Summary, number, summarise
from nsm.machine import BACKENDS, PRESETS
from nsm.training.loop import Interrupted


@dataclass(frozen=True)
class Reproduce:
    """Regenerate a table of the paper beside the published numbers. What is unfinished goes on.

    Example: nsm reproduce single --seeds 5 --jobs 2
    """

    experiment: tyro.conf.Positional[str]
    """params, single, ablation, sequencing, continual, or all."""
    preset: str = "paper"
    """paper (its settings), default (what learns reliably) or authors (the published code's)."""
    seeds: int = 5
    """Runs per cell, seeds 0, 1, …"""
    jobs: int = 2
    """Runs at a time, one thread each."""
    only: str | None = None
    """Only cells whose name contains this, like copy/nutm."""
    budget: int | None = None
    """At most this many iterations per run."""
    out: Path = Path("runs")
    """Where the runs lie."""
    backend: str = "auto"
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        choose("experiment", self.experiment, ("params", *EXPERIMENTS, "all"))
        choose("preset", self.preset, PRESETS)
        choose("backend", self.backend, BACKENDS)
        at_least("seeds", self.seeds, 1)
        at_least("jobs", self.jobs, 1)
        if self.budget is not None:
            at_least("budget", self.budget, 1)
        names = ("params", *EXPERIMENTS) if self.experiment == "all" else (self.experiment,)
        document = {name: self._parameters() if name == "params" else self._experiment(name) for name in names}
        if self.json:
            print(json.dumps(document if self.experiment == "all" else document[self.experiment], indent=2))

    def _parameters(self) -> list[dict[str, object]]:
        rows = params.table()
        if not self.json:
            table = Table("row", "model", "published", "ours", "", "note", title="Parameters")
            for column in table.columns[2:4]:
                column.justify = "right"
            for row in rows:
                verdict = "exact" if row.published == row.ours else "differs"
                table.add_row(row.row, row.model, f"{row.published:,}", f"{row.ours:,}", verdict, row.note)
            console().print(table)
        return [dataclasses.asdict(row) for row in rows]

    def _experiment(self, name: str) -> list[dict[str, object]]:
        chosen = cells(name, self.preset, self.only, self.budget)
        root = self.out / name / (self.preset if self.budget is None else f"{self.preset}-{self.budget}")
        planned = campaign.jobs(chosen, self.seeds, root)
        with _display(name, planned) as tick:
            outcomes = campaign.run(planned, self.jobs, self.backend, tick)
        summaries = [summarise(cell, [job.directory for job in planned if job.cell is cell]) for cell in chosen]
        if not self.json:
            console().print(_table(name, self.preset, summaries))
            for job, outcome in outcomes.items():
                if outcome.status == "failed":
                    console().print(f"{job.cell.name} seed {job.seed} failed: {outcome.reason}")
        if any(outcome.status == "interrupted" for outcome in outcomes.values()):
            raise Interrupted
        return [dataclasses.asdict(summary) for summary in summaries]


def _table(name: str, preset: str, summaries: list[Summary]) -> Table:
    unit = {"bit_errors": "bit errors", "cross_entropy_bits": "bits", "bit_accuracy": "accuracy"}
    digits = 3 if name == "continual" else 2
    table = Table(title=f"{name}, {preset} settings")
    for header in ("row", "model", "figure"):
        table.add_column(header)
    for header in ("paper", "best", "mean ± sd", "median", "Σ|p−y|", "solved", "iterations", "seconds", "seeds"):
        table.add_column(header, justify="right")
    for s in summaries:
        spread = number(s.mean, digits) + (f" ± {number(s.sd, digits)}" if s.sd is not None else "")
        figure = unit[s.metric]
        if "optimum_bits" in s.extra:
            figure += f" (optimum {s.extra['optimum_bits']:.2f})"
        table.add_row(
            s.row,
            s.model,
            figure,
            number(s.published),
            number(s.best, digits),
            spread,
            number(s.median, digits),
            number(s.extra.get("l1_errors")),
            "–" if s.solved is None else f"{s.solved:.0%}",
            number(s.solved_steps, 0),
            number(s.solved_seconds, 0),
            f"{s.seeds}" + (f" ({s.failed} failed)" if s.failed else ""),
        )
        if s.metric == "bit_accuracy" and s.extra:
            table.add_row("", "", ", ".join(f"{task} {value:.3f}" for task, value in s.extra.items()))
    return table


class _display:
    """Progress of a campaign: one live table on a terminal, a line per finished run elsewhere; on standard error."""

    def __init__(self, name: str, planned: list[Job]) -> None:
        self.name, self.planned = name, planned
        self.said: set[Job] = set()
        self.live = Live(console=Console(stderr=True), transient=True) if sys.stderr.isatty() else None

    def __enter__(self) -> _display:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, known: dict[Job, Outcome | None]) -> None:
        finished = [job for job, outcome in known.items() if outcome is not None]
        if self.live is None:
            for job in finished:
                if job not in self.said:
                    self.said.add(job)
                    outcome = known[job]
                    assert outcome is not None
                    print(
                        f"{self.name}: {len(self.said)}/{len(self.planned)} runs, {job.cell.name} seed {job.seed} "
                        f"{outcome.status} {outcome.reason}".rstrip(),
                        file=sys.stderr,
                        flush=True,
                    )
            return
        table = Table(
            "run", "iterations", "now", title=f"{self.name}: {len(finished)} of {len(self.planned)} runs done"
        )
        for job, outcome in known.items():
            if outcome is None:
                step, line = campaign.progress(job)
                table.add_row(
                    f"{job.cell.name} seed {job.seed}", f"{step:,} of {job.config.iterations:,}", figures(line)
                )
        self.live.update(table)
