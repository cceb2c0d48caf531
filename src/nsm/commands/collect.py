"""nsm collect"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsm.checks import UserError
from nsm.screen import console


@dataclass(frozen=True)
class Collect:
    """Publish what runs came to as small files: a result per seed, and the best machine of each cell.

    The machines are run directories that `nsm eval` and `nsm view` take.

    Example: nsm collect --runs runs --out results
    """

    runs: Path = Path("runs")
    """Where the runs are, as nsm reproduce lays them out."""
    out: Path = Path("results")
    """Where to write them."""

    def run(self) -> None:
        from nsm.experiments import results

        if not results.find(self.runs):
            raise UserError(f"{self.runs} has no runs of nsm reproduce in it")
        try:
            for line in results.collect(self.runs, self.out):
                console().print(line)
        except OSError as error:
            raise UserError(f"{self.out} can't be written: {error.strerror}") from None
