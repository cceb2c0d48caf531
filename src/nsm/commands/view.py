"""nsm view"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.data import DataDir
from nsm.commands.plugins import Plugins, load_plugins
from nsm.commands.ranges import LIKE, Range, ranges_given
from nsm.commands.terminal import Integer, option
from nsm.data.source import look_in
from nsm.screen import console

MOST_SAMPLES = 50
FIGURES = (".svg", ".pdf", ".png")


@dataclass(frozen=True)
class View:
    """Watch a trained machine at work: writes one page that opens in any browser, without a network.

    The machine itself is in the page: it works on what you put in. To begin with there are the first sequences of the
    test, and the best and the worst of the first 50. Ranges are one number or two: 120, or 10-20.

    Example: nsm view runs/copy --length 30 --out copy.html
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run's directory."""
    out: Annotated[Path | None, option("PATH", "RUN/view.html")] = None
    """The page."""
    figure: Annotated[Path | None, option("PATH", "none")] = None
    """Also draw the first sequence to this file: .svg, .pdf or .png."""
    beside: Annotated[Path | None, option("RUN", "none")] = None
    """Another run, whose machine is shown the same: an NTM beside a NUTM, say."""
    which: str = "best"
    """best (lowest validation loss) or last."""
    samples: int = 3
    """How many test sequences, besides the best and the worst."""
    seed: Annotated[Integer, option("INT", "the run's")] = None
    """Of the sequences."""
    like: str = "test"
    """test, or training for new sequences like those it was trained on."""
    length: Range = None
    """Vectors to copy, or bits of an n-gram source."""
    repeats: Range = None
    """How often Repeat Copy repeats."""
    items: Range = None
    """Items of Associative Recall or Priority Sort."""
    sorted_items: Range = None
    """How many of its items Priority Sort gives back."""
    slots: Annotated[Integer, option("INT", "the machine's")] = None
    """Size of the tape."""
    serve: bool = False
    """Also serve the page on this machine (127.0.0.1) until stopped."""
    data_dir: DataDir = None
    """Where the data sets are; see nsm data."""
    port: Annotated[int, tyro.conf.arg(help_behavior_hint="(default: any that is free)")] = 0
    """Where to serve it."""
    imports: Plugins = ()
    """Modules with tasks or memories of your own, to import first."""

    def run(self) -> None:
        choose("which", self.which, ("best", "last"))
        choose("like", self.like, LIKE)
        at_least("port", self.port, 0)
        look_in(self.data_dir)
        if at_least("samples", self.samples, 1) > MOST_SAMPLES:
            raise UserError(f"samples must be at most {MOST_SAMPLES}, was {self.samples}")
        if self.figure is not None and self.figure.suffix not in FIGURES:
            raise UserError(f"figure must end with {', '.join(FIGURES)}, was {str(self.figure)!r}")
        ranges = ranges_given(self)
        load_plugins(self.imports)
        import torch

        from nsm.reports.output import write
        from nsm.run import Run

        torch.set_num_threads(1)
        chosen = {"like": self.like, "seed": self.seed, "slots": self.slots, **ranges}
        executions, text = Run(self.directory).watch(self.which, self.samples, self.beside, **chosen)
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

            serve(text, self.port, lambda address: say(f"Serving it at {address}; stop with Ctrl-C."))
