"""nsm gallery"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsm.checks import UserError
from nsm.commands.options import DataDir
from nsm.data.source import look_in
from nsm.screen import console, many

SAMPLES = 2
SECONDS = 2
"""Seconds per page, roughly."""


@dataclass(frozen=True)
class Gallery:
    """Write a directory of pages, each running a trained machine, and an index page: ready for any static host.

    Takes less than a minute. Shows the published machines, in results/models. A machine whose data set is not installed
    is left out, with a message.

    Example: nsm gallery --out gallery
    """

    out: Path = Path("gallery")
    """Directory to write to."""
    models: Path = Path("results/models")
    """Directory of the trained machines."""
    data_dir: DataDir = None
    """Directory of the data sets; see nsm data."""

    def run(self) -> None:
        look_in(self.data_dir)
        if not self.models.is_dir():
            raise UserError(f"there is no directory {self.models}: give that of the trained machines with --models")
        import torch

        from nsm.reports.output import write
        from nsm.reports.viewer.gallery import EXHIBITS, Hung, index, portrait
        from nsm.run import Run

        torch.set_num_threads(1)
        say = console().print
        say(f"{len(EXHIBITS)} pages, about {SECONDS * len(EXHIBITS)} s.")
        hung = []
        for number, exhibit in enumerate(EXHIBITS, start=1):
            beside = None if exhibit.beside is None else self.models / exhibit.beside
            try:
                run = Run(self.models / exhibit.run)
                executions, text = run.watch(
                    samples=SAMPLES,
                    beside=beside,
                    title=exhibit.title,
                    **exhibit.chosen,  # type: ignore[arg-type]
                )
            except UserError as error:
                say(f"{number}/{len(EXHIBITS)} {exhibit.title} left out: {error}")
                continue
            page = self.out / f"{exhibit.name}.html"
            write(page, text.encode())
            facts = f"{run.experiment.machine.model.upper()}, {run.machine().parameter_count:,} parameters"
            hung.append(Hung(exhibit, portrait(executions[0]), facts, len(text.encode())))
            say(f"{number}/{len(EXHIBITS)} {exhibit.title}: {page}")
        if not hung:
            raise UserError(f"{self.models} has none of the gallery's machines: give their directory with --models")
        write(self.out / "index.html", index(hung).encode())
        say(f"The gallery is {self.out / 'index.html'}: {many(len(hung), 'machine')}.")
