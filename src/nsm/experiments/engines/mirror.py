"""Mirrors a run's directory: changes in one place are sent to another, which is a valid run at every moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from nsm.checks import fits, free_memory
from nsm.files import opened, read, remove_atomically, write_atomically, write_directory_atomically
from nsm.training import checkpoints

METRICS = "metrics.jsonl"
REST = ("config.json", "clock.json", "failure.json", "result.json")
"""In the order in which they are written: the result comes last."""


class Changes(NamedTuple):
    """New files and checkpoints of a run's directory, and the steps of all checkpoints."""

    files: dict[str, bytes]
    checkpoints: dict[int, dict[str, bytes]]
    steps: list[int]


class Watch:
    """Finds changes in a run's directory since the last call, while another process may write to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: dict[Path, tuple[int, int, int]] = {}

    def changes(self) -> Changes:
        """Reads in the reverse order of writing, so that a file is never found without those it depends on."""
        files = {}
        for name in reversed(REST):
            if (content := self._new(self._directory / name)) is not None:
                files[name] = content
        saved, new, steps = self._directory / "checkpoints", {}, []
        for step in checkpoints.steps(saved):
            path = checkpoints.path(saved, step)
            try:
                if self._new(path / checkpoints.MANIFEST) is not None:
                    # Not all have an optimiser or a memory; one that is being removed has no manifest.
                    found = [name for name in checkpoints.FILES if (path / name).exists()]
                    if checkpoints.MANIFEST not in found:
                        continue
                    new[step] = {name: read(path / name, free_memory()) for name in found}
            except FileNotFoundError:
                continue  # removed meanwhile
            steps.append(step)
        if (content := self._new(self._directory / METRICS)) is not None:
            files[METRICS] = content
        return Changes(files, new, steps)

    def _new(self, path: Path) -> bytes | None:
        """The content of a file, None if it is missing or unchanged."""
        try:
            with opened(path) as file:
                status = os.fstat(file.fileno())
                stamp = status.st_ino, status.st_size, status.st_mtime_ns
                if self._seen.get(path) == stamp:
                    return None
                fits(str(path), status.st_size)
                self._seen[path] = stamp
                return file.read()
        except FileNotFoundError:
            return None


def apply(directory: Path, changes: Changes) -> None:
    """Make the same changes here: metrics before the checkpoints that refer to them, removals last."""
    directory.mkdir(parents=True, exist_ok=True)
    saved = directory / "checkpoints"
    if METRICS in changes.files:
        write_atomically(directory / METRICS, changes.files[METRICS])
    for step, contents in changes.checkpoints.items():
        write_directory_atomically(checkpoints.path(saved, step), contents)
    for name in REST:
        if name in changes.files:
            write_atomically(directory / name, changes.files[name])
    for step in set(checkpoints.steps(saved)) - set(changes.steps):
        remove_atomically(checkpoints.path(saved, step))
