"""nsm report"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import UserError
from nsm.commands.data import DataDir
from nsm.commands.terminal import console, option
from nsm.data.source import look_in


@dataclass(frozen=True)
class Report:
    """Every table and figure of the paper beside ours, with seeds, commits, budgets and a verdict; or one run's report.

    Takes the runs of nsm reproduce and the results that nsm collect kept. What was not run is said to be so.

    Example: nsm report --runs runs --out report.html --markdown docs/results.md
    """

    directory: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """Report on this run alone."""
    runs: Annotated[Path | None, option("PATH", "runs, if it is there")] = None
    """Where runs lie, as nsm reproduce lays them out."""
    results: Annotated[Path | None, option("PATH", "results, if it is there")] = None
    """Where kept results lie."""
    out: Annotated[Path | None, option("PATH", "report.html, or RUN/report.html")] = None
    """The page."""
    markdown: Annotated[Path | None, option("PATH", "none")] = None
    """Also write the report as Markdown, with its figures beside it under images/."""

    data_dir: DataDir = None
    """Where data sets lie, a directory for each."""

    def run(self) -> None:
        look_in(self.data_dir)
        roots = [_root("runs", self.runs), _root("results", self.results)] if self.directory is None else []
        import torch

        from nsm.commands.pages import watch
        from nsm.reports.document import save_pictures, to_html, to_markdown
        from nsm.reports.output import write
        from nsm.reports.paper.evidence import Evidence
        from nsm.reports.paper.report import report
        from nsm.reports.run_report import run_report
        from nsm.training.run import RunDirectory

        torch.set_num_threads(1)
        if self.directory is not None:
            run = RunDirectory(self.directory)
            document = run_report(run, watch(run, samples=1)[0])
        else:
            document = report(Evidence(*roots))
        out = self.out or (self.directory / "report.html" if self.directory else Path("report.html"))
        write(out, to_html(document).encode())
        console().print(f"The report is {out}.")
        if self.markdown is not None:
            pictures = Path("images", self.markdown.stem)
            save_pictures(document, self.markdown.parent / pictures)
            write(self.markdown, to_markdown(document, pictures.as_posix()).encode())
            console().print(f"As Markdown it is {self.markdown}.")


def _root(name: str, given: Path | None) -> Path | None:
    """A directory that must be there if it was named, and may be there if not."""
    if given is not None and not given.is_dir():
        raise UserError(f"{name} must be a directory, was {str(given)!r}")
    root = given or Path(name)
    return root if root.is_dir() else None
