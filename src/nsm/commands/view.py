"""nsm view"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import UserError, at_least
from nsm.commands.options import RunDirectory, option
from nsm.commands.sequences import USUAL, SequencesOptions
from nsm.screen import console

MOST_SAMPLES = 50
FIGURES = (".svg", ".pdf", ".png")


@dataclass(frozen=True)
class View:
    """Watch a trained machine compute: write one page that opens in any browser, offline.

    The machine itself runs in the page, on any input you give it. The page comes with the first test sequences, and the
    best and the worst of the first 50. A range is one number (120) or two (10-20).

    Example: nsm view runs/copy --length 30 --out copy.html
    """

    directory: RunDirectory
    """Directory of the run."""
    out: Annotated[Path | None, option("PATH", "RUN/view.html")] = None
    """File to write the page to."""
    figure: Annotated[Path | None, option("PATH", "none")] = None
    """Also draw the first sequence to this file: .svg, .pdf or .png."""
    beside: Annotated[Path | None, option("RUN", "none")] = None
    """Another run to compare with on the same input, for example an NTM with a NUTM."""
    samples: int = 3
    """Number of test sequences, in addition to the best and the worst."""
    serve: bool = False
    """Also serve the page on this machine (127.0.0.1) until stopped."""
    port: Annotated[int, tyro.conf.arg(help_behavior_hint="(default: any free port)")] = 0
    """Port to serve the page on."""
    put_to: SequencesOptions = USUAL
    """Which machine of the run, on which sequences."""

    def run(self) -> None:
        at_least("port", self.port, 0)
        if at_least("samples", self.samples, 1) > MOST_SAMPLES:
            raise UserError(f"samples must be at most {MOST_SAMPLES}, was {self.samples}")
        if self.figure is not None and self.figure.suffix not in FIGURES:
            raise UserError(f"figure must end with {', '.join(FIGURES)}, was {str(self.figure)!r}")
        chosen = self.put_to.sequences()
        import torch

        from nsm.reports.output import write
        from nsm.run import Run

        torch.set_num_threads(1)
        executions, text = Run(self.directory).watch(self.put_to.which, self.samples, self.beside, **chosen)
        out = self.out or self.directory / "view.html"
        write(out, text.encode())
        say = console().print
        say(f"The page is {out}: open it in a browser.")
        if self.figure is not None:
            from nsm.reports import figures  # half a second that only a figure needs

            figures.save(figures.execution(executions[0]), self.figure)
            say(f"The figure is {self.figure}.")
        if self.serve:
            from nsm.commands.serve import serve

            serve(text, self.port, lambda address: say(f"The page is served at {address} until you press Ctrl-C."))
