"""What a run came to: read from its directory, or from the one small file that is kept of it in the repository.

results/<experiment>/<settings>/<row>/<model>/seed-K.json      config, seed, versions, thinned curve, result
results/models/<experiment>/<settings>/<row>/<model>/          the best seed's machine: a small run directory

Both say in `of` whose they are, and count nowhere else; both have their own digest (nsm.documents).

Runs lie under the same names: runs/<experiment>/<settings>/<row>/<model>/seed-K/. `settings` is a preset, with a budget
of iterations behind it if the runs were cut short: paper, default-2000.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from nsm import documents
from nsm.checks import UserError
from nsm.files import Damaged, directory_atomically, write_atomically
from nsm.pretrained import check_fields, from_json, to_json
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.config import RunConfig
from nsm.training.learner import KEPT
from nsm.training.run import Line, RunDirectory, check_failure, check_result

FORMAT = "nsm-result"
VERSION = 1
MODELS = "models"
LARGEST_RESULT = 20 << 10
"""Bytes of a kept result; its curve is thinned until it fits."""
LARGEST_MODEL = 3_000_000
"""Bytes of a kept machine; larger ones are left where they are."""
POINTS = 200
"""Points of a kept curve at most."""
SEED = re.compile(r"seed-([0-9]{1,10})(\.json)?")


class Key(NamedTuple):
    """Whose result it is."""

    experiment: str
    settings: str
    row: str
    model: str
    seed: int

    @property
    def cut_short(self) -> bool:
        """Whether its run had a budget of iterations."""
        return "-" in self.settings

    @property
    def cell(self) -> Path:
        """Where the cell lies, under the root of runs or of results."""
        return Path(self.experiment, self.settings, self.row, self.model)

    @classmethod
    def at(cls, place: Path) -> Key:
        """Whose result lies at a place: seed-K.json in its cell."""
        *_, experiment, settings, row, model, name = (*[""] * 4, *place.absolute().parts)
        number = SEED.fullmatch(name)
        return cls(experiment, settings, row, model, int(number[1]) if number else -1)


@dataclass(frozen=True)
class Record:
    """One seed of a cell."""

    config: dict[str, Any]
    """As JSON has it: a result outlives the options it was made with."""
    seed: int
    made_with: dict[str, Any]
    """Versions and commit."""
    curve: list[dict[str, Any]]
    """Lines of metrics: step, loss, held_out."""
    result: dict[str, Any] | None
    failure: dict[str, Any] | None

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of the curve with figures of held-out sequences."""
        return [line for line in self.curve if "held_out" in line]


def find(root: Path) -> dict[Key, Path]:
    """All runs or kept results under a root, by whose they are."""
    found = {}
    for place in sorted(root.glob("*/*/*/*/seed-*")):
        number = SEED.fullmatch(place.name)
        kind = place.is_file() if number and number[2] else (place / "config.json").is_file()
        if number and kind:
            experiment, settings, row, model = place.relative_to(root).parts[:4]
            found[Key(experiment, settings, row, model, int(number[1]))] = place
    return found


def outcome(place: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The result of a run or why it failed, from its directory or from its kept file; neither if it is not over."""
    if place.suffix == ".json":
        record = read(place)
        return record.result, record.failure
    run = RunDirectory(place)
    result = run.result()
    return result, None if result else run.failure()


def rank(result: dict[str, Any] | None, failure: dict[str, Any] | None) -> int:
    """How far an outcome goes: 2 it ended, 1 it failed, 0 neither yet."""
    return 2 if result is not None else 1 if failure is not None else 0


def solves(result: dict[str, Any] | None, failure: dict[str, Any] | None) -> bool | None:
    """Whether a run learned its task: no if it diverged, but a process that died tells nothing.

    None where it can't be told: tasks of continual learning are not judged one by one, and prediction that is no better
    than chance allows is never near zero.
    """
    if result is None:
        return False if failure is not None and failure.get("diverged") else None
    if "phases" in result or "optimum_bits" in result["best"]:
        return None
    return result["solved_step"] is not None


def configuration(place: Path) -> RunConfig:
    """What a run was started with, from its directory or from its kept file."""
    return from_json(RunConfig, read(place).config) if place.suffix == ".json" else RunDirectory(place).config()


def read(place: Path) -> Record:
    """All that is known of a seed, from a run's directory or from the file that is kept of it."""
    if place.suffix != ".json":
        run = RunDirectory(place)
        config = to_json(run.config())
        return Record(config, config["seed"], run.made_with, run.metrics(), *outcome(place))
    try:
        document = documents.read_any(place)
    except OSError as error:
        raise UserError(f"{place} can't be read: {error.strerror}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(f"{place} is not a result of nsm")
    if document.get("version") != VERSION:
        raise UserError(f"{place} has version {document.get('version')!r}; this nsm reads version {VERSION}")
    document = documents.unsealed(place, document)
    of, here = document.pop("of", None), Key.at(place)
    if of != here._asdict() or document.get("seed") != here.seed:
        raise UserError(f"{place} is not the result of seed {here.seed} of {here.cell}: it was kept of {_words(of)}")
    try:
        fields = {name: value for name, value in document.items() if name not in ("format", "version")}
        record = from_json(Record, fields, "it")
        for check, found in ((check_result, record.result), (check_failure, record.failure)):
            if found is not None:
                check(found)
        for line in record.curve:
            check_fields(Line, line, "curve")
    except UserError as error:
        raise Damaged(f"{place} is damaged: {error}") from None
    return record


def _words(of: Any) -> str:
    """Whose a result is, in words."""
    return "/".join(map(str, of.values())) if isinstance(of, dict) else "nothing that it says"


def write(record: Record, place: Path) -> None:
    """Keep a result: the same file for the same run, its curve thinned until the file is small."""
    points = POINTS
    while True:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "of": Key.at(place)._asdict(),
            "config": record.config,
            "seed": record.seed,
            "made_with": record.made_with,
            "result": record.result,
            "failure": record.failure,
            "curve": _rounded(thinned(record.curve, points)),
        }
        content = documents.text(document, indent=None) + b"\n"
        if len(content) <= LARGEST_RESULT or points == 1:
            break
        points = max(1, points * 3 // 4)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, content)


def thinned(lines: list[dict[str, Any]], points: int) -> list[dict[str, Any]]:
    """At most `points` lines: neighbours become one, with their mean loss and the latest of everything else."""
    size = math.ceil(len(lines) / points)
    kept = []
    for start in range(0, len(lines), max(1, size)):
        group = lines[start : start + size]
        merged: dict[str, Any] = {}
        for line in group:
            merged |= line
        losses = [line["loss"] for line in group if "loss" in line]
        kept.append({**merged, "loss": sum(losses) / len(losses)} if losses else merged)
    return kept


def _rounded(value: Any) -> Any:
    """Five digits are enough for a curve."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


# --- keeping ----------------------------------------------------------------------------------------------------------


def collect(runs: Path, out: Path) -> Iterator[str]:
    """Keep every run under `runs`, and each cell's best machine; says what it keeps, and what it can't.

    Of a run that is not over, what it has come to so far is kept: its curve. Of one cut short, no machine. What was
    kept of a run that ended stays, whatever became of the seed when it was run again.
    """
    cells: dict[Path, list[tuple[float, Path, Key]]] = {}
    for key, place in find(runs).items():
        try:
            record = read(place)
        except UserError as error:
            yield f"{error}: left out"
            continue
        if record.seed != key.seed:
            yield f"{place} is a run of seed {record.seed}: left out"
            continue
        over = rank(record.result, record.failure)
        if not over and not record.evaluations:
            yield f"{place} has not been evaluated yet: left out"
            continue
        kept = out / key.cell / f"seed-{key.seed}.json"
        if kept.exists() and rank(*_outcome_if_readable(kept)) > over:
            yield f"{place} {'failed' if over else 'is not over yet'}, and what {kept} has went further: left as it is"
            continue
        write(record, kept)
        yield f"kept {kept}" + ("" if over else f", not over yet: {record.curve[-1]['step']:,} iterations")
        if record.result is not None and not key.cut_short:
            cells.setdefault(key.cell, []).append((badness(record.result), place, key))
    for cell, seeds in cells.items():
        bad, best, key = min(seeds)
        kept = out / MODELS / cell
        earlier = kept_result(kept)
        if earlier is not None and badness(earlier) <= bad:
            continue
        size = keep_machine(RunDirectory(best), kept, key)
        if size > LARGEST_MODEL:
            yield f"the machine of {best} has {size:,} bytes, more than {LARGEST_MODEL:,}: left out"
        else:
            yield f"kept {kept}, the machine of {best.name}"


def _outcome_if_readable(kept: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """A damaged file is worth nothing: it may be written anew."""
    try:
        return outcome(kept)
    except UserError:
        return None, None


def badness(result: dict[str, Any]) -> float:
    """How far a finished run is from perfect, on its test: less is better, within one cell."""
    if "phases" in result:
        return 1 - fmean(result["phases"][-1].values())
    return float(result["best"]["loss"])


def kept_result(place: Path) -> dict[str, Any] | None:
    """The result of a machine that is kept, None if none is there; it must be of the cell it lies in."""
    result = RunDirectory(place).result() if checkpoints.steps(place / "checkpoints") else None
    if result is None:
        return None
    cell, of = place.absolute().parts[-4:], result.get("of", {})
    if tuple(of.get(name) for name in Key._fields[:4]) != cell:
        raise UserError(f"{place} is not the machine of {'/'.join(cell)}: it was kept of {_words(of)}")
    return result


def keep_machine(run: RunDirectory, out: Path, of: Key) -> int:
    """Copy a run's best machine to a small run directory, unless it is too large; returns its size in bytes.

    The copy has what `nsm eval` and `nsm view` need: the configuration, the result and one checkpoint, of whose
    optimiser all is left out but a persistent memory, with which `eval` begins.
    """
    best = run.checkpoint("best")
    size = sum(tensor.numel() * tensor.element_size() for tensor in best.model.values())
    if size > LARGEST_MODEL:
        return size
    state = {**best.state, "best_step": best.step}
    memory = {name: tensor for name, tensor in best.optimiser.items() if name.startswith(KEPT)}
    with directory_atomically(out) as temporary:
        shutil.copyfile(run.path / "config.json", temporary / "config.json")
        RunDirectory(temporary).finish({**(run.result() or {}), "of": of._asdict()})
        checkpoints.save(temporary / "checkpoints", Checkpoint(best.step, best.model, memory, state))
    return size
