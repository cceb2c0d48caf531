"""All there is to report on: runs and published results, by experiment and settings, and machines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

from nsm.experiments import results
from nsm.experiments.paper import Cell, cells
from nsm.experiments.results import Key, Record, Settings
from nsm.experiments.summary import Summary, summarise
from nsm.training.experiment import Experiment
from nsm.training.result import Outcome
from nsm.training.run import RunDirectory

Group = dict[tuple[str, str], Summary]
"""The cells of an experiment under some settings, by row and model, the paper's first; only those that were run."""


class Trained(NamedTuple):
    """A trained machine, and where it comes from."""

    key: Key
    run: RunDirectory
    outcome: Outcome

    @property
    def words(self) -> str:
        kind = "" if self.key.experiment in ("single", "sequencing") else f"{self.key.experiment}, "
        return f"{kind}{self.key.settings} settings"


class Evidence:
    """Runs, published results and machines under a few roots."""

    def __init__(self, runs: Path | None, published: Path | None) -> None:
        self.roots = [root for root in (published, runs) if root is not None]
        self.paths: dict[Key, Path] = {}
        for root in self.roots:
            for key, path in results.find(root).items():
                # A run replaces its published result, unless that has got further.
                if key not in self.paths or results.read(path).rank >= results.read(self.paths[key]).rank:
                    self.paths[key] = path

    def settings(self, experiment: str) -> list[Settings]:
        """The settings that an experiment was run with, the most informative first."""
        names = {key.settings for key in self.paths if key.experiment == experiment}
        return sorted(filter(None, map(Settings.named, names)), key=lambda settings: settings.order)

    def group(self, experiment: str, settings: Settings) -> Group:
        """The cells of an experiment that were run with some settings."""
        paths: dict[tuple[str, str], list[Path]] = {}
        for key, path in sorted(self.paths.items()):
            if (key.experiment, key.settings) == (experiment, settings.directory):
                paths.setdefault((key.row, key.model), []).append(path)
        planned: list[Cell] = cells(experiment, settings.preset, budget=settings.budget) if paths else []
        return {name: summarise(c, paths[name]) for c in planned if (name := (c.row, c.model)) in paths}

    def groups(self, experiment: str) -> list[tuple[Settings, Group]]:
        """All runs of an experiment by their settings, the most informative first; unfinished runs come last."""
        found = [(settings, self.group(experiment, settings)) for settings in self.settings(experiment)]
        return sorted(((settings, group) for settings, group in found if group), key=lambda pair: _untold(pair[1]))

    def machines(self, *experiments: str) -> list[Trained]:
        """Every machine of runs that were not cut short, the most informative settings first, none twice."""
        found: dict[Experiment, Trained] = {}
        for experiment in experiments:
            for settings in self.settings(experiment):
                keys = [key for key in self.paths if key[:2] == (experiment, settings.directory) and not key.cut_short]
                for trained in self._machines(keys):
                    found.setdefault(trained.run.experiment, trained)
        return list(found.values())

    def machine(self, experiment: str, row: str, model: str) -> Trained | None:
        """The best machine of a cell, from the most informative settings that have one."""
        for settings in self.settings(experiment):
            cell = (experiment, settings.directory, row, model)
            if found := self._machines(key for key in self.paths if key[:4] == cell):
                return min(found, key=lambda trained: trained.outcome.badness)
        return None

    def _machines(self, keys: Iterable[Key]) -> list[Trained]:
        """The machines of some seeds: the published ones, and those of runs."""
        places: dict[Path, tuple[Key, Outcome | None]] = {}
        for key, root in product(sorted(keys), self.roots):
            published, run = root / results.MODELS / key.cell, root / key.cell / f"seed-{key.seed}"
            if published not in places:
                places[published] = key, results.published_outcome(published)
            places[run] = key, _usable(RunDirectory(run))
        found = ((key, RunDirectory(path), outcome) for path, (key, outcome) in places.items() if outcome is not None)
        return [Trained(key._replace(seed=run.experiment.seed), run, outcome) for key, run, outcome in found]


def _untold(group: Group) -> int:
    """0 if a cell has a seed that finished, 1 if one has been evaluated, 2 if nothing is known yet."""
    if any(summary.finished for summary in group.values()):
        return 0
    return 1 if any(record.evaluations for summary in group.values() for record in summary.records) else 2


def _usable(run: RunDirectory) -> Outcome | None:
    """The outcome of a run that still has a machine."""
    return run.outcome() if run.checkpoints.is_dir() else None


def commits(records: Iterable[Record]) -> list[str]:
    """The commits that records were made at."""
    return sorted({str(record.made_with.get("commit") or f"nsm {record.made_with.get('nsm')}") for record in records})
