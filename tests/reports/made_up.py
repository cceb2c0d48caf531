"""Results that nobody trained: what a cell came to, as files that are kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsm.experiments.results import Key, Record, write

VERSIONS = {"nsm": "0.1.0", "commit": "abc123"}


def curve(*losses: float, every: int = 100) -> list[dict[str, Any]]:
    """Lines of metrics with these losses."""
    return [{"step": every * (n + 1), "loss": loss, "held_out": {"loss": loss}} for n, loss in enumerate(losses)]


def keep(root: Path, experiment: str, settings: str, row: str, model: str, seed: int, **changes: Any) -> Path:
    """Keep a seed: `best`, its figures on the test; `solved`, the iteration it was solved at; whether it is `over`."""
    best = {"loss": 0.1, "bit_errors": 0.0, "l1_errors": 0.0, "perfect": 1.0, **changes.get("best", {})}
    solved = changes.get("solved")
    result = {
        "task": row.removesuffix("-persistent"),
        "model": model,
        "seed": seed,
        "steps": 1000,
        "held_out_loss": 0.1,
        "best_step": 1000,
        "parameters": 10_000,
        "backend": "fused",
        "solved_step": solved,
        "solved_seconds": None if solved is None else solved / 100,
        "seconds": 10.0,
        "best": best,
    }
    if "phases" in changes:
        result = {**result, "phases": changes["phases"]}
    failure = {"diverged": False, **changes["failure"]} if "failure" in changes else None
    config = {"task": row, "seed": seed, "iterations": changes.get("iterations", 1000)}
    lines = changes.get("curve", curve(0.6, 0.3, 0.1))
    place = root / Key(experiment, settings, row, model, seed).cell / f"seed-{seed}.json"
    over = changes.get("over", True)
    write(Record(config, seed, VERSIONS, lines, result if over and not failure else None, failure), place)
    return place
