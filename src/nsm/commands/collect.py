"""nsm collect"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nsm.checks import UserError
from nsm.commands.options import option
from nsm.screen import called, console


@dataclass(frozen=True)
class Collect:
    """Collect the results of runs into small files: one per seed, and the best machine of each cell.

    nsm report, nsm eval, nsm view and nsm reproduce --results read these files without the runs.

    Example: nsm collect --runs runs --out runs/results
    """

    runs: Path = Path("runs")
    """Directory of the runs, as nsm reproduce writes them."""
    out: Annotated[Path | None, option("PATH", "results in the directory of the runs")] = None
    """Directory to write to. An existing result is kept unless its run has got further."""

    def run(self) -> None:
        from nsm.experiments import results

        if not results.find(self.runs):
            raise UserError(f"{self.runs} contains no runs of nsm reproduce: give their directory with --runs")
        out = self.out or self.runs / "results"
        try:
            for line in results.collect(self.runs, out):
                console().print(line)
        except OSError as error:
            raise UserError(f"{out} can't be written: {error.strerror}") from None
        console().print(f"The results are in {out}; see their tables with: {called()} report --results {out}")
