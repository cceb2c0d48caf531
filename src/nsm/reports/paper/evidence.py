"""All there is to report on: runs and kept results, by experiment and settings, and the best machine of each cell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from nsm.experiments import results
from nsm.experiments.choice import Preset
from nsm.experiments.paper import EXPERIMENTS, Cell, cells
from nsm.experiments.results import Key, Record
from nsm.experiments.summary import Summary, summarise
from nsm.names import PRESETS
from nsm.tasks import Figures
from nsm.training.result import Outcome
from nsm.training.run import Line, RunDirectory


@dataclass(frozen=True)
class Settings:
    """What runs were made with: a preset, and a budget of iterations if they were cut short."""

    preset: Preset
    budget: int | None = None

    @classmethod
    def named(cls, name: str) -> Settings | None:
        """The settings a directory's name stands for; None if it stands for none."""
        parts = re.fullmatch(r"([a-z]+)(?:-([0-9]+))?", name)
        if parts is None or parts[1] not in PRESETS:
            return None
        return cls(cast(Preset, parts[1]), int(parts[2]) if parts[2] else None)

    @property
    def directory(self) -> str:
        return self.preset if self.budget is None else f"{self.preset}-{self.budget}"

    @property
    def words(self) -> str:
        cut = "" if self.budget is None else f", cut to {self.budget:,} iterations"
        return f"{self.preset} settings{cut}"

    @property
    def order(self) -> tuple[bool, int, int]:
        """Whole runs before those cut short, the paper's settings first."""
        rank = ("paper", "default", "authors").index(self.preset)
        return self.budget is not None, rank, -(self.budget or 0)


@dataclass(frozen=True)
class Seeds:
    """All seeds of one cell; `cell` is None where this nsm has no such experiment."""

    cell: Cell | None
    paths: list[Path]

    @cached_property
    def records(self) -> list[Record]:
        return [results.read(path) for path in self.paths]

    @cached_property
    def summary(self) -> Summary:
        assert self.cell is not None
        return summarise(self.cell, self.paths)

    @property
    def finished(self) -> list[Outcome]:
        """The outcomes of the seeds that finished."""
        return [record.outcome for record in self.records if record.outcome is not None]

    @property
    def scores(self) -> list[Figures]:
        """The figures of every finished seed's best machine."""
        return [outcome.best.figures for outcome in self.finished if outcome.best is not None]

    @property
    def curves(self) -> list[list[Line]]:
        return [record.curve for record in self.records if record.curve]


Group = dict[tuple[str, str], Seeds]
"""The cells of an experiment under some settings, by row and model, the paper's first; only those that were run."""


class Evidence:
    """Runs, kept results and kept machines under a few roots."""

    def __init__(self, runs: Path | None, kept: Path | None) -> None:
        self.roots = [root for root in (kept, runs) if root is not None]
        self.paths: dict[Key, Path] = {}
        for root in self.roots:
            for key, path in results.find(root).items():
                # A run goes before what was published of it, unless that has come further.
                if key not in self.paths or results.read(path).rank >= results.read(self.paths[key]).rank:
                    self.paths[key] = path

    def settings(self, experiment: str) -> list[Settings]:
        """The settings there are runs of an experiment with, the most telling first."""
        names = {key.settings for key in self.paths if key.experiment == experiment}
        return sorted(filter(None, map(Settings.named, names)), key=lambda settings: settings.order)

    def group(self, experiment: str, settings: Settings) -> Group:
        """The cells of an experiment that were run with some settings."""
        paths: dict[tuple[str, str], list[Path]] = {}
        for key, path in sorted(self.paths.items()):
            if (key.experiment, key.settings) == (experiment, settings.directory):
                paths.setdefault((key.row, key.model), []).append(path)
        known: dict[tuple[str, str], Cell] = {}
        if experiment in EXPERIMENTS:
            planned = cells(experiment, settings.preset, budget=settings.budget)
            known = {(cell.row, cell.model): cell for cell in planned}
            paths = {name: paths[name] for name in known if name in paths}
        return {name: Seeds(known.get(name), found) for name, found in paths.items()}

    def groups(self, experiment: str) -> list[tuple[Settings, Group]]:
        """All runs of an experiment by their settings, the most telling first: those only begun tell nothing."""
        found = [(settings, self.group(experiment, settings)) for settings in self.settings(experiment)]
        return sorted(((settings, group) for settings, group in found if group), key=lambda pair: _untold(pair[1]))

    def machine(self, experiment: str, row: str, model: str) -> tuple[Settings, RunDirectory] | None:
        """The best machine of a cell, of the most telling settings that have one."""
        for settings in self.settings(experiment):
            cell = Path(experiment, settings.directory, row, model)
            published = [root / results.MODELS / cell for root in self.roots]
            runs = [root / cell / f"seed-{key.seed}" for root in self.roots for key in self._seeds(cell)]
            found = [(results.published_outcome(path), path) for path in published]
            found += [(_usable(RunDirectory(path)), path) for path in runs]
            over = [(outcome.badness, path) for outcome, path in found if outcome is not None]
            if over:
                return settings, RunDirectory(min(over, key=lambda pair: pair[0])[1])
        return None

    def _seeds(self, cell: Path) -> Iterable[Key]:
        return [key for key in self.paths if key.cell == cell]


def _untold(group: Group) -> int:
    """0 if a cell has a seed that finished, 1 if one has been evaluated, 2 if nothing is known yet."""
    if any(seeds.finished for seeds in group.values()):
        return 0
    return 1 if any(record.evaluations for seeds in group.values() for record in seeds.records) else 2


def _usable(run: RunDirectory) -> Outcome | None:
    """The outcome of a run that still has a machine."""
    return run.outcome() if run.checkpoints.is_dir() else None


def commits(records: Iterable[Record]) -> str:
    """The commits that records were made at, in words."""
    found = sorted({str(record.made_with.get("commit") or f"nsm {record.made_with.get('nsm')}") for record in records})
    return ", ".join(found) or "none"
