"""`nsm.load`: a trained machine from any directory that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsm import documents, pretrained
from nsm.checks import UserError, choose
from nsm.machine import Machine
from nsm.names import BACKENDS

TAKEN = "load takes a directory written by save_pretrained, a run's directory, or one of its checkpoints"


def load(path: str | Path, backend: str = "auto") -> Machine:
    """A machine in evaluation mode, from a directory written by `save_pretrained`, a run's, or a checkpoint's.

    From a run, or a directory under `results/models`, this is the checkpoint with the lowest validation loss, as in
    `nsm eval`, or the newest one if none has been validated yet. Nothing in the files is executed, and everything is
    checked before use.

    Raises:
        UserError: the directory contains no machine, or a damaged one.
    """
    choose("backend", backend, BACKENDS)
    place = Path(path)
    try:
        if _format(place) == pretrained.FORMAT:
            if not (place / pretrained.TENSORS).is_file():
                raise _no_machine(place, f"it has no {pretrained.TENSORS}")
            return Machine.from_pretrained(place, backend=backend).eval()
        return _trained(place, backend).eval()
    except OSError as error:
        raise UserError(f"{place} can't be read: {error.strerror}") from None


def _trained(place: Path, backend: str) -> Machine:
    """The machine of a run or of a checkpoint."""
    # Not at the top: training imports Numba, which takes half as long as torch.
    from nsm.training import checkpoints
    from nsm.training.run import FORMAT, RunDirectory

    single = (place / checkpoints.MANIFEST).is_file() or (place / checkpoints.STATE).is_file()
    run = RunDirectory(place.resolve().parent.parent if single else place)
    if _format(run.path) != FORMAT:
        reason = f"it is a checkpoint, but {run.path} is not its run" if single else _reason(place)
        raise _no_machine(place, reason)
    if single:
        return Machine.from_tensors(place, run.experiment.machine, checkpoints.load(place).model, backend=backend)
    return run.machine("best", backend)


def _format(place: Path) -> Any:
    """The format that a directory's config.json names, None if it names none."""
    path = place / pretrained.CONFIG
    document = documents.read_any(path) if path.is_file() else None
    return document.get("format") if isinstance(document, dict) else None


def _reason(place: Path) -> str:
    if not place.exists():
        return "it does not exist"
    if not place.is_dir():
        return "it is not a directory"
    known = (place / pretrained.CONFIG).is_file()
    return f"its {pretrained.CONFIG} is not one of nsm's" if known else f"it has no {pretrained.CONFIG}"


def _no_machine(place: Path, reason: str) -> UserError:
    return UserError(f"{place} contains no machine: {reason}; {TAKEN}")
