"""A run's directory: what it is, what it measured, where it stands, how it ended.

config.json        the resolved configuration, with the versions and the commit it was started with
metrics.jsonl      one line per logged step, append-only; the same bytes whether the run was interrupted or not
checkpoints/       see nsm.training.checkpoints
clock.json         time spent so far: kept apart from all that is the same in every run
lock               held by the process that trains, with its id
result.json        written when the run has ended: figures on the test sequences, time taken
failure.json       written when it could not: the reason
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nsm.checks import UserError
from nsm.files import is_temporary, sweep, write_atomically
from nsm.machine import Machine
from nsm.pretrained import from_json, to_json
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.config import RunConfig
from nsm.version import __version__

logger = logging.getLogger("nsm")
FORMAT = "nsm-run"
VERSION = 1


class RunDirectory:
    """Reads and writes a run's files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics_path = self.path / "metrics.jsonl"

    # --- opening ------------------------------------------------------------------------------------------------------

    def check(self, config: RunConfig) -> None:
        """Refuse a directory that is not this run's: one of another configuration, or of something else."""
        # Listed first: a run that another process begins meanwhile has its config.json before any other file.
        files = [file.name for file in self.path.iterdir() if not is_temporary(file)] if self.path.is_dir() else []
        if (self.path / "config.json").exists():
            if (theirs := self.config()) != config:
                differences = _differences(to_json(theirs), to_json(config))
                raise UserError(f"{self.path} holds a run of another configuration: {'; '.join(differences)}")
        elif set(files) - {"lock"}:
            raise UserError(f"{self.path} is not empty and holds no run; choose another directory")

    @contextmanager
    def opened(self, config: RunConfig) -> Iterator[None]:
        """Hold the directory for a run of this configuration, made if there is none; a second process is refused.

        The lock dies with its process, however that dies.
        """
        self.check(config)
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self.path / "lock").open("a+"))
            except OSError as error:
                raise UserError(f"{self.path} can't be written: {error.strerror}") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise UserError(f"{self.path} is in use by another process, {lock.read() or 'just started'}") from None
            # Once more: another process may have been faster, with another configuration.
            self.check(config)
            try:
                lock.truncate(0)
                print(os.getpid(), end="", file=lock, flush=True)
                self._take_over(config)
            except OSError as error:
                raise UserError(f"{self.path} can't be written: {error.strerror}") from None
            yield

    def _take_over(self, config: RunConfig) -> None:
        """Clean up after a process that was killed here; say what the run is, if that has not been said."""
        sweep(self.path)
        sweep(self.checkpoints)
        (self.path / "failure.json").unlink(missing_ok=True)
        if not (self.path / "config.json").exists():
            document = {"format": FORMAT, "version": VERSION, "config": to_json(config), "made_with": _made_with()}
            self._write("config.json", document)

    # --- reading ------------------------------------------------------------------------------------------------------

    def config(self) -> RunConfig:
        """The configuration the run was started with."""
        data = self._document().get("config")
        try:
            return from_json(RunConfig, data)
        except UserError as error:
            raise UserError(f"{self.path / 'config.json'} is not one of this nsm's: {error}") from None

    def _document(self) -> dict[str, Any]:
        try:
            document = json.loads((self.path / "config.json").read_bytes())
        except OSError:
            reason = "it has no config.json" if self.path.exists() else "there is nothing of that name"
            raise UserError(f"{self.path} is not a run: {reason}") from None
        except ValueError:
            raise UserError(f"{self.path / 'config.json'} is damaged: not JSON") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UserError(f"{self.path / 'config.json'} does not describe a run of nsm")
        if document.get("version") != VERSION:
            raise UserError(f"{self.path} has version {document.get('version')!r}; this nsm reads version {VERSION}")
        return document

    @property
    def made_with(self) -> dict[str, Any]:
        """Versions and commit."""
        return dict(self._document()["made_with"])

    def result(self) -> dict[str, Any] | None:
        """How the run ended, None if it has not."""
        return self._read("result.json")

    def failure(self) -> dict[str, Any] | None:
        """Why the run failed, None if it has not."""
        return self._read("failure.json")

    @property
    def has_clock(self) -> bool:
        return (self.path / "clock.json").exists()

    def clock(self) -> dict[str, Any]:
        """The time spent when the last checkpoint was saved."""
        return self._read("clock.json") or {}

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            document = json.loads((self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise UserError(f"{self.path / name} is damaged: not a JSON object")
        return document

    def metrics(self) -> list[dict[str, Any]]:
        """All lines written so far; a last line cut off by a kill is left out."""
        if not self.metrics_path.exists():
            return []
        found = []
        for number, line in enumerate(self.metrics_path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                found.append(json.loads(line))
                found[-1]["step"]
            except (ValueError, TypeError, KeyError):
                raise UserError(f"{self.metrics_path} is damaged: line {number} is not a line of metrics") from None
        return found

    def checkpoint(self, which: str = "best") -> Checkpoint:
        """The newest checkpoint, or that of the lowest held-out loss; the newest if that one is gone or damaged."""
        newest = checkpoints.latest(self.checkpoints)
        if newest is None:
            raise UserError(f"{self.path} has no checkpoint yet: train it first")
        best = newest.state["best_step"]
        if which == "last" or best is None or best == newest.step:
            return newest
        try:
            return checkpoints.load(checkpoints.path(self.checkpoints, best))
        except checkpoints.Damaged as error:
            logger.warning("nsm: %s; taking that of step %d instead of the best", error, newest.step)
            return newest

    def machine(self, which: str = "best", backend: str = "auto") -> Machine:
        """The trained machine: "best" (lowest held-out loss) or "last"."""
        with torch.device("cpu"):  # where checkpoints are read to, whatever torch's default
            machine = Machine.from_config(self.config().machine, backend=backend)
        machine.load_state_dict(self.checkpoint(which).model)
        return machine

    # --- writing ------------------------------------------------------------------------------------------------------

    def finish(self, result: dict[str, Any]) -> None:
        """Say how the run ended."""
        self._write("result.json", result)
        (self.path / "failure.json").unlink(missing_ok=True)

    def fail(self, reason: str, step: int | None, diverged: bool = False) -> None:
        """Say why the run stopped, after which step if that is known, and if it was learning that failed.

        Its checkpoints stay.
        """
        self._write("failure.json", {"reason": reason, "step": step, "diverged": diverged})

    def set_clock(self, clock: dict[str, Any]) -> None:
        """Note the time spent."""
        self._write("clock.json", clock)

    def _write(self, name: str, document: dict[str, Any]) -> None:
        write_atomically(self.path / name, (json.dumps(document, indent=2) + "\n").encode())


class MetricsFile:
    """The append-only file of metrics, cut back to where a checkpoint stood when a run is resumed."""

    def __init__(self, path: Path, position: int) -> None:
        if position and (not path.exists() or path.stat().st_size < position):
            raise UserError(f"{path} is damaged: it is shorter than when the last checkpoint was saved")
        self._file = path.open("ab")
        self._file.truncate(position)
        self._file.seek(position)

    def write(self, line: dict[str, Any]) -> None:
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()

    def sync(self) -> int:
        """Force all lines to the disk; returns the position after the last."""
        self._file.flush()
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
        command = ["git", *arguments]
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
