"""Runs of a second or less: a tiny Copy on tiny machines, and what is compared of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from nsm import NTM, Controller, MachineConfig, Programs
from nsm.tasks import Copy, TaskPair, registry
from nsm.training.config import OptimiserConfig, RunConfig
from nsm.training.run import RunDirectory

NAME = "tiny-copy"
TASK = TaskPair(Copy(width=2, length=(1, 3)), Copy(width=2, length=(5, 5)))
SMALL = {
    "iterations": 12,
    "batch_size": 2,
    "log_every": 2,
    "evaluate_every": 4,
    "evaluate_sequences": 6,
    "test_sequences": 6,
    "checkpoint_every": 3,
}


def register() -> None:
    """Make the tiny task known by its name, as the tests' fixture does for this process."""
    registry.TASKS[NAME] = TASK


def small(programs: int | None = 2, size: int = 8, **changes) -> RunConfig:
    """A run of a dozen iterations; `optimiser` may be given by its name."""
    machine = MachineConfig(
        4, 2, Controller(size=size), NTM(slots=8, width=4), Programs(programs) if programs else None
    )
    if isinstance(changes.get("optimiser", "rmsprop"), str):
        changes["optimiser"] = OptimiserConfig(changes.get("optimiser", "rmsprop"), learning_rate=3e-3)
    return replace(RunConfig(NAME, machine), **{**SMALL, **changes})


def learnable() -> RunConfig:
    """A run of a second that learns its task."""
    falling = OptimiserConfig(learning_rate=3e-3, final_rate=0.05)
    often = {"log_every": 20, "evaluate_every": 100, "evaluate_sequences": 32, "checkpoint_every": 700}
    return small(size=16, iterations=700, batch_size=8, optimiser=falling, **often)


def overshooting(**changes) -> RunConfig:
    """A run whose learning rate is too high: its held-out loss is lowest at the first evaluation, of step 4."""
    return small(optimiser=OptimiserConfig(learning_rate=0.03), **changes)


def contents(directory: Path) -> dict[str, bytes]:
    """All of a run that must not depend on when it was interrupted: the metrics, and the last and the best checkpoint.

    Which others are left does depend on it: an interruption saves one more.
    """
    run = RunDirectory(directory)
    found = {"metrics.jsonl": run.metrics_path.read_bytes()}
    for which in ("best", "last"):
        checkpoint = run.checkpoints / f"{run.checkpoint(which).step:08d}"
        found |= {f"{which}/{file.name}": file.read_bytes() for file in sorted(checkpoint.iterdir())}
    result = run.result()
    assert result is not None
    found["result"] = json.dumps({k: v for k, v in result.items() if "seconds" not in k}).encode()
    return found


def strays(directory: Path) -> list[str]:
    """Names a run should not have left behind."""
    known = {"config.json", "metrics.jsonl", "checkpoints", "clock.json", "lock", "result.json", "failure.json"}
    found = [path.name for path in directory.iterdir() if path.name not in known]
    checkpoints = directory / "checkpoints"
    return found + [p.name for p in checkpoints.iterdir() if not p.name.isdigit()] if checkpoints.exists() else found


def in_another_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code that can use these helpers, in a fresh Python."""
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    setup += "from training.small_runs import *; register()\n"
    return subprocess.run([sys.executable, "-c", setup + code, *arguments], capture_output=True, text=True, check=False)
