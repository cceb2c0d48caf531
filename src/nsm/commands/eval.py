"""nsm eval"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.terminal import console
from nsm.machine import BACKENDS
from nsm.tasks import Continual, with_ranges
from nsm.training.evaluation import evaluate
from nsm.training.loop import task_pair
from nsm.training.run import RunDirectory


@dataclass(frozen=True)
class Eval:
    """Test a trained machine, at any length. Ranges are one number or two: 120, or 10-20.

    Example: nsm eval runs/copy --length 240 --slots 512
    """

    directory: tyro.conf.Positional[Path]
    """A run's directory."""
    which: str = "best"
    """best (lowest held-out loss) or last."""
    sequences: int = 1_000
    """How many test sequences."""
    seed: int | None = None
    """Of the sequences; the run's own if not given."""
    length: str | None = None
    repeats: str | None = None
    items: str | None = None
    sorted_items: str | None = None
    slots: int | None = None
    """Size of the tape, if not the machine's own."""
    backend: str = "auto"
    threads: int = 1
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        torch.set_num_threads(at_least("threads", self.threads, 1))
        choose("which", self.which, ("best", "last"))
        choose("backend", self.backend, BACKENDS)
        at_least("sequences", self.sequences, 1)
        run = RunDirectory(self.directory)
        config = run.config()
        given = {name: getattr(self, name) for name in ("length", "repeats", "items", "sorted_items")}
        ranges = {name: _range(name, text) for name, text in given.items() if text is not None}
        test = task_pair(config).test
        machine = run.machine(self.which, self.backend)
        seed = config.seed if self.seed is None else at_least("seed", self.seed, 0)
        tests = test.tasks if isinstance(test, Continual) else {config.task: test}
        rows: list[dict[str, Any]] = []
        for name, task in tests.items():
            task = with_ranges(task, **ranges) if ranges else task
            figures = evaluate(machine, task, self.sequences, seed, slots=self.slots).averages()
            settings = {
                "task": name,
                "which": self.which,
                "seed": seed,
                "slots": self.slots or machine.memory.slots,
                "ranges": {field: getattr(single, field) for single in task.singles() for field in single.ranges},
            }
            rows.append({**settings, **figures, "sequences": int(figures["sequences"])})
        if self.json:
            print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
            return
        for row in rows:
            settings = ", ".join(f"{field} {_shown(value)}" for field, value in row["ranges"].items())
            console().print(f"{row['task']}, {settings}, {row['slots']} slots, {row['sequences']:,} sequences:")
            console().print(
                f"  {row['bit_errors']:.2f} wrong bits per sequence (Σ|p−y| {row['l1_errors']:.2f}), "
                f"{row['perfect']:.1%} of sequences without any, bit accuracy {row['bit_accuracy']:.2%}"
            )
            if "optimum_bits" in row:
                console().print(
                    f"  cross-entropy {row['cross_entropy_bits']:.2f} bits, the best possible {row['optimum_bits']:.2f}"
                )


def _range(name: str, text: str) -> int | tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdigit() or (high and not high.isdigit()):
        raise UserError(f"{name} must be a number or two joined by a dash, like 120 or 10-20, was {text!r}")
    return (int(low), int(high)) if high else int(low)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return str(value[0]) if value[0] == value[1] else f"{value[0]}–{value[1]}"
    return str(value)
