"""nsm eval"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from nsm.checks import at_least, choose, thread_count
from nsm.commands.options import Integer, RunDirectory, option
from nsm.commands.sequences import USUAL, SequencesOptions
from nsm.names import BACKENDS
from nsm.screen import console


@dataclass(frozen=True)
class Eval:
    """Test a trained machine, at any length. A range is one number (120) or two (10-20).

    Example: nsm eval runs/copy --length 240 --slots 512
    """

    directory: RunDirectory
    """Directory of the run."""
    sequences: Annotated[Integer, option("INT", "the run's")] = None
    """Number of test sequences; at most as many as the data set has."""
    persistent: Annotated[bool | None, option("{True,False}", "the run's")] = None
    """Keep the memory's content from batch to batch."""
    backend: str = "auto"
    """auto, reference (plain PyTorch) or fused (CPU kernels)."""
    threads: int = 1
    """Threads of PyTorch."""
    json: bool = False
    """Print JSON."""
    put_to: SequencesOptions = USUAL
    """Which machine of the run, on which sequences."""

    def run(self) -> None:
        threads = thread_count(self.threads)
        choose("backend", self.backend, BACKENDS)
        if self.sequences is not None:
            at_least("sequences", self.sequences, 1)
        chosen = self.put_to.sequences()
        import torch

        from nsm.run import Run
        from nsm.training.result import ranges_of

        torch.set_num_threads(threads)
        which = self.put_to.which
        results = Run(self.directory).tests(which, self.sequences, self.persistent, self.backend, **chosen)
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
