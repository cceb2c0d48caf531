"""Runs of a second or less: a tiny Copy on tiny machines, and what is compared of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from nsm import NTM, Controller, MachineConfig, Programs
from nsm.experiments import recipes
from nsm.tasks import Copy
from nsm.training.callbacks import Callback
from nsm.training.distribution import ALONE
from nsm.training.experiment import Experiment, Optimiser, Schedule
from nsm.training.loop import Stop, train
from nsm.training.run import RunDirectory
from nsm.training.signals import asked_by_signal
from nsm.tree import to_json

TASK = Copy(width=2, length=(1, 3), test=Copy(width=2, length=(5, 5)))
SMALL = {
    "iterations": 12,
    "batch_size": 2,
    "log_every": 2,
    "evaluate_every": 4,
    "validation_sequences": 6,
    "test_sequences": 6,
    "checkpoint_every": 3,
}
SCHEDULE = {field.name for field in fields(Schedule)}


def small(programs: int | None = 2, size: int = 8, **changes) -> Experiment:
    """A run of a dozen iterations, with changes of its schedule or of other parts; an optimiser also by its kind."""
    machine = MachineConfig(
        4, 2, Controller(size=size), NTM(slots=8, width=4), Programs(programs) if programs else None
    )
    kind = changes.pop("optimiser", "rmsprop")
    optimiser = Optimiser(kind, learning_rate=3e-3) if isinstance(kind, str) else kind
    schedule = {name: changes.pop(name) for name in SCHEDULE & changes.keys()}
    parts = {"task": TASK, "machine": machine, "optimiser": optimiser, "schedule": Schedule(**{**SMALL, **schedule})}
    return Experiment(**{**parts, **changes})


def continual(iterations: int, **changes) -> Experiment:
    """The same machine on four tasks, one after another."""
    task = recipes.continual("ntm").task
    machine = replace(small().machine, input_size=10, output_size=8)
    curriculum = recipes.continual("ntm").schedule.curriculum
    return small(iterations=iterations, task=task, machine=machine, curriculum=curriculum, **changes)


def learnable() -> Experiment:
    """A run of a second that learns its task."""
    falling = Optimiser(learning_rate=3e-3, final_rate=0.05)
    often = {"log_every": 20, "evaluate_every": 100, "validation_sequences": 32, "checkpoint_every": 700}
    return small(size=16, iterations=700, batch_size=8, optimiser=falling, **often)


def overshooting(**changes) -> Experiment:
    """A run whose learning rate is too high: its validation loss is lowest at the first evaluation, of step 4."""
    return small(optimiser=Optimiser(learning_rate=0.03), **changes)


class At(Callback):
    """Does something after a step, or before the first one if that is 0."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self.step, self.act = step, act

    def on_start(self, run, progress) -> None:
        self.on_step(progress, None)

    def on_step(self, progress, line) -> None:
        if progress.step == self.step:
            self.act()


def commanded(experiment: Experiment, directory: str | Path, *arguments, ranks=ALONE, **options):
    """Train as the command does: the first signal asks the run to stop, the second ends the process."""
    with asked_by_signal(stop := Stop(ranks)):
        return train(experiment, directory, *arguments, ranks=ranks, stop=stop, **options)


def contents(directory: Path) -> dict[str, bytes]:
    """All of a run that must not depend on when it was interrupted: the metrics, and the last and the best checkpoint.

    Which others are left does depend on it: an interruption saves one more.
    """
    run = RunDirectory(directory)
    found = {"metrics.jsonl": run.metrics_path.read_bytes()}
    for which in ("best", "last"):
        checkpoint = run.checkpoints / f"{run.checkpoint(which).step:08d}"
        found |= {f"{which}/{file.name}": file.read_bytes() for file in sorted(checkpoint.iterdir())}
    outcome = run.outcome()
    assert outcome is not None
    found["result"] = json.dumps({k: v for k, v in to_json(outcome).items() if "seconds" not in k}).encode()
    return found


def strays(directory: Path) -> list[str]:
    """Names a run should not have left behind."""
    known = {"config.json", "metrics.jsonl", "checkpoints", "clock.json", "lock", "result.json", "failure.json"}
    found = [path.name for path in directory.iterdir() if path.name not in known]
    checkpoints = directory / "checkpoints"
    return found + [p.name for p in checkpoints.iterdir() if not p.name.isdigit()] if checkpoints.exists() else found


def in_another_process(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code that can use these helpers, in a fresh Python."""
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    setup += "from training.small_runs import *\n"
    command = [sys.executable, "-c", setup + code, *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
