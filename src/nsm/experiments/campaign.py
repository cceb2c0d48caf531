"""Many runs at once: what is finished stays, what is not goes on, and no run takes another one with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from nsm.checks import Failed, UserError
from nsm.experiments import results
from nsm.experiments.engines.engine import Engine, Job, Status
from nsm.experiments.paper import Cell
from nsm.files import copy_directory_atomically
from nsm.training.run import Line, RunDirectory
from nsm.training.signals import asked_by_signal


class RunsFailed(Failed):
    """Some runs of a campaign failed; the others are done."""


Tick = Callable[[dict[Job, Status | None]], None]
TICK = 1.0
"""Seconds between two looks at the runs under way."""


def jobs(cells: list[Cell], seeds: int, root: Path) -> list[Job]:
    """All runs of a campaign: seed by seed, so that every cell has a first result early."""
    return [Job(cell, seed, root / cell.row / cell.model / f"seed-{seed}") for seed in range(seeds) for cell in cells]


def adopt(campaign: list[Job], root: Path, backend: str = "auto") -> int:
    """Copy the finished runs under `root` that jobs not yet begun would only repeat; returns how many there were.

    Experiments overlap: the NTM of a single task is also the ablation's and the factorial comparison's, and where
    presets agree one run is both's. What can't be copied is trained.
    """
    found = 0
    for job, path in _twins(campaign, root, backend):
        if not job.directory.exists():
            with suppress(OSError):
                copy_directory_atomically(path, job.directory, leave="lock")
                found += 1
    return found


def published(campaign: list[Job], root: Path, backend: str = "auto") -> dict[Job, Path]:
    """The jobs not yet begun whose results `nsm collect` has put under `root`, and where: they need not be run."""
    return dict(_twins(campaign, root, backend))


def _twins(campaign: list[Job], root: Path, backend: str) -> Iterator[tuple[Job, Path]]:
    """The jobs not yet begun that would only repeat a finished run under `root`, and where it or its result lies.

    A configuration with its seed decides every byte of a run on a back end.
    """
    missing = {job.experiment: job for job in campaign if not job.directory.exists()}
    for path in results.find(root).values() if missing else ():
        try:
            record = results.read(path)
        except UserError:
            continue  # a run that can't be read is no concern of this campaign
        job = missing.get(record.experiment)
        if job is not None and record.outcome is not None and backend in ("auto", record.outcome.backend):
            yield job, path


def run(campaign: list[Job], engine: Engine, tick: Tick = lambda _: None) -> dict[Job, Status]:
    """Run all jobs; `tick` is called about once a second with every job that is done or under way.

    A signal is passed on to the runs under way, which save and stop; nothing new is begun.
    """
    for job in campaign:
        # A directory that belongs to another configuration is the user's mistake: say so before anything starts.
        RunDirectory(job.directory).check(job.experiment)
    ended = {job: Status("done") for job in campaign if RunDirectory(job.directory).outcome() is not None}
    waiting = deque(job for job in campaign if job not in ended)
    under_way: set[Job] = set()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        engine.stop()

    tick(dict(ended))
    with asked_by_signal(stop):
        while under_way or (waiting and not stopped):
            while waiting and len(under_way) < engine.capacity and not stopped:
                job = waiting.popleft()
                under_way.add(job)
                engine.begin(job)
            just = engine.ended(TICK)
            ended |= just
            under_way -= just.keys()
            tick({job: ended.get(job) for job in campaign if job in ended or job in under_way})
    return ended


def progress(job: Job) -> tuple[int, Line | None]:
    """How far a run has come: the step, and the last line of its metrics."""
    lines = RunDirectory(job.directory).lines()
    return (lines[-1]["step"], lines[-1]) if lines else (0, None)
