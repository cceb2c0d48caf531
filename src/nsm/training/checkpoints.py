"""Checkpoints: a directory per step, complete or absent, verified when read.

checkpoints/00005000/
    model.safetensors         the machine's parameters and buffers
    optimiser.safetensors     the optimiser's buffers
    state.json                step, position in the metrics file, best evaluation so far, …
    MANIFEST.json             format version, and the sha256 of each file; written last
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm.checks import UserError
from nsm.training.files import sync_directory, write_durably

logger = logging.getLogger("nsm")
VERSION = 1
MODEL, OPTIMISER, STATE, MANIFEST = "model.safetensors", "optimiser.safetensors", "state.json", "MANIFEST.json"


class Checkpoint(NamedTuple):
    """What is saved, and what comes back."""

    step: int
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    state: dict[str, Any]


class Damaged(UserError):
    """A checkpoint that is not what was written."""


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under `directory`; it appears there whole, by one rename."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"{checkpoint.step:08d}"
    temporary = directory / f".{target.name}.{os.getpid()}"
    contents = {
        MODEL: save_tensors({name: tensor.contiguous() for name, tensor in checkpoint.model.items()}),
        OPTIMISER: save_tensors({name: tensor.contiguous() for name, tensor in checkpoint.optimiser.items()}),
        STATE: json.dumps(checkpoint.state, indent=2).encode(),
    }
    manifest = {"version": VERSION, "sha256": {name: _digest(content) for name, content in contents.items()}}
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, content in {**contents, MANIFEST: json.dumps(manifest, indent=2).encode()}.items():
            write_durably(temporary / name, content)
        sync_directory(temporary)
        if target.exists():
            shutil.rmtree(target)
        os.rename(temporary, target)
        sync_directory(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; raises Damaged, naming the file, if it is not what was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        version, digests = manifest["version"], manifest["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged(f"{path / MANIFEST} is missing or damaged") from None
    if version != VERSION:
        raise UserError(f"{path} has checkpoint version {version!r}; this nsm reads version {VERSION}")
    contents = {}
    for name in (MODEL, OPTIMISER, STATE):
        try:
            contents[name] = (path / name).read_bytes()
        except OSError:
            raise Damaged(f"{path / name} is missing") from None
        if _digest(contents[name]) != digests.get(name):
            raise Damaged(f"{path / name} is damaged: its sha256 is not the one it was written with")
    state = json.loads(contents[STATE])
    return Checkpoint(state["step"], load_tensors(contents[MODEL]), load_tensors(contents[OPTIMISER]), state)


def steps(directory: Path) -> list[int]:
    """The steps there are checkpoints of, rising."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.is_dir() and path.name.isdigit())


def path(directory: Path, step: int) -> Path:
    return directory / f"{step:08d}"


def latest(directory: Path) -> Checkpoint | None:
    """The newest valid checkpoint, None if there never was one. A damaged one is named and the one before it taken."""
    found = steps(directory)
    for step in reversed(found):
        try:
            return load(path(directory, step))
        except Damaged as error:
            logger.warning("nsm: %s; trying the checkpoint before it", error)
    if found:
        raise UserError(f"no valid checkpoint is left in {directory}; move it away to start anew")
    return None


def prune(directory: Path, keep: int, best: int | None) -> None:
    """Remove all but the newest `keep` and the best one."""
    for step in steps(directory)[:-keep]:
        if step != best:
            shutil.rmtree(path(directory, step))
