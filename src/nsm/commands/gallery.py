"""nsm gallery"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsm.checks import UserError
from nsm.commands.data import DataDir
from nsm.data.source import look_in
from nsm.screen import console

SAMPLES = 2


@dataclass(frozen=True)
class Gallery:
    """Write a folder of pages, each with a trained machine that runs in it, and an index: ready for any static host.

    The machines are those published under results/models. Those whose data set is not there are left out, and named.

    Example: nsm gallery --out site
    """

    out: Path = Path("gallery")
    """The folder."""
    models: Path = Path("results/models")
    """Where the trained machines are."""
    data_dir: DataDir = None
    """Where the data sets are; see nsm data."""

    def run(self) -> None:
        look_in(self.data_dir)
        if not self.models.is_dir():
            raise UserError(f"there is no directory {self.models}: give the one with the published machines, --models")
        import torch

        from nsm.reports.output import write
        from nsm.reports.viewer.gallery import EXHIBITS, Hung, index, portrait
        from nsm.run import Run

        torch.set_num_threads(1)
        say = console().print
        hung = []
        for exhibit in EXHIBITS:
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
                say(f"{exhibit.title} is left out: {error}")
                continue
            page = self.out / f"{exhibit.name}.html"
            write(page, text.encode())
            facts = f"{run.experiment.machine.model.upper()}, {run.machine().parameter_count:,} parameters"
            hung.append(Hung(exhibit, portrait(executions[0]), facts, len(text.encode())))
            say(f"{page}: {exhibit.title}")
        if not hung:
            raise UserError(f"{self.models} has none of the machines that the gallery shows")
        write(self.out / "index.html", index(hung).encode())
        say(f"The gallery is {self.out / 'index.html'}: {len(hung)} machines.")
