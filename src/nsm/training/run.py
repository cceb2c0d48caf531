"""A run's directory: what it is, what it measured, where it stands, how it ended.

config.json        the resolved configuration, with the versions and the commit it was started with
metrics.jsonl      one line per logged step, append-only; the same bytes whether the run was interrupted or not
checkpoints/       see nsm.training.checkpoints
clock.json         time spent so far: kept apart from all that is the same in every run
lock               held by the process that trains, with its id
result.json        written when the run has ended: figures on the test sequences, time taken
failure.json       written when it could not: the reason

Every .json has its own digest in `self`, see nsm.documents; that of the metrics is in the checkpoints.
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
    """Reads and writes a run's files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics_path = self.path / "metrics.jsonl"

    # --- opening ------------------------------------------------------------------------------------------------------

    def check(self, experiment: Experiment) -> None:
        """Refuse a directory that is not this run's: one of another configuration, or of something else."""
        # Listed first: a run that another process begins meanwhile has its config.json before any other file.
        files = [file.name for file in self.path.iterdir() if not is_temporary(file)] if self.path.is_dir() else []
        if (self.path / "config.json").exists():
            # As files have them: a class that a notebook defined anew is another one to Python.
            if differences := _differences(to_json(self.experiment), to_json(experiment)):
                raise UserError(f"{self.path} holds a run of another configuration: {'; '.join(differences)}")
        elif set(files) - {"lock"}:
            raise UserError(f"{self.path} is not empty and holds no run; choose another directory")

    @contextmanager
    def opened(self, experiment: Experiment) -> Iterator[None]:
        """Hold the directory for a run of this configuration, made if there is none; a second process is refused.

        The lock dies with its process, however that dies.
        """
        self.check(experiment)
        with ExitStack() as held:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(self.path / "lock"))
                # Once more: another process may have been faster, with another configuration.
                self.check(experiment)
                self._take_over(experiment)
            except OSError as error:
                raise UserError(f"{self.path} can't be written: {error.strerror}") from None
            yield

    def _take_over(self, experiment: Experiment) -> None:
        """Clean up after a process that was killed here; say what the run is, if that has not been said."""
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
        """What the run was started with."""
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
            reason = "it has no config.json" if self.path.exists() else "there is nothing of that name"
            raise UserError(f"{self.path} is not a run: {reason}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UserError(f"{path} does not describe a run of nsm")
        if document.get("version") != VERSION:
            raise UserError(f"{self.path} has version {document.get('version')!r}; this nsm reads version {VERSION}")
        return documents.unsealed(path, document)

    def _digest(self) -> str:
        return documents.digest_of(self._document().get("experiment", {}))

    @property
    def made_with(self) -> dict[str, Any]:
        """Versions and commit."""
        found = self._document().get("made_with")
        if not isinstance(found, dict):
            raise Damaged(f"{self.path / 'config.json'} is damaged: it does not say what it was made with")
        return found

    def outcome(self) -> Outcome | None:
        """How the run ended, None if it has not."""
        found = self._ending()
        return None if found is None else found[0]

    def owner(self) -> dict[str, object]:
        """Of a published machine: whose result it is. Empty for a run."""
        found = self._ending()
        return {} if found is None else found[1]

    def _ending(self) -> tuple[Outcome, dict[str, Any]] | None:
        def check(data: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
            config, owner = data.pop("config", None), data.pop("of", {})
            if config != self._digest():
                raise UserError("its configuration is another: it is not of this run")
            return from_json(Outcome, data, "result"), owner if isinstance(owner, dict) else {}

        return self._read("result.json", check)

    def failure(self) -> Failure | None:
        """Why the run failed, None if it has not."""
        return self._read("failure.json", lambda data: from_json(Failure, data, "failure"))

    @property
    def has_clock(self) -> bool:
        return (self.path / "clock.json").exists()

    def clock(self) -> dict[str, object]:
        """The time spent when the last checkpoint was saved."""
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
        """All lines written so far; a last line cut off by a kill is left out."""
        path = self.metrics_path
        if not path.exists():
            return []
        fits(f"what is in {path}", path.stat().st_size)
        found: list[Line] = []
        for number, line in enumerate(documents.read_lines(path), start=1):
            try:
                found.append(cast(Line, check_fields(Line, line, "it")))
            except UserError as error:
                raise Damaged(f"{path} is damaged: line {number} is not a line of metrics: {error}") from None
        return found

    def checkpoint(self, which: str = "best") -> Checkpoint:
        """The newest checkpoint, or that of the lowest validation loss; the newest if that one is gone or damaged."""
        newest = checkpoints.latest(self.checkpoints)
        if newest is None:
            raise UserError(f"{self.path} has no checkpoint yet: train it first")
        best = newest.state["best_step"]
        if which == "last" or best is None or best == newest.step:
            return newest
        try:
            return checkpoints.load(checkpoints.path(self.checkpoints, best))
        except Damaged as error:
            logger.warning("nsm: %s; taking that of step %d instead of the best", error, newest.step)
            return newest

    def machine(self, which: str = "best", backend: str = "auto") -> Machine:
        """The trained machine: "best" (lowest validation loss) or "last"."""
        machine, found = self.experiment.machine, self.checkpoint(which)
        where = checkpoints.path(self.checkpoints, found.step)
        return Machine.from_tensors(where, machine, found.model, backend=backend).eval()

    # --- writing ------------------------------------------------------------------------------------------------------

    def finish(self, outcome: Outcome, of: dict[str, object] | None = None) -> None:
        """Say how the run ended; `of` a machine that is published: whose it is."""
        document = {**to_json(outcome, "result"), **({"of": of} if of else {}), "config": self._digest()}
        documents.write(self.path / "result.json", document)
        (self.path / "failure.json").unlink(missing_ok=True)

    def fail(self, reason: str, step: int | None, diverged: bool = False) -> None:
        """Say why the run stopped, after which step if that is known, and if it was learning that failed.

        Its checkpoints stay.
        """
        documents.write(self.path / "failure.json", to_json(Failure(reason, step, diverged)))

    def set_clock(self, clock: dict[str, object]) -> None:
        """Note the time spent."""
        documents.write(self.path / "clock.json", clock)


class MetricsFile:
    """The append-only file of metrics, cut back to where a checkpoint stood when a run is resumed.

    What is before that must be what was there then: its digest is in the checkpoint.
    """

    def __init__(self, path: Path, position: int = 0, digest: str | None = None) -> None:
        self._path, self._digest = path, hashlib.sha256()
        if position:
            self._verify(position, digest)
        with naming(path):
            # Without a buffer, in which a line that did not fit on the disk would wait for the file to be closed.
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
            raise Damaged(f"{self._path} is damaged: it is not what it was when the last checkpoint was saved")

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
    """What decides the bytes of a run, besides its configuration."""
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
    """The commit of the checkout nsm runs from, with a + if files differ from it; None for an installed package."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        # Without the lock that `status` takes to refresh the index: it would outlive a kill, and be in git's way.
        command = ["git", "--no-optional-locks", *arguments]
        return subprocess.run(command, cwd=here.parent, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # a package may be installed inside somebody else's checkout
        return git("rev-parse", "HEAD")[:12] + ("+" if git("status", "--porcelain", "--", "..") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _differences(ours: Any, theirs: Any, name: str = "") -> list[str]:
    """Where two configurations differ, as "name: there → here"."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted(ours.keys() | theirs.keys()):
            found += _differences(ours.get(key), theirs.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if ours == theirs else [f"{name} was {ours!r}, is {theirs!r}"]
