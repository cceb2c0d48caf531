"""Checkpoints: a directory per step, complete or absent, verified when read.

checkpoints/00005000/
    model.safetensors         the machine's parameters and buffers
    optimiser.safetensors     the optimiser's buffers, and persistent memory
    state.json                step, position in the metrics file, best evaluation so far, …
    MANIFEST.json             format version, the sha256 of each file and of itself; written last

Nothing in it depends on the clock: two runs of one configuration have the same bytes here.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm.checks import UserError
from nsm.files import remove_atomically, write_directory_atomically

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
    contents = {
        MODEL: save_tensors({name: tensor.contiguous() for name, tensor in checkpoint.model.items()}),
        OPTIMISER: save_tensors({name: tensor.contiguous() for name, tensor in checkpoint.optimiser.items()}),
        STATE: json.dumps({"step": checkpoint.step, **checkpoint.state}, indent=2).encode(),
    }
    manifest = {"version": VERSION, "sha256": {name: _digest(content) for name, content in contents.items()}}
    contents[MANIFEST] = json.dumps({**manifest, "self": _digest_of(manifest)}, indent=2).encode()
    target = path(directory, checkpoint.step)
    write_directory_atomically(target, contents)
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(manifest: dict[str, Any]) -> str:
    return _digest(json.dumps(manifest, sort_keys=True).encode())


def load(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; raises Damaged, naming the file, if it is not what was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        # Its own digest comes first: a version that a flipped bit made up must not pass for a newer one.
        if manifest.pop("self") != _digest_of(manifest):
            raise ValueError
        version, digests = manifest["version"], manifest["sha256"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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
    return Checkpoint(state.pop("step"), load_tensors(contents[MODEL]), load_tensors(contents[OPTIMISER]), state)


def steps(directory: Path) -> list[int]:
    """The steps there are checkpoints of, rising."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.is_dir() and path.name.isdigit())


def path(directory: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
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
        raise UserError(f"no valid checkpoint is left in {directory}; move the run away to start anew")
    return None


def prune(directory: Path, keep: int, last: int) -> None:
    """Remove all but the newest `keep` up to `last` and what was the best one at each of these.

    Should the newest be damaged, the one before it goes on, perhaps by a rewind to its own best. What is after `last`
    was found damaged.
    """
    found = steps(directory)
    newest = [step for step in found if step <= last][-keep:]
    kept = {*newest, *(_best(path(directory, step)) for step in newest)}
    for step in found:
        if step not in kept:
            remove_atomically(path(directory, step))


def _best(path: Path) -> int | None:
    """Which step was the best one at a checkpoint; None if there was none yet, or it can't be told."""
    try:
        found = json.loads((path / STATE).read_bytes())["best_step"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, int) else None
