"""Checkpoints: one directory per step, complete or absent, verified when read.

checkpoints/00005000/
    model.safetensors         the machine's parameters and buffers
    optimiser.safetensors     the optimiser's buffers; missing in a published machine
    memory.safetensors        persistent memory, if the run has one
    state.json                step, position in the metrics file, best evaluation so far, …
    MANIFEST.json             format version, sha256 of each file and of itself; written last

Nothing here depends on the clock: two runs of one configuration write the same bytes.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm import documents
from nsm.checks import UserError
from nsm.documents import digest
from nsm.files import Damaged, read, remove_atomically, write_directory_atomically
from nsm.pretrained import read_tensors

logger = logging.getLogger("nsm")
VERSION = 2
MODEL, OPTIMISER, MEMORY = TENSORS = "model.safetensors", "optimiser.safetensors", "memory.safetensors"
STATE, MANIFEST = "state.json", "MANIFEST.json"
FILES = (*TENSORS, STATE, MANIFEST)


class Checkpoint(NamedTuple):
    """The content of a checkpoint."""

    step: int
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    memory: dict[str, Tensor]
    """Persistent memory; empty if the run has none."""
    state: dict[str, Any]


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under `directory`, where one rename makes it visible."""
    parts = zip(TENSORS, (checkpoint.model, checkpoint.optimiser, checkpoint.memory), strict=True)
    contents = {
        file: save_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})
        for file, tensors in parts
        if tensors
    }
    contents[STATE] = json.dumps({"step": checkpoint.step, **checkpoint.state}, indent=2, allow_nan=False).encode()
    manifest = {"version": VERSION, "sha256": {name: digest(content) for name, content in contents.items()}}
    contents[MANIFEST] = documents.text(manifest)
    target = path(directory, checkpoint.step)
    write_directory_atomically(target, contents)
    return target


def load(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; raises Damaged, with the file's name, if it is not what was written."""
    try:
        # Its own digest comes first: a flipped bit in the version must not pass for a newer version.
        manifest = documents.read_sealed(path / MANIFEST)
    except OSError:
        raise Damaged(f"{path / MANIFEST} is missing") from None
    version, digests = manifest.get("version"), manifest.get("sha256")
    if version != VERSION:
        raise UserError(f"{path} has checkpoint version {version!r}; this nsm reads version {VERSION}")
    if not isinstance(digests, dict) or not {MODEL, STATE} <= digests.keys() <= {*TENSORS, STATE}:
        raise Damaged(f"{path / MANIFEST} is damaged: it does not name the files of a checkpoint")
    contents = {}
    for name, expected in digests.items():
        try:
            contents[name] = read(path / name, documents.LARGEST) if name == STATE else read_tensors(path / name)
        except OSError:
            raise Damaged(f"{path / name} is missing") from None
        if digest(contents[name]) != expected:
            raise Damaged(f"{path / name} is damaged: its sha256 is not the one it was written with")
    # The manifest vouches for the bytes, not for their author: the content may still be anything.
    try:
        state = _state(contents[STATE])
    except ValueError as error:
        raise Damaged(f"{path / STATE} is damaged: {error}") from None
    tensors: dict[str, dict[str, Tensor]] = {name: {} for name in TENSORS}
    for name in contents.keys() - {STATE}:
        try:
            tensors[name] = load_tensors(contents[name])
        except (SafetensorError, ValueError) as error:
            raise Damaged(f"{path / name} is damaged: {error}") from None
    return Checkpoint(state.pop("step"), tensors[MODEL], tensors[OPTIMISER], tensors[MEMORY], state)


def _state(content: bytes) -> dict[str, Any]:
    """The state of a run, with its step and its best step checked."""
    state = documents.parse(content)
    if not isinstance(state, dict) or "best_step" not in state:
        raise ValueError("it does not have the state of a run")
    for step in (state.get("step"), 0 if state["best_step"] is None else state["best_step"]):
        if type(step) is not int or not 0 <= step < 10**10:
            raise ValueError("a step must be a whole number of at most ten digits")
    return state


def steps(directory: Path) -> list[int]:
    """The steps that have checkpoints, ascending."""
    if not directory.is_dir():
        return []
    # Not \d, which takes digits of other scripts.
    found = [int(place.name) for place in directory.iterdir() if re.fullmatch(r"[0-9]{8,10}", place.name)]
    return sorted({step for step in found if path(directory, step).is_dir()})


def path(directory: Path, step: int) -> Path:
    return directory / f"{step:08d}"


def latest(directory: Path) -> Checkpoint | None:
    """The newest valid checkpoint; None if there never was one. A damaged one is reported and skipped."""
    found = steps(directory)
    for step in reversed(found):
        try:
            return load(path(directory, step))
        except Damaged as error:
            logger.warning("nsm: %s; trying the checkpoint before it", error)
    if found:
        raise UserError(f"no valid checkpoint is left in {directory}; move the run's directory away to start again")
    return None


def prune(directory: Path, keep: int, last: int) -> None:
    """Remove all checkpoints but the newest `keep` up to `last`, and the best one at the time of each of these.

    If the newest is damaged, the run resumes from the one before it, and may rewind to the best one of that time.
    Checkpoints after `last` were found damaged.
    """
    found = steps(directory)
    newest = [step for step in found if step <= last][-keep:]
    kept = {*newest, *(_best(path(directory, step)) for step in newest)}
    for step in found:
        if step not in kept:
            remove_atomically(path(directory, step))


def _best(path: Path) -> int | None:
    """The best step at the time of a checkpoint; None if there was none yet, or if the checkpoint is damaged."""
    try:
        best: int | None = _state(read(path / STATE, documents.LARGEST))["best_step"]
    except (OSError, ValueError):
        return None
    return best
