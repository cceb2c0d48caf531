"""Many runs at once: a pool of processes, one thread each; what is finished stays, what is not goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nsm.checks import UserError
from nsm.experiments.paper import Cell
from nsm.pretrained import from_json, to_json
from nsm.training.config import RunConfig
from nsm.training.run import RunDirectory


class Job(NamedTuple):
    """A cell with a seed, and where its run lies."""

    cell: Cell
    seed: int
    directory: Path

    @property
    def config(self) -> RunConfig:
        return replace(self.cell.config, seed=self.seed)


class Outcome(NamedTuple):
    """How a run ended: done, failed or interrupted, and why."""

    status: str
    reason: str = ""


def jobs(cells: list[Cell], seeds: int, root: Path) -> list[Job]:
    """All runs of a campaign: seed by seed, so that every cell has a first result early."""
    return [Job(cell, seed, root / cell.row / cell.model / f"seed-{seed}") for seed in range(seeds) for cell in cells]


def run(
    campaign: list[Job],
    processes: int,
    backend: str = "auto",
    tick: Callable[[dict[Job, Outcome | None]], None] = lambda _: None,
) -> dict[Job, Outcome]:
    """Run all jobs; `tick` is called about once a second with every job that is done or under way."""
    for job in campaign:
        # A directory that belongs to another configuration is the user's mistake: say so before anything starts.
        if (job.directory / "config.json").exists():
            RunDirectory(job.directory).create(job.config)
    outcomes: dict[Job, Outcome] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        futures: dict[Future[Outcome], Job] = {
            pool.submit(_train, json.dumps(to_json(job.config)), str(job.directory), backend): job for job in campaign
        }
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                outcomes |= {futures[future]: future.result() for future in done}
                tick({futures[f]: None for f in pending if f.running()} | outcomes)
        except KeyboardInterrupt:
            # The workers got the same signal: each saves its run and stops.
            for future in pending:
                future.cancel()
            raise
    return outcomes


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _train(config: str, directory: str, backend: str) -> Outcome:
    from nsm.training.learner import Diverged
    from nsm.training.loop import Interrupted, train

    try:
        train(from_json(RunConfig, json.loads(config)), directory, backend)
    except (Diverged, UserError) as error:
        return Outcome("failed", str(error))
    except (Interrupted, KeyboardInterrupt):
        return Outcome("interrupted")
    return Outcome("done")


def progress(job: Job) -> tuple[int, dict[str, Any]]:
    """How far a run has come: the step, and the last line of its metrics."""
    lines = RunDirectory(job.directory).metrics()
    return (lines[-1]["step"], lines[-1]) if lines else (0, {})
