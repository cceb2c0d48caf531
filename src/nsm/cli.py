"""The command line: parses, calls, prints."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from nsm.experiments import params


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Regenerate a table of the paper, beside the published numbers. Example: nsm reproduce params"""

    experiment: tyro.conf.Positional[Literal["params"]]
    """Which table: params (every published parameter count)."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        rows = params.table()
        if self.json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
            return
        table = Table("row", "model", "published", "ours", "", "note", title="Parameters")
        for column in table.columns[2:4]:
            column.justify = "right"
        for row in rows:
            verdict = "exact" if row.published == row.ours else "differs"
            table.add_row(row.row, row.model, f"{row.published:,}", f"{row.ours:,}", verdict, row.note)
        console().print(table)


def console() -> Console:
    """Standard output; away from a terminal wide enough that a table is not broken."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def main() -> None:
    command = tyro.cli(
        Annotated[Reproduce, tyro.conf.subcommand("reproduce")] | Annotated[None, tyro.conf.subcommand("none")],
        prog="nsm",
    )
    if command is not None:
        command.run()
