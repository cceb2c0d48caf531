"""Results of runs: read from a run's directory, or from the small file that is published of it.

results/<experiment>/<settings>/<row>/<model>/seed-K.json      experiment, versions, thinned curve, result
results/models/<experiment>/<settings>/<row>/<model>/          the best seed's machine: a small run directory

Both name their cell in `of` and are valid only there; both have their own digest (nsm.documents).

Runs have the same names: runs/<experiment>/<settings>/<row>/<model>/seed-K/. `settings` is a preset, followed by the
budget of iterations if the runs were cut short: paper, default-2000.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from nsm import documents
from nsm.checks import UserError
from nsm.experiments.choice import Preset
from nsm.files import Damaged, directory_atomically, write_atomically
from nsm.files import read as read_bytes
from nsm.names import PRESETS
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.experiment import Experiment
from nsm.training.result import Failure, Outcome, solves
from nsm.training.run import Line, RunDirectory
from nsm.tree import check_fields, from_json, to_json

FORMAT = "nsm-result"
VERSION = 2
MODELS = "models"
LARGEST_RESULT = 20 << 10
"""Bytes of a published result at most; its curve is thinned until it fits."""
LARGEST_MODEL = 4_000_000
"""Bytes of a published machine at most; larger ones are left out."""
POINTS = 200
"""Points of a published curve at most."""
SEED = re.compile(r"seed-([0-9]{1,10})(\.json)?")


@dataclass(frozen=True)
class Settings:
    """Settings of runs: a preset, and a budget of iterations if they were cut short."""

    preset: Preset
    budget: int | None = None

    @classmethod
    def named(cls, name: str) -> Settings | None:
        """The settings of a directory's name, None if it is not one of settings."""
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
        """Complete runs before those cut short, the paper's settings first."""
        rank = ("paper", "default", "authors").index(self.preset)
        return self.budget is not None, rank, -(self.budget or 0)


class Key(NamedTuple):
    """The cell and the seed of a result."""

    experiment: str
    settings: str
    row: str
    model: str
    seed: int

    @property
    def cut_short(self) -> bool:
        """Whether the run had a budget of iterations."""
        return "-" in self.settings

    @property
    def cell(self) -> Path:
        """Path of the cell, under the root of runs or of results."""
        return Path(self.experiment, self.settings, self.row, self.model)

    @classmethod
    def at(cls, path: Path) -> Key:
        """The key of a path: seed-K.json in its cell."""
        *_, experiment, settings, row, model, name = (*[""] * 4, *path.absolute().parts)
        number = SEED.fullmatch(name)
        return cls(experiment, settings, row, model, int(number[1]) if number else -1)


@dataclass(frozen=True)
class Record:
    """One seed of a cell."""

    experiment: Experiment
    made_with: dict[str, str | None]
    """Versions and commit."""
    curve: list[Line]
    """Lines of metrics, thinned in a published result."""
    outcome: Outcome | None
    failure: Failure | None

    @property
    def solved(self) -> bool | None:
        """Whether it solved its task; None if unknown."""
        return solves(self.experiment.task, self.outcome, self.failure)

    @property
    def rank(self) -> int:
        """2: it finished; 1: it failed; 0: neither yet."""
        return 2 if self.outcome is not None else 1 if self.failure is not None else 0

    @property
    def evaluations(self) -> list[Line]:
        """The lines of the curve with an evaluation."""
        return [line for line in self.curve if "validation" in line]


def find(root: Path) -> dict[Key, Path]:
    """All runs or published results under a root, by key."""
    found = {}
    for path in sorted(root.glob("*/*/*/*/seed-*")):
        number = SEED.fullmatch(path.name)
        # Also if it is not a file: reading it gives the error, and it must not pass for a missing run.
        if number and os.path.lexists(path if number[2] else path / "config.json"):
            experiment, settings, row, model = path.relative_to(root).parts[:4]
            found[Key(experiment, settings, row, model, int(number[1]))] = path
    return found


def read(path: Path) -> Record:
    """The record of a seed, from a run's directory or from its published file."""
    if path.suffix != ".json":
        run = RunDirectory(path)
        outcome = run.outcome()
        failure = None if outcome is not None else run.failure()
        return Record(run.experiment, run.made_with, run.lines(), outcome, failure)
    try:
        content = read_bytes(path, documents.LARGEST)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None
    return _published(path, content)


@lru_cache(maxsize=10_000)
def _published(path: Path, content: bytes) -> Record:
    """The record in a published file; cached, because tables read the same files many times."""
    document = documents.parsed(path, content)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(f"{path} is not an nsm result")
    if document.get("version") != VERSION:
        raise UserError(f"{path} has version {document.get('version')!r}; this nsm reads version {VERSION}")
    document = documents.unsealed(path, document)
    of, here = document.pop("of", None), Key.at(path)
    if of != here._asdict():
        raise UserError(f"{path} is not the result of seed {here.seed} of {here.cell}: it was written for {_words(of)}")
    try:
        curve = [cast(Line, check_fields(Line, line, "curve")) for line in _list(document.pop("curve", None))]
        fields = {name: value for name, value in document.items() if name not in ("format", "version")}
        record = replace(from_json(Record, {**fields, "curve": []}, "it"), curve=curve)
    except UserError as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if record.experiment.seed != here.seed:
        raise UserError(f"{path} is not the result of seed {here.seed}: it is of seed {record.experiment.seed}")
    return record


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UserError("curve must be a list")
    return value


def _words(of: Any) -> str:
    """Whose a result is, in words."""
    return "/".join(map(str, of.values())) if isinstance(of, dict) else "no cell"


def write(record: Record, path: Path) -> None:
    """Publish a result, its curve thinned until the file is small; the same run gives the same file."""
    points = POINTS
    while True:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "of": Key.at(path)._asdict(),
            **to_json(replace(record, curve=[])),
            "curve": _rounded(thinned(record.curve, points)),
        }
        content = documents.text(document, indent=None) + b"\n"
        if len(content) <= LARGEST_RESULT or points == 1:
            break
        points = max(1, points * 3 // 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def thinned(lines: Sequence[Line], points: int) -> list[Line]:
    """At most `points` lines: neighbours are merged, with their mean loss and the last value of all else."""
    size = math.ceil(len(lines) / points)
    found: list[Line] = []
    for start in range(0, len(lines), max(1, size)):
        group = lines[start : start + size]
        merged: Line = {"step": 0}
        for line in group:
            merged |= line
        if losses := [line["loss"] for line in group if "loss" in line]:
            merged["loss"] = sum(losses) / len(losses)
        found.append(merged)
    return found


def _rounded(curve: list[Line]) -> Any:
    """A curve with five digits, and null for numbers that are not finite."""
    text = json.dumps(curve)
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.5g}"), parse_constant=lambda _: None)


# --- publishing -------------------------------------------------------------------------------------------------------


def collect(runs: Path, out: Path) -> Iterator[str]:
    """Publish every run under `runs`, and each cell's best machine; yields what it writes and what it leaves out.

    Of an unfinished run the curve so far is published, of a run cut short no machine. The result of a finished run is
    never replaced by one that failed or is unfinished.
    """
    cells: dict[Path, list[tuple[float, Path, Key]]] = {}
    for key, path in find(runs).items():
        try:
            record = read(path)
        except UserError as error:
            yield f"{error}: left out"
            continue
        if record.experiment.seed != key.seed:
            yield f"{path} is a run of seed {record.experiment.seed}: left out"
            continue
        if not record.rank and not record.evaluations:
            yield f"{path} has no evaluation yet: left out"
            continue
        target = out / key.cell / f"seed-{key.seed}.json"
        if target.exists() and _rank_if_readable(target) > record.rank:
            state = "failed" if record.rank else "is not finished"
            yield f"{path} {state}, but {target} got further: kept"
            continue
        write(record, target)
        yield f"wrote {target}" + ("" if record.rank else f", unfinished: {record.curve[-1]['step']:,} iterations")
        if record.outcome is not None and not key.cut_short:
            cells.setdefault(key.cell, []).append((record.outcome.badness, path, key))
    for cell, seeds in cells.items():
        bad, best, key = min(seeds)
        target = out / MODELS / cell
        earlier = published_outcome(target)
        if earlier is not None and earlier.badness <= bad:
            continue
        size = publish_machine(RunDirectory(best), target, key)
        if size > LARGEST_MODEL:
            yield f"the machine of {best} has {size:,} bytes, more than {LARGEST_MODEL:,}: left out"
        else:
            yield f"wrote {target}, the machine of {best.name}"


def _rank_if_readable(path: Path) -> int:
    """The rank of a published result; 0 if it is damaged, so that it is written again."""
    try:
        return read(path).rank
    except UserError:
        return 0


def published_outcome(path: Path) -> Outcome | None:
    """The outcome of a published machine, None if there is none; it must be of its cell."""
    run = RunDirectory(path)
    outcome = run.outcome() if checkpoints.steps(run.checkpoints) else None
    if outcome is None:
        return None
    cell, of = path.absolute().parts[-4:], run.owner()
    if tuple(of.get(name) for name in Key._fields[:4]) != cell:
        raise UserError(f"{path} is not the machine of {'/'.join(cell)}: it was written for {_words(of)}")
    return outcome


def publish_machine(run: RunDirectory, out: Path, of: Key) -> int:
    """Copy a run's best machine to a small run directory, unless it is too large; returns its size in bytes.

    The copy has what `nsm eval` and `nsm view` need: configuration, result, and one checkpoint without the optimiser
    but with persistent memory.
    """
    best, outcome = run.checkpoint("best"), run.outcome()
    size = sum(tensor.numel() * tensor.element_size() for tensor in best.model.values())
    if size > LARGEST_MODEL or outcome is None:
        return size
    state = {**best.state, "best_step": best.step}
    with directory_atomically(out) as temporary:
        shutil.copyfile(run.path / "config.json", temporary / "config.json")
        RunDirectory(temporary).finish(outcome, of._asdict())
        checkpoints.save(temporary / "checkpoints", Checkpoint(best.step, best.model, {}, best.memory, state))
    return size
