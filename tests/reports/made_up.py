"""Results that nobody trained: what a cell came to, as files that are published of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from nsm.experiments.paper import cells
from nsm.experiments.results import Key, Record, write
from nsm.training.experiment import Experiment
from nsm.training.result import Failure, Outcome, Score

TINY = ["--controller.size", "8", "--memory.slots", "16", "--memory.width", "4"]
TINY += ["--validation-sequences", "4", "--test-sequences", "4"]
"""Options of `nsm train` for a run of seconds."""
VERSIONS = {"nsm": "0.1.0", "commit": "abc123"}


def curve(*losses: float, every: int = 100) -> list[dict[str, Any]]:
    """Lines of metrics with these losses."""
    return [{"step": every * (n + 1), "loss": loss, "validation": {"loss": loss}} for n, loss in enumerate(losses)]


@cache
def planned(experiment: str, preset: str) -> dict[tuple[str, str], Experiment]:
    return {(cell.row, cell.model): cell.experiment for cell in cells(experiment, preset)}


def keep(root: Path, experiment: str, settings: str, row: str, model: str, seed: int, **changes: Any) -> Path:
    """Keep a seed: `best`, its figures on the test; `solved`, the iteration it was solved at; whether it is `over`."""
    figures = {"loss": 0.1, "bit_errors": 0.0, "l1_errors": 0.0, "perfect": 1.0, **changes.get("best", {})}
    best = None if changes.get("phases") else Score(1000, figures)
    solved = changes.get("solved")
    outcome = Outcome(
        steps=1000,
        seconds=10.0,
        solved_step=solved,
        solved_seconds=None if solved is None else solved / 100,
        validation_loss=0.1,
        best_step=1000,
        parameters=10_000,
        backend="fused",
        best=best,
        last=best,
        phases=tuple(changes.get("phases", ())),
        notes=tuple(changes.get("notes", ())),
    )
    failure = Failure(**{"diverged": False, **changes["failure"]}) if "failure" in changes else None
    known = planned(experiment, settings.partition("-")[0])
    run = known.get((row, model)) or next(iter(known.values()))
    run = replace(run, seed=seed, schedule=replace(run.schedule, iterations=changes.get("iterations", 1000)))
    lines = changes.get("curve", curve(0.6, 0.3, 0.1))
    place = root / Key(experiment, settings, row, model, seed).cell / f"seed-{seed}.json"
    over = changes.get("over", True)
    write(Record(run, VERSIONS, lines, outcome if over and not failure else None, failure), place)
    return place
