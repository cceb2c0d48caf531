"""nsm report"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import UserError
from nsm.commands.options import DataDir, Plugins, load_plugins, option
from nsm.data.source import look_in
from nsm.screen import console, many


@dataclass(frozen=True)
class Report:
    """Write a report with every table and figure of the paper beside ours, with verdicts, seeds, commits and budgets;
    or a report on one run.

    Reads the runs of nsm reproduce and the results of nsm collect, and lists what has not been run. Takes about a
    minute if all of the paper has been run.

    Example: nsm report --runs runs --out report.html
    """

    directory: Annotated[Path | None, tyro.conf.Positional, option("RUN", "all runs and results")] = None
    """Report on this run alone."""
    runs: Annotated[Path | None, option("PATH", "runs, if it exists")] = None
    """Directory of the runs, as nsm reproduce writes them."""
    results: Annotated[Path | None, option("PATH", "results, if it exists")] = None
    """Directory of collected results."""
    out: Annotated[Path | None, option("PATH", "report.html, or RUN/report.html")] = None
    """File to write the page to."""
    markdown: Annotated[Path | None, option("PATH", "none")] = None
    """Also write the report as Markdown, with its figures as PNG in images/ beside it."""
    svg: bool = False
    """With --markdown: write the figures as SVG, too."""
    data_dir: DataDir = None
    """Directory of the data sets; see nsm data."""
    imports: Plugins = ()
    """Modules with your own tasks or memories, imported first."""

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
            evidence = Evidence(*roots)
            if not evidence.paths:
                raise UserError("no runs in runs/ and no results in results/: name them with --runs or --results")
            _say(f"reporting on {many(len(evidence.paths), 'run')}, which takes up to two minutes")
            document = report(evidence, _say)
            _say("figures")
        out = self.out or (self.directory / "report.html" if self.directory else Path("report.html"))
        write(out, to_html(document).encode())
        console().print(f"The report is {out}.")
        if self.markdown is not None:
            pictures = Path("images", self.markdown.stem)
            save_pictures(document, self.markdown.parent / pictures, self.svg)
            write(self.markdown, to_markdown(document, pictures.as_posix(), self.svg).encode())
            console().print(f"The report in Markdown is {self.markdown}.")


def _say(what: str) -> None:
    """Progress, on standard error."""
    print(f"nsm: {what} …", file=sys.stderr, flush=True)


def _root(name: str, given: Path | None) -> Path | None:
    """A directory that must exist if the user gave it, and may be missing otherwise."""
    if given is not None and not given.is_dir():
        raise UserError(f"{name} must be a directory, was {str(given)!r}")
    root = given or Path(name)
    return root if root.is_dir() else None
