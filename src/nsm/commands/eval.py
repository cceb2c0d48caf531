"""nsm eval"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import at_least, choose, thread_count
from nsm.commands.data import DataDir
from nsm.commands.plugins import Plugins, load_plugins
from nsm.commands.ranges import LIKE, Range, ranges_given
from nsm.commands.terminal import Integer, option
from nsm.data.source import look_in
from nsm.names import BACKENDS
from nsm.screen import console


@dataclass(frozen=True)
class Eval:
    """Test a trained machine, at any length. Ranges are one number or two: 120, or 10-20.

    Example: nsm eval runs/copy --length 240 --slots 512
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run's directory."""
    which: str = "best"
    """best (lowest validation loss) or last."""
    sequences: Annotated[Integer, option("INT", "the run's")] = None
    """How many test sequences; of a data set no more than it has."""
    seed: Annotated[Integer, option("INT", "the run's")] = None
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
    slots: Annotated[Integer, option("INT", "the machine's")] = None
    """Size of the tape."""
    persistent: Annotated[bool | None, option("{True,False}", "the run's")] = None
    """Memory goes from each batch to the next."""
    data_dir: DataDir = None
    """Where the data sets are; see nsm data."""
    backend: str = "auto"
    """auto, reference or fused."""
    threads: int = 1
    """Threads of torch."""
    imports: Plugins = ()
    """Modules with tasks or memories of your own, to import first."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        threads = thread_count(self.threads)
        choose("which", self.which, ("best", "last"))
        choose("like", self.like, LIKE)
        choose("backend", self.backend, BACKENDS)
        if self.sequences is not None:
            at_least("sequences", self.sequences, 1)
        ranges = ranges_given(self)
        look_in(self.data_dir)
        load_plugins(self.imports)
        import torch

        from nsm.run import Run
        from nsm.training.result import ranges_of

        torch.set_num_threads(threads)
        chosen = {"like": self.like, "seed": self.seed, "slots": self.slots, **ranges}
        results = Run(self.directory).tests(self.which, self.sequences, self.persistent, self.backend, **chosen)
        if not self.json:
            for result in results.values():
                console().print(str(result))
            return
        rows = [
            {
                "task": name,
                "settings": {**result.settings, "ranges": ranges_of(result.task)},
                "figures": {**result.figures},
                "notes": list(result.task.notes),
            }
            for name, result in results.items()
        ]
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
