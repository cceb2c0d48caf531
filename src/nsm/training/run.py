"""A run's directory: what it is, what it measured, where it stands, how it ended.

config.json        the resolved configuration, with the versions and the commit it was started with
metrics.jsonl      one line per logged step, append-only; the same bytes whether the run was interrupted or not
checkpoints/       see nsm.training.checkpoints
result.json        written when the run has ended: figures on the test sequences, time taken
failure.json       written when it could not: the reason
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

import nsm
from nsm.checks import UserError
from nsm.machine import Machine
from nsm.pretrained import from_json, to_json
from nsm.training import checkpoints
from nsm.training.config import RunConfig
from nsm.training.files import write_atomically

FORMAT = "nsm-run"
VERSION = 1


class RunDirectory:
    """Reads and writes a run's files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics_path = self.path / "metrics.jsonl"

    # --- opening ------------------------------------------------------------------------------------------------------

    def create(self, config: RunConfig) -> None:
        """Make the directory, or check that it belongs to a run of this very configuration."""
        if (self.path / "config.json").exists():
            differences = _differences(to_json(self.config()), to_json(config))
            if differences:
                raise UserError(f"{self.path} holds a run of another configuration: {'; '.join(differences)}")
            return
        if self.path.is_dir() and any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no run; choose another directory")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            document = {"format": FORMAT, "version": VERSION, "config": to_json(config), "made_with": _made_with()}
            self._write("config.json", document)
        except OSError as error:
            raise UserError(f"{self.path} can't be written: {error.strerror}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run; a second process that tries is refused. The lock dies with its process, however that dies."""
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{self.path} is in use by another process") from None
            yield

    # --- reading ------------------------------------------------------------------------------------------------------

    def config(self) -> RunConfig:
        """The configuration the run was started with."""
        return from_json(RunConfig, self._document()["config"])

    def _document(self) -> dict[str, Any]:
        try:
            document = json.loads((self.path / "config.json").read_bytes())
        except OSError:
            raise UserError(f"{self.path} is not a run: it has no config.json") from None
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
        file = self.path / "result.json"
        return dict(json.loads(file.read_bytes())) if file.exists() else None

    def failure(self) -> dict[str, Any] | None:
        """Why the run failed, None if it has not."""
        file = self.path / "failure.json"
        return dict(json.loads(file.read_bytes())) if file.exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        """All lines written so far; a last line cut off by a kill is left out."""
        if not self.metrics_path.exists():
            return []
        lines = self.metrics_path.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def machine(self, which: str = "best", backend: str = "auto") -> Machine:
        """The trained machine: "best" (lowest held-out loss) or "last"."""
        found = checkpoints.steps(self.checkpoints)
        if not found:
            raise UserError(f"{self.path} has no checkpoint yet: train it first")
        step = found[-1]
        if which == "best":
            latest = checkpoints.latest(self.checkpoints)
            assert latest is not None
            best = latest.state.get("best_step")
            step = best if best in found else latest.step
        machine = Machine.from_config(self.config().machine, backend=backend)
        machine.load_state_dict(checkpoints.load(checkpoints.path(self.checkpoints, step)).model)
        return machine

    # --- writing ------------------------------------------------------------------------------------------------------

    def finish(self, result: dict[str, Any]) -> None:
        """Say how the run ended."""
        self._write("result.json", result)
        (self.path / "failure.json").unlink(missing_ok=True)

    def fail(self, reason: str, step: int) -> None:
        """Say why the run stopped; its checkpoints stay."""
        self._write("failure.json", {"reason": reason, "step": step})

    def _write(self, name: str, document: dict[str, Any]) -> None:
        write_atomically(self.path / name, (json.dumps(document, indent=2) + "\n").encode())


class MetricsFile:
    """The append-only file of metrics, cut back to where a checkpoint stood when a run is resumed."""

    def __init__(self, path: Path, position: int) -> None:
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


def _made_with() -> dict[str, Any]:
    return {
        "nsm": nsm.__version__,
        "commit": commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def commit() -> str | None:
    """The commit of the checkout nsm runs from, with a + if files differ from it; None for an installed package."""
    here = Path(__file__).parent
    if not any((parent / ".git").exists() for parent in here.parents):
        return None
    try:
        name = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--", "."], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return name.stdout.strip()[:12] + ("+" if dirty.stdout.strip() else "")


def _differences(ours: Any, theirs: Any, name: str = "") -> list[str]:
    """Where two configurations differ, as "name: there → here"."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted(ours.keys() | theirs.keys()):
            found += _differences(ours.get(key), theirs.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if ours == theirs else [f"{name} was {ours!r}, is {theirs!r}"]
