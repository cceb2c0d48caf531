"""nsm reproduce"""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.options import DataDir, Integer, option
from nsm.data.source import look_in
from nsm.names import BACKENDS, ENGINES, EXPERIMENTS, PRESETS
from nsm.screen import console, many, say
from nsm.training.signals import Interrupted

if TYPE_CHECKING:
    from nsm.experiments.choice import Preset
    from nsm.experiments.engines import Engine, Job


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper and print its table beside the published numbers.

    Takes minutes to days; an estimate is printed first. The same command resumes unfinished runs and skips finished
    ones. Ends with code 1 if a run failed, 75 if it was stopped.

    Not in the paper: factorial combines models with scales of initial weights, complete stores all networks as
    programs, babi-tasks trains each task alone.

    Example: nsm reproduce single --seeds 5 --jobs 2

    On a Ray cluster: nsm reproduce single --engine ray --address 10.0.0.1:6379 --jobs 60
    """

    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]
    """params, single, ablation, sequencing, continual, fewshot, babi or all. Not in the paper: factorial, complete,
    babi-tasks."""
    preset: str = "paper"
    """Settings: paper (as published), default (learns reliably) or authors (those of the published code)."""
    seeds: int = 5
    """Runs per cell, with seeds 0, 1, …"""
    jobs: int = 2
    """Number of runs at a time, one thread each."""
    engine: str = "local"
    """local (processes on this machine) or ray (a Ray cluster; needs stored-programs[ray])."""
    address: Annotated[str | None, option("STR", "a new cluster on this machine")] = None
    """Address of an existing Ray cluster: host:port or auto."""
    only: Annotated[str | None, option("STR", "all")] = None
    """Only the cell or row with this name (copy/nutm, copy), else cells containing it; separate several with commas."""
    budget: Annotated[Integer, option("INT", "the paper's")] = None
    """At most this many iterations per run."""
    out: Path = Path("runs")
    """Directory of the runs."""
    results: Annotated[Path | None, option("PATH", "none")] = None
    """Directory of collected results: their tables are printed first, and only missing runs are trained."""
    data_dir: DataDir = None
    """Directory of the data sets; see nsm data."""
    backend: str = "auto"
    """auto, reference (plain PyTorch) or fused (CPU kernels)."""
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
            raise UserError(f"--address needs --engine ray, the engine was {self.engine}")
        if self.budget is not None:
            at_least("budget", self.budget, 1)
        if self.results is not None and not self.results.is_dir():
            raise UserError(f"results must be a directory, was {str(self.results)!r}")
        look_in(self.data_dir)
        from nsm.commands import tables
        from nsm.experiments import campaign

        plans = self._plans()
        kept = {}
        for name, planned in plans.items():
            kept[name] = campaign.published(planned, self.results, self.backend) if self.results else {}
        document: dict[str, Any] = {}
        failed: list[str] = []
        if self.experiment in ("params", "all"):
            document["params"] = self._parameters()
        if self.results is not None:  # all tables of collected results, before the first run starts
            for name, planned in plans.items():
                missing = sum(job not in kept[name] and not job.directory.exists() for job in planned)
                if kept[name]:
                    words = f"results of {many(len(kept[name]), 'run')} found in {self.results}, not repeated"
                    say(f"{name}: {words}" + (f"; {many(missing, 'run')} to train" if missing else ""))
                document[name] = self._table(name, planned, kept[name])
        if plans:
            left = [job for name, planned in plans.items() for job in planned if job not in kept[name]]
            with self._engine() as engine:
                say(f"{self.experiment}: {tables.expected(left, self.jobs)}")
                for name, planned in plans.items():
                    shown = document.get(name)
                    document[name], reasons = self._experiment(name, planned, kept[name], engine, shown)
                    failed += reasons
        if self.json:
            print(json.dumps(document if self.experiment == "all" else document[self.experiment], indent=2))
        if failed:
            raise campaign.RunsFailed("\n".join(failed))

    def _plans(self) -> dict[str, list[Job]]:
        """The runs of every experiment; all are checked before the first one starts."""
        from nsm.experiments import campaign
        from nsm.experiments.paper import cells
        from nsm.experiments.results import Settings

        names = EXPERIMENTS if self.experiment == "all" else (self.experiment,) * (self.experiment != "params")
        plans, mistakes = {}, []
        for name in names:
            try:
                chosen = cells(name, cast("Preset", self.preset), self.only, self.budget)
            except UserError as error:
                mistakes.append(error)
                continue
            for cell in chosen:
                cell.experiment.check()  # data may be missing
            root = self.out / name / Settings(cast("Preset", self.preset), self.budget).directory
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
            from nsm.experiments.engines.local import Local

            return Local(self.jobs, self.backend)
        from nsm.experiments.engines.cluster import RayCluster

        return RayCluster(self.jobs, self.backend, self.address)

    def _parameters(self) -> list[dict[str, object]]:
        from nsm.commands import tables
        from nsm.experiments import params

        rows = params.table()
        if not self.json:
            console().print(tables.parameters(rows))
        return [dataclasses.asdict(row) for row in rows]

    def _experiment(
        self,
        name: str,
        planned: list[Job],
        published: dict[Job, Path],
        engine: Engine,
        shown: list[dict[str, object]] | None,
    ) -> tuple[list[dict[str, object]], list[str]]:
        """The table of an experiment, printed unless it equals the one `shown`, and the reasons why runs failed."""
        from nsm.commands import tables
        from nsm.experiments import campaign

        left = [job for job in planned if job not in published]
        if adopted := campaign.adopt(left, self.out, self.backend):
            say(f"{name}: {many(adopted, 'run')} copied from other experiments, which had finished them")
        with tables.Display(name, left) as tick:
            ended = campaign.run(left, engine, tick)
        interrupted = len(ended) < len(left) or any(status.word == "interrupted" for status in ended.values())
        # A closed terminal can't show the table, but the runs are saved.
        with suppress(OSError) if interrupted else nullcontext():
            found = self._table(name, planned, published, shown)
        if interrupted:
            raise Interrupted
        return found, [f"{job.name} failed: {status.reason}" for job, status in ended.items() if status.reason]

    def _table(
        self, name: str, planned: list[Job], published: dict[Job, Path], shown: list[dict[str, object]] | None = None
    ) -> list[dict[str, object]]:
        """Print the table of an experiment unless it equals the one `shown`; returns its document."""
        from nsm.commands import tables
        from nsm.experiments.summary import summarise

        summaries = [
            summarise(cell, [published.get(job, job.directory) for job in planned if job.cell == cell])
            for cell in dict.fromkeys(job.cell for job in planned)
        ]
        document = [summary.document() for summary in summaries]
        if not self.json and document != shown:
            for table in tables.results(name, self.preset, summaries):
                console().print(table)
            for note in dict.fromkeys(note for summary in summaries for note in summary.notes):
                console().print(f"Note: {note}.")
        return document
