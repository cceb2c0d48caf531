"""`nsm.load`: a trained machine from wherever one lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from nsm import pretrained
from nsm.checks import UserError, choose
from nsm.machine import Machine, MachineConfig
from nsm.names import BACKENDS

TAKEN = "load takes a directory that save_pretrained wrote, a run's directory, or one of its checkpoints"


def load(path: str | Path, backend: str = "auto") -> Machine:
    """A machine in evaluation mode from a directory that `save_pretrained` wrote, a run's, or a checkpoint's.

    A run, also one kept under `results/models`, gives its best machine, that of the lowest held-out loss, as `nsm eval`
    takes it; the newest if there is no best one yet. Nothing that is read is executed, and all is checked before it is
    used.

    Raises:
        UserError: there is no machine, or it is damaged.
    """
    choose("backend", backend, BACKENDS)
    place = Path(path)
    try:
        if _format(place) == pretrained.FORMAT:
            if not (place / pretrained.TENSORS).is_file():
                raise _no_machine(place, f"it has no {pretrained.TENSORS}")
            return Machine.from_pretrained(place, backend=backend).eval()
        return Machine.from_tensors(*_trained(place), backend=backend).eval()
    except OSError as error:
        raise UserError(f"{place} can't be read: {error.strerror}") from None


def _trained(place: Path) -> tuple[Path, MachineConfig, dict[str, Tensor]]:
    """The checkpoint that a directory of training holds or is, the machine it is of, and its tensors."""
    # Not at the top: training brings Numba along, which takes half as long to import as torch.
    from nsm.training import checkpoints
    from nsm.training.run import FORMAT, RunDirectory

    single = (place / checkpoints.MANIFEST).is_file() or (place / checkpoints.STATE).is_file()
    run = RunDirectory(place.resolve().parent.parent if single else place)
    if _format(run.path) != FORMAT:
        reason = f"it is a checkpoint, and {run.path} is not the run that says of what" if single else _reason(place)
        raise _no_machine(place, reason)
    try:
        config, found = run.config(), checkpoints.load(place) if single else run.checkpoint("best")
        where = place if single else checkpoints.path(run.checkpoints, found.step)
    except UserError:
        raise
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # A manifest vouches for the bytes, not for who wrote them: what is in them may be anything.
        raise UserError(
            f"{place} is damaged: it holds what nsm does not write, {type(error).__name__} {error}"
        ) from None
    # Copies, because what was read in one piece isn't aligned as a tensor of its own is.
    return where, config.machine, {name: tensor.clone() for name, tensor in found.model.items()}


def _format(place: Path) -> Any:
    """What a directory's config.json says it describes, None if it has none that says so."""
    path = place / pretrained.CONFIG
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: not JSON") from None
    return document.get("format") if isinstance(document, dict) else None


def _reason(place: Path) -> str:
    if not place.exists():
        return "there is nothing of that name"
    if not place.is_dir():
        return "it is not a directory"
    known = (place / pretrained.CONFIG).is_file()
    return f"its {pretrained.CONFIG} is not one of nsm's" if known else f"it has no {pretrained.CONFIG}"


def _no_machine(place: Path, reason: str) -> UserError:
    return UserError(f"{place} holds no machine: {reason}; {TAKEN}")
