"""A run's directory: its configuration, metrics, checkpoints and outcome.

config.json        the resolved configuration, with the versions and the commit it was started with
metrics.jsonl      one line per logged step, append-only; the same bytes whether the run was interrupted or not
checkpoints/       see nsm.training.checkpoints
clock.json         time spent so far, apart from all that is the same in every run
lock               held by the process that trains, with its id
result.json        written when the run has finished: figures on the test sequences, time taken
failure.json       written when it failed: the reason

Every .json has its own digest in `self`, see nsm.documents; the digest of the metrics is in the checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import numpy as np
import torch

from nsm import documents
from nsm.checks import UserError, fits
from nsm.files import Damaged, is_temporary, locked, naming, opened, sweep
from nsm.machine import Machine
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.experiment import Experiment
from nsm.training.result import Failure, Outcome
from nsm.tree import check_fields, from_json, to_json
from nsm.version import __version__

logger = logging.getLogger("nsm")
T = TypeVar("T")
FORMAT = "nsm-run"
VERSION = 2


class _Step(TypedDict):
    step: int


class Line(_Step, total=False):
    """A line of metrics."""

    loss: float
    validation: dict[str, float]
    test: dict[str, float]
    accuracies: dict[str, float]
    rewinds: int


class RunDirectory:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics_path = self.path / "metrics.jsonl"

    # --- opening ------------------------------------------------------------------------------------------------------

    def check(self, experiment: Experiment) -> None:
        """Raise a UserError for a directory of another configuration, or of something else."""
        # Listed first: a run that another process starts meanwhile writes its config.json before any other file.
        files = [file.name for file in self.path.iterdir() if not is_temporary(file)] if self.path.is_dir() else []
        if (self.path / "config.json").exists():
            # As JSON: a class that a notebook defined again is another class to Python.
            if differences := _differences(to_json(self.experiment), to_json(experiment)):
                raise UserError(f"{self.path} holds a run of another configuration: {'; '.join(differences)}")
        elif set(files) - {"lock"}:
            raise UserError(f"{self.path} is not empty and holds no run; choose another directory")

    @contextmanager
    def opened(self, experiment: Experiment) -> Iterator[None]:
        """Create the directory if needed and lock it for a run of this configuration; a second process is refused.

        The lock is released when its process ends, however it ends.
        """
        self.check(experiment)
        with ExitStack() as held:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(self.path / "lock"))
                # Again: another process may have been faster, with another configuration.
                self.check(experiment)
                self._take_over(experiment)
            except OSError as error:
                raise UserError(f"{self.path} can't be written: {error.strerror}") from None
            yield

    def _take_over(self, experiment: Experiment) -> None:
        """Clean up after a killed process; write config.json if it is missing."""
        sweep(self.path)
        sweep(self.checkpoints)
        (self.path / "failure.json").unlink(missing_ok=True)
        if not (self.path / "config.json").exists():
            tree = to_json(experiment)
            document = {"format": FORMAT, "version": VERSION, "experiment": tree, "made_with": _made_with()}
            documents.write(self.path / "config.json", document)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def experiment(self) -> Experiment:
        """The configuration of the run."""
        document = self._document()
        try:
            return from_json(Experiment, document.get("experiment"), "experiment")
        except ValueError as error:
            raise UserError(f"{self.path / 'config.json'} is not one of this nsm's: {error}") from None

    def _document(self) -> dict[str, Any]:
        path = self.path / "config.json"
        try:
            document = documents.read_any(path)
        except OSError:
            reason = "it has no config.json" if self.path.exists() else "it does not exist"
            raise UserError(f"{self.path} is not a run: {reason}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UserError(f"{path} does not describe an nsm run")
        if document.get("version") != VERSION:
            raise UserError(f"{self.path} has version {document.get('version')!r}; this nsm reads version {VERSION}")
        return documents.unsealed(path, document)

    def _digest(self) -> str:
        return documents.digest_of(self._document().get("experiment", {}))

    @property
    def made_with(self) -> dict[str, Any]:
        found = self._document().get("made_with")
        if not isinstance(found, dict):
            raise Damaged(f"{self.path / 'config.json'} is damaged: it has no versions (made_with)")
        return found

    def outcome(self) -> Outcome | None:
        """How the run ended; None if it has not."""
        found = self._ending()
        return None if found is None else found[0]

    def owner(self) -> dict[str, object]:
        """Which seed of which cell a published machine is; empty for a run."""
        found = self._ending()
        return {} if found is None else found[1]

    def _ending(self) -> tuple[Outcome, dict[str, Any]] | None:
        def check(data: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
            config, owner = data.pop("config", None), data.pop("of", {})
            if config != self._digest():
                raise UserError("it belongs to a run of another configuration")
            return from_json(Outcome, data, "result"), owner if isinstance(owner, dict) else {}

        return self._read("result.json", check)

    def failure(self) -> Failure | None:
        """Why the run failed; None if it has not."""
        return self._read("failure.json", lambda data: from_json(Failure, data, "failure"))

    @property
    def has_clock(self) -> bool:
        return (self.path / "clock.json").exists()

    def clock(self) -> dict[str, object]:
        """The time spent until the last checkpoint."""
        return self._read("clock.json", dict) or {}

    def _read(self, name: str, check: Callable[[dict[str, Any]], T]) -> T | None:
        path = self.path / name
        try:
            return check(documents.read_sealed(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Damaged:
            raise
        except UserError as error:
            raise Damaged(f"{path} is damaged: {error}") from None

    def lines(self) -> list[Line]:
        """All lines of metrics; a last line that a kill cut off is left out."""
        path = self.metrics_path
        if not path.exists():
            return []
        fits(f"reading {path}", path.stat().st_size)
        found: list[Line] = []
        for number, line in enumerate(documents.read_lines(path), start=1):
            try:
                found.append(cast(Line, check_fields(Line, line, "it")))
            except UserError as error:
                raise Damaged(f"{path} is damaged: line {number} is not a line of metrics: {error}") from None
        return found

    def checkpoint(self, which: str = "best") -> Checkpoint:
        """The checkpoint of the lowest validation loss ("best"), or the newest; also where the best one is damaged."""
        newest = checkpoints.latest(self.checkpoints)
        if newest is None:
            raise UserError(f"{self.path} has no checkpoint yet: train it first")
        best = newest.state["best_step"]
        if which == "last" or best is None or best == newest.step:
            return newest
        try:
            return checkpoints.load(checkpoints.path(self.checkpoints, best))
        except Damaged as error:
            logger.warning("nsm: %s; using the checkpoint of step %d instead of the best one", error, newest.step)
            return newest

    def machine(self, which: str = "best", backend: str = "auto") -> Machine:
        """The trained machine: "best" (lowest validation loss) or "last"."""
        machine, found = self.experiment.machine, self.checkpoint(which)
        where = checkpoints.path(self.checkpoints, found.step)
        return Machine.from_tensors(where, machine, found.model, backend=backend).eval()

    # --- writing ------------------------------------------------------------------------------------------------------

    def finish(self, outcome: Outcome, of: dict[str, object] | None = None) -> None:
        """Write how the run ended; `of`: which seed of which cell, for a published machine."""
        document = {**to_json(outcome, "result"), **({"of": of} if of else {}), "config": self._digest()}
        documents.write(self.path / "result.json", document)
        (self.path / "failure.json").unlink(missing_ok=True)

    def fail(self, reason: str, step: int | None, diverged: bool = False) -> None:
        """Write why the run failed, after which step if known, and whether it diverged. Its checkpoints stay."""
        documents.write(self.path / "failure.json", to_json(Failure(reason, step, diverged)))

    def set_clock(self, clock: dict[str, object]) -> None:
        documents.write(self.path / "clock.json", clock)


class MetricsFile:
    """The append-only file of metrics; a resumed run truncates it to its position at the checkpoint.

    What is left must have the digest that the checkpoint has.
    """

    def __init__(self, path: Path, position: int = 0, digest: str | None = None) -> None:
        self._path, self._digest = path, hashlib.sha256()
        if position:
            self._verify(position, digest)
        with naming(path):
            # Unbuffered: with a full disk a line would wait in the buffer until the file is closed.
            self._file = path.open("ab", buffering=0)
            self._file.truncate(position)
            self._file.seek(position)

    def _verify(self, position: int, digest: str | None) -> None:
        left = position
        try:
            with opened(self._path) as file:
                while left > 0 and (content := file.read(min(left, 1 << 20))):
                    self._digest.update(content)
                    left -= len(content)
        except FileNotFoundError:
            pass
        if left:
            raise Damaged(f"{self._path} is damaged: it is shorter than when the last checkpoint was saved")
        if self.digest != digest:
            raise Damaged(f"{self._path} is damaged: it has changed since the last checkpoint was saved")

    @property
    def digest(self) -> str:
        """The sha256 of all lines."""
        return self._digest.hexdigest()

    def write(self, line: Line) -> None:
        content = (json.dumps(line, allow_nan=False) + "\n").encode()
        self._digest.update(content)
        with naming(self._path):
            while content:
                content = content[self._file.write(content) :]

    def sync(self) -> int:
        """Force all lines to the disk; returns the position after the last."""
        with naming(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def versions() -> dict[str, str]:
    """The versions that decide the bytes of a run, besides its configuration."""
    return {
        "nsm": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": version("numba"),
    }


def _made_with() -> dict[str, Any]:
    return {
        **versions(),
        "commit": commit(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def commit() -> str | None:
    """The commit of the checkout that nsm runs from, with a + if files differ from it; None if nsm is installed."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        # `status` locks the index to refresh it, and a lock left by a kill would block git.
        command = ["git", "--no-optional-locks", *arguments]
        return subprocess.run(command, cwd=here.parent, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # nsm may be installed inside another checkout
        return git("rev-parse", "HEAD")[:12] + ("+" if git("status", "--porcelain", "--", "..") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _differences(ours: Any, theirs: Any, name: str = "") -> list[str]:
    """Where two configurations differ: "name was 1, is 2"."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted(ours.keys() | theirs.keys()):
            found += _differences(ours.get(key), theirs.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if ours == theirs else [f"{name} was {ours!r}, is {theirs!r}"]
