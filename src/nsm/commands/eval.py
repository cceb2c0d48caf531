"""nsm eval"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from nsm.checks import at_least, choose, thread_count
from nsm.commands.data import DataDir
from nsm.commands.ranges import LIKE, Range, ranges_of, shown
from nsm.commands.terminal import by_presentation, by_task, console, option
from nsm.data.source import look_in
from nsm.names import BACKENDS


@dataclass(frozen=True)
class Eval:
    """Test a trained machine, at any length. Ranges are one number or two: 120, or 10-20.

    Example: nsm eval runs/copy --length 240 --slots 512
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run's directory."""
    which: str = "best"
    """best (lowest held-out loss) or last."""
    sequences: Annotated[int | None, option("INT", "the run's")] = None
    """How many test sequences; of a data set no more than it has."""
    seed: Annotated[int | None, option("INT", "the run's")] = None
    """Of the sequences."""
    like: str = "test"
    """test, or training for new sequences like those it was trained on."""
    length: Range = None
    """Vectors to copy, bits of an n-gram source, or drawings of a few-shot episode."""
    repeats: Range = None
    """How often Repeat Copy repeats."""
    items: Range = None
    """Items of Associative Recall or Priority Sort."""
    sorted_items: Range = None
    """How many of its items Priority Sort gives back."""
    slots: Annotated[int | None, option("INT", "the machine's")] = None
    """Size of the tape."""
    persistent: Annotated[bool | None, option("{True,False}", "the run's")] = None
    """Memory goes from each batch to the next."""
    data_dir: DataDir = None
    """Where data sets lie; see nsm data."""
    backend: str = "auto"
    """auto, reference or fused."""
    threads: int = 1
    """Threads of torch."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        threads = thread_count(self.threads)
        choose("which", self.which, ("best", "last"))
        choose("like", self.like, LIKE)
        choose("backend", self.backend, BACKENDS)
        if self.sequences is not None:
            at_least("sequences", self.sequences, 1)
        ranges = ranges_of(self)
        look_in(self.data_dir)
        import torch

        from nsm.commands.sequences import check_room, sequences, settings_of
        from nsm.tasks import Continual
        from nsm.tasks.task import EXAMINED
        from nsm.training.evaluation import evaluate
        from nsm.training.learner import kept_memory
        from nsm.training.run import RunDirectory

        torch.set_num_threads(threads)
        run = RunDirectory(self.directory)
        config = run.config()
        persistent = config.persistent if self.persistent is None else self.persistent
        test = sequences(config, self.like, ranges)
        machine = run.machine(self.which, self.backend)
        asked = self.sequences or config.test_sequences
        check_room(config.machine, test, min(asked, EXAMINED), self.slots)
        # What training left in memory goes with its tape: on one of another size memory begins empty.
        kept = kept_memory(machine, run.checkpoint(self.which).optimiser) if persistent and not self.slots else None
        seed = config.seed if self.seed is None else at_least("seed", self.seed, 0)
        tests = test.tasks if isinstance(test, Continual) else {config.task: test}
        rows: list[dict[str, Any]] = []
        for name, task in tests.items():
            sums = evaluate(
                machine,
                task,
                asked,
                seed,
                slots=self.slots,
                persistent=persistent,
                kept=kept,
            )
            figures = sums.averages()
            settings = {
                "task": name,
                "which": self.which,
                "like": self.like,
                "seed": seed,
                "slots": self.slots or machine.memory.slots,
                "persistent": persistent,
                "ranges": settings_of(task),
            }
            row = {"settings": settings, **figures, "sequences": int(figures["sequences"])}
            rows.append({**row, "notes": list(task.notes)} if task.notes else row)
        if self.json:
            print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
            return
        for row in rows:
            _describe(row)


def _describe(row: dict[str, Any]) -> None:
    """A row of figures in plain words."""
    say, settings = console().print, row["settings"]
    parts = [
        settings["task"],
        shown(settings["ranges"]),
        f"{settings['slots']} slots",
        f"{row['sequences']:,} sequences",
    ]
    say(f"{', '.join(filter(None, parts))}:")
    if "bit_errors" not in row:
        say(f"  {row['error']:.2%} of answers wrong{by_presentation(row)}{by_task(row)}")
        for note in row.get("notes", ()):
            say(f"  Note: {note}.")
        return
    say(
        f"  {row['bit_errors']:.2f} wrong bits per sequence (Σ|p−y| {row['l1_errors']:.2f}), "
        f"{row['perfect']:.1%} of sequences without any, bit accuracy {row['bit_accuracy']:.2%}"
    )
    if "optimum_bits" in row:
        say(f"  cross-entropy {row['cross_entropy_bits']:.2f} bits, the best possible {row['optimum_bits']:.2f}")
