"""nsm reproduce"""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.data import DataDir
from nsm.commands.terminal import Integer, option
from nsm.data.source import look_in
from nsm.experiments.engines import ENGINES
from nsm.names import BACKENDS, EXPERIMENTS, PRESETS
from nsm.screen import console
from nsm.training.signals import Interrupted

if TYPE_CHECKING:
    from nsm.experiments.choice import Preset
    from nsm.experiments.engines.engine import Engine, Job


@dataclass(frozen=True)
class Reproduce:
    """Regenerate a table of the paper beside the published numbers. What is unfinished resumes.

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
    """local (processes of this machine) or ray (a Ray cluster; needs stored-programs[ray])."""
    address: Annotated[str | None, option("STR", "a cluster of its own, on this machine")] = None
    """Of an existing Ray cluster, host:port or auto."""
    only: Annotated[str | None, option("STR", "all")] = None
    """Only the cell or row of this name (copy/nutm, copy), else those whose names contain it; several with commas."""
    budget: Annotated[Integer, option("INT", "the paper's")] = None
    """At most this many iterations per run."""
    out: Path = Path("runs")
    """Where the runs are."""
    results: Annotated[Path | None, option("PATH", "none")] = None
    """Take what nsm collect has written there instead of running it again: its tables first, then what is missing."""
    data_dir: DataDir = None
    """Where the data sets are; see nsm data."""
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
        from nsm.experiments.campaign import RunsFailed

        plans = self._plans()
        document: dict[str, Any] = {}
        failed: list[str] = []
        if self.experiment in ("params", "all"):
            document["params"] = self._parameters()
        if self.results is not None:  # all tables of what there is, before the first run is begun
            for name, planned in plans.items():
                document[name] = self._published(name, planned)
        if plans:
            with self._engine() as engine:
                for name, planned in plans.items():
                    document[name], reasons = self._experiment(name, planned, engine, document.get(name))
                    failed += reasons
        if self.json:
            print(json.dumps(document if self.experiment == "all" else document[self.experiment], indent=2))
        if failed:
            raise RunsFailed("\n".join(failed))

    def _plans(self) -> dict[str, list[Job]]:
        """The runs of every experiment asked for; nothing starts before all of them are known to make sense."""
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
                cell.experiment.check()  # whose data may be missing
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

    def _published(self, name: str, planned: list[Job]) -> list[dict[str, object]]:
        """The table of what is published of an experiment, or lies under `out`."""
        from nsm.experiments import campaign

        assert self.results is not None
        published = campaign.published(planned, self.results, self.backend)
        missing = sum(job not in published and not job.directory.exists() for job in planned)
        if published:
            words = f"not repeated, {missing} are missing" if missing else "not repeated"
            print(f"{len(published)} runs of {name} have their results in {self.results}: {words}", file=sys.stderr)
        return self._table(name, planned, published)

    def _experiment(
        self, name: str, planned: list[Job], engine: Engine, shown: list[dict[str, object]] | None
    ) -> tuple[list[dict[str, object]], list[str]]:
        """The table of an experiment, printed unless it is the one `shown`, and the reasons of runs that failed."""
        from nsm.commands import tables
        from nsm.experiments import campaign

        adopted = campaign.adopt(planned, self.out, self.backend)
        if adopted:
            print(f"{adopted} runs of {name} were finished by other experiments: copied", file=sys.stderr)
        published = campaign.published(planned, self.results, self.backend) if self.results else {}
        left = [job for job in planned if job not in published]
        with tables.Display(name, left) as tick:
            ended = campaign.run(left, engine, tick)
        interrupted = len(ended) < len(left) or any(status.word == "interrupted" for status in ended.values())
        # Of a terminal that was closed nothing can be said any more, but that the runs are saved is still true.
        with suppress(OSError) if interrupted else nullcontext():
            found = self._table(name, planned, published, shown)
        if interrupted:
            raise Interrupted
        return found, [f"{job.name} failed: {status.reason}" for job, status in ended.items() if status.reason]

    def _table(
        self, name: str, planned: list[Job], published: dict[Job, Path], shown: list[dict[str, object]] | None = None
    ) -> list[dict[str, object]]:
        """Print the table of an experiment unless it is the one that was `shown`; its document."""
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
