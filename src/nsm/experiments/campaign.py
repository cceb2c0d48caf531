"""Many runs at once: finished ones are kept, unfinished ones resume, and a run that fails stops no other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from nsm.checks import Failed, UserError
from nsm.experiments import results
from nsm.experiments.engines import Engine, Job, Status
from nsm.experiments.paper import Cell
from nsm.files import copy_directory_atomically
from nsm.training.run import Line, RunDirectory
from nsm.training.signals import asked_by_signal


class RunsFailed(Failed):
    """Some runs of a campaign failed; the others are done."""


Tick = Callable[[dict[Job, Status | None]], None]
TICK = 1.0
"""Seconds between two updates of the progress."""


def jobs(cells: list[Cell], seeds: int, root: Path) -> list[Job]:
    """All runs of a campaign: seed by seed, so that every cell has a first result early."""
    return [Job(cell, seed, root / cell.row / cell.model / f"seed-{seed}") for seed in range(seeds) for cell in cells]


def adopt(campaign: list[Job], root: Path, backend: str = "auto") -> int:
    """Copy finished runs under `root` that jobs not yet begun would only repeat; returns how many.

    Experiments overlap: the NTM of a single task is also a cell of the ablation and of the factorial comparison, and
    presets may agree. What can't be copied is trained.
    """
    found = 0
    for job, path in _twins(campaign, root, backend):
        if not job.directory.exists():
            with suppress(OSError):
                copy_directory_atomically(path, job.directory, leave="lock")
                found += 1
    return found


def published(campaign: list[Job], root: Path, backend: str = "auto") -> dict[Job, Path]:
    """The jobs not yet begun whose results `nsm collect` wrote under `root`, and where: they need not be run."""
    return dict(_twins(campaign, root, backend))


def _twins(campaign: list[Job], root: Path, backend: str) -> Iterator[tuple[Job, Path]]:
    """The jobs not yet begun that would only repeat a finished run under `root`, and where that run or its result is.

    A configuration with its seed decides every byte of a run on one backend.
    """
    missing = {job.experiment: job for job in campaign if not job.directory.exists()}
    for path in results.find(root).values() if missing else ():
        try:
            record = results.read(path)
        except UserError:
            continue  # an unreadable run is none of this campaign's
        job = missing.get(record.experiment)
        if job is not None and record.outcome is not None and backend in ("auto", record.outcome.backend):
            yield job, path


def run(campaign: list[Job], engine: Engine, tick: Tick = lambda _: None) -> dict[Job, Status]:
    """Run all jobs; `tick` is called about once a second with every job that is done or under way.

    A signal is passed on to the runs under way, which save and stop; no further run starts.
    """
    for job in campaign:
        # A directory of another configuration is the user's mistake: say so before anything starts.
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
    """The step that a run has reached, and the last line of its metrics."""
    try:
        lines = RunDirectory(job.directory).lines()
    except UserError:
        lines = []  # the run will fail and say why
    return (lines[-1]["step"], lines[-1]) if lines else (0, None)
