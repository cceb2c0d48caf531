"""Many runs at once: a few processes, one thread each; what is finished stays, what is not goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from nsm.checks import UserError
from nsm.experiments.paper import Cell
from nsm.pretrained import from_json, to_json
from nsm.training.config import RunConfig
from nsm.training.run import RunDirectory
from nsm.training.signals import asked_by_signal


class Job(NamedTuple):
    """A cell with a seed, and where its run lies."""

    cell: Cell
    seed: int
    directory: Path

    @property
    def config(self) -> RunConfig:
        return replace(self.cell.config, seed=self.seed)

    @property
    def name(self) -> str:
        return f"{self.cell.name} seed {self.seed}"


class Outcome(NamedTuple):
    """How a run ended: done, failed or interrupted, and why."""

    status: str
    reason: str = ""


class RunsFailed(Exception):
    """Some runs of a campaign failed; the others are done."""


Tick = Callable[[dict[Job, Outcome | None]], None]


def jobs(cells: list[Cell], seeds: int, root: Path) -> list[Job]:
    """All runs of a campaign: seed by seed, so that every cell has a first result early."""
    return [Job(cell, seed, root / cell.row / cell.model / f"seed-{seed}") for seed in range(seeds) for cell in cells]


def run(campaign: list[Job], processes: int, backend: str = "auto", tick: Tick = lambda _: None) -> dict[Job, Outcome]:
    """Run all jobs; `tick` is called about once a second with every job that is done or under way.

    A signal is passed on to the runs under way, which save and stop; nothing new is begun.
    """
    for job in campaign:
        # A directory that belongs to another configuration is the user's mistake: say so before anything starts.
        RunDirectory(job.directory).check(job.config)
    outcomes = {job: Outcome("done") for job in campaign if RunDirectory(job.directory).result() is not None}
    waiting = deque(job for job in campaign if job not in outcomes)
    idle: list[_Worker] = []
    busy: dict[_Worker, Job] = {}
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        for worker in busy:
            worker.process.terminate()

    tick(dict(outcomes))
    try:
        with asked_by_signal(stop):
            while busy or (waiting and not stopped):
                while waiting and len(busy) < processes and not stopped:
                    idle = [worker for worker in idle if worker.process.is_alive()]
                    worker = idle.pop() if idle else _Worker()
                    busy[worker] = waiting.popleft()
                    worker.begin(busy[worker], backend)
                    if stopped:  # asked while it was being started
                        worker.process.terminate()
                ready = connection.wait([worker.pipe for worker in busy], timeout=1.0)
                for worker in [worker for worker in busy if worker.pipe in ready]:
                    job = busy.pop(worker)
                    outcomes[job] = worker.outcome(stopped)
                    if worker.process.is_alive():
                        idle.append(worker)
                tick({job: outcomes.get(job) for job in campaign if job in outcomes or job in busy.values()})
    finally:
        for worker in [*idle, *busy]:
            worker.process.kill()
    return outcomes


class _Worker:
    """A spawned process that trains one run after another."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        # Ctrl-C goes to every process of the terminal. Here it is for the campaign alone, which passes it on once: a
        # blocked signal stays blocked in a child. (The tracker, which the first start brings along, unblocks it.)
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def begin(self, job: Job, backend: str) -> None:
        with suppress(OSError):  # a process that is dead already is noticed by its end of the pipe
            self.pipe.send((json.dumps(to_json(job.config)), str(job.directory), backend))
        self.directory = job.directory

    def outcome(self, stopped: bool) -> Outcome:
        """How the job ended; a process that died takes no other run with it."""
        try:
            return Outcome(*self.pipe.recv())
        except (EOFError, OSError):
            self.process.join()
        if stopped:
            return Outcome("interrupted")
        reason = f"its process died with exit code {self.process.exitcode}"
        with suppress(OSError):
            RunDirectory(self.directory).fail(reason, None)
        return Outcome("failed", reason)


def _work(pipe: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_follow_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_train(*pipe.recv()))


def _follow_parent() -> None:
    """A campaign that is killed takes its runs along: they save and stop."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _train(config: str, directory: str, backend: str) -> Outcome:
    from nsm.training.learner import Diverged
    from nsm.training.loop import train
    from nsm.training.signals import Interrupted

    try:
        train(from_json(RunConfig, json.loads(config)), directory, backend)
    except Interrupted:
        return Outcome("interrupted")
    except (Diverged, UserError, OSError) as error:
        return Outcome("failed", str(error))
    except Exception as error:  # a bug in one run is no reason to stop the others
        return Outcome("failed", f"{type(error).__name__}: {error}")
    return Outcome("done")


def progress(job: Job) -> tuple[int, dict[str, Any]]:
    """How far a run has come: the step, and the last line of its metrics."""
    lines = RunDirectory(job.directory).metrics()
    return (lines[-1]["step"], lines[-1]) if lines else (0, {})
