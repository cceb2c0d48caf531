"""nsm data"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import tyro

from nsm.checks import UserError, choose
from nsm.commands.options import DataDir
from nsm.data.source import Finding, RemoteFile, fetch, root
from nsm.screen import console


class DataSet(Protocol):
    """A module of nsm.data."""

    @property
    def FILES(self) -> tuple[RemoteFile, ...]: ...
    def check(self, root: Path) -> Finding: ...


@dataclass(frozen=True)
class Data:
    """Download a data set, or check whether it is complete. Existing files are not downloaded again.

    Ends with code 2 if something is missing, damaged or can't be downloaded.

    Example: nsm data fetch omniglot --data-dir ~/data
    """

    action: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="fetch|check")]
    """fetch (download what is missing, then check) or check."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """omniglot or babi."""
    data_dir: DataDir = None
    """Directory of the data sets; each has its own subdirectory."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        choose("action", self.action, ("fetch", "check"))
        from nsm.data import babi, omniglot

        data_sets: dict[str, DataSet] = {omniglot.NAME: omniglot, babi.NAME: babi}
        data_set = data_sets[choose("data set", self.name, data_sets)]
        directory = root(self.data_dir)
        if self.action == "fetch":
            fetch(data_set.FILES, directory / self.name)
        finding = data_set.check(directory)
        if self.json:
            where = {"name": self.name, "directory": str(directory / self.name)}
            print(json.dumps({**where, "found": finding.lines, "problems": finding.problems}, indent=2))
        else:
            for line in finding.lines:
                console().print(line)
        if finding.problems:
            raise UserError("; ".join(finding.problems))
