"""nsm report"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import UserError
from nsm.commands.data import DataDir
from nsm.commands.plugins import Plugins, load_plugins
from nsm.commands.terminal import option
from nsm.data.source import look_in
from nsm.screen import console


@dataclass(frozen=True)
class Report:
    """Every table and figure of the paper beside ours, with seeds, commits, budgets and a verdict; or one run's report.

    Takes the runs of nsm reproduce and the results that nsm collect wrote. What was not run is said to be so.

    Example: nsm report --runs runs --out report.html --markdown docs/results.md
    """

    directory: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """Report on this run alone."""
    runs: Annotated[Path | None, option("PATH", "runs, if it is there")] = None
    """Where runs lie, as nsm reproduce lays them out."""
    results: Annotated[Path | None, option("PATH", "results, if it is there")] = None
    """Where published results are."""
    out: Annotated[Path | None, option("PATH", "report.html, or RUN/report.html")] = None
    """The page."""
    markdown: Annotated[Path | None, option("PATH", "none")] = None
    """Also write the report as Markdown, with its figures beside it under images/."""
    data_dir: DataDir = None
    """Where the data sets are; see nsm data."""
    imports: Plugins = ()
    """Modules with tasks or memories of your own, to import first."""

    def run(self) -> None:
        look_in(self.data_dir)
        roots = [_root("runs", self.runs), _root("results", self.results)] if self.directory is None else []
        load_plugins(self.imports)
        import torch

        from nsm.reports.document import save_pictures, to_html, to_markdown
        from nsm.reports.output import write
        from nsm.reports.paper.evidence import Evidence
        from nsm.reports.paper.report import report
        from nsm.reports.run_report import run_report
        from nsm.run import Run

        torch.set_num_threads(1)
        if self.directory is not None:
            run = Run(self.directory)
            document = run_report(run, run.watch(samples=1)[0])
        else:
            document = report(Evidence(*roots), _say)
            _say("figures")
        out = self.out or (self.directory / "report.html" if self.directory else Path("report.html"))
        write(out, to_html(document).encode())
        console().print(f"The report is {out}.")
        if self.markdown is not None:
            pictures = Path("images", self.markdown.stem)
            save_pictures(document, self.markdown.parent / pictures)
            write(self.markdown, to_markdown(document, pictures.as_posix()).encode())
            console().print(f"As Markdown it is {self.markdown}.")


def _say(what: str) -> None:
    """What is being done, for whoever waits."""
    print(f"nsm: {what} …", file=sys.stderr, flush=True)


def _root(name: str, given: Path | None) -> Path | None:
    """A directory that must be there if it was named, and may be there if not."""
    if given is not None and not given.is_dir():
        raise UserError(f"{name} must be a directory, was {str(given)!r}")
    root = given or Path(name)
    return root if root.is_dir() else None
