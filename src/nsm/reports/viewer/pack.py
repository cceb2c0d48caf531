"""Arrays as text in a page: rounded to whole numbers of one or two bytes, compressed, in base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from nsm.plots.heads import HeadTrace
from nsm.reports.execution import Array, Execution
from nsm.tasks import Task
from nsm.tasks.padded import Padded
from nsm.tree import OURS, to_json

FINE = 1_500_000
"""A tape's contents are stored with two bytes per number up to this many numbers, with one byte beyond."""


def exact(values: Array) -> dict[str, Any]:
    """Exact numbers: one byte each if all are small integers, like bits and words, else float32."""
    return whole(values) if np.array_equal(values, values.astype("i1")) else _document(values.astype("<f4"), 0.0, 1.0)


def shares(values: Array) -> dict[str, Any]:
    """Numbers between 0 and 1, to within 1/131,070."""
    return _rounded(values, np.dtype("<u2"), 0.0, 1.0)


def contents(values: Array) -> dict[str, Any]:
    """The tape at every step (T, N, M), to within 1/131,070 of its range, or 1/510 if it is very large.

    Only the difference from the previous step is stored, because most slots don't change.
    """
    limit = float(np.abs(values).max()) or 1.0
    kind = np.dtype("<u2") if values.size <= FINE else np.dtype("u1")
    return _rounded(values, kind, -limit, limit, along_time=True)


def whole(values: Array) -> dict[str, Any]:
    """Whole numbers from −128 to 127."""
    return _document(np.asarray(values, dtype="i1"), low=0.0, unit=1.0)


def sequence(run: Execution) -> dict[str, Any]:
    """The inputs and targets: all that a page which contains the machine needs."""
    return {
        "name": run.name,
        "decoding": run.decoding,
        "choice": run.choice,
        "words": run.words,
        "picture": run.picture,
        "subtasks": run.subtasks,
        "subtask": run.subtask.tolist(),
        "task": None if run.task is None else description(run.task),
        "inputs": exact(run.inputs),
        "targets": exact(run.targets),
        "counted": whole(run.counted),
    }


def recording(run: Execution) -> dict[str, Any]:
    """What a machine did with a sequence, for a page that can't run the machine."""
    mixes: list[Array] = []
    heads = [_head(head, mixes) for head in run.heads]
    return {
        "answers": shares(run.answers),
        "heads": heads,
        "parts": [{"name": name, "mix": _numbered(mix, mixes)} for name, mix in run.parts],
        "mixes": [shares(mix) for mix in mixes],
        "memory": None if run.memory is None else contents(run.memory),
    }


def description(task: Task) -> dict[str, Any] | None:
    """A task by its fields; None for a user's own task, whose sequences a page can't lay out."""
    inner = task.task if isinstance(task, Padded) else task
    if not all(f"{type(part).__module__}.".startswith(OURS) for part in (inner, *inner.singles())):
        return None
    fields: dict[str, Any] = to_json(inner)
    return {**fields, "name": inner.name}


def _head(head: HeadTrace, mixes: list[Array]) -> dict[str, Any]:
    """A head with the number of its programs' mix, which other heads may share."""
    mix = None if head.programs is None else _numbered(head.programs, mixes)
    return {"name": head.name, "kind": head.kind, "address": shares(head.address), "mix": mix}


def _numbered(mix: Array, mixes: list[Array]) -> int:
    """The number of a mix of programs among those known; a new one is added."""
    number = next((n for n, other in enumerate(mixes) if other is mix), len(mixes))
    if number == len(mixes):
        mixes.append(mix)
    return number


def _rounded(values: Array, kind: np.dtype[Any], low: float, high: float, along_time: bool = False) -> dict[str, Any]:
    levels = np.iinfo(kind).max
    whole_numbers = np.rint((np.clip(values, low, high) - low) / (high - low) * levels).astype(kind)
    if along_time:
        whole_numbers[1:] -= whole_numbers[:-1].copy()  # modulo the numbers there are
    return {**_document(whole_numbers, low, (high - low) / levels), "differences": along_time}


def _document(values: Array, low: float, unit: float) -> dict[str, Any]:
    """`low + unit · number` is the value."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()
    return {"type": values.dtype.str.lstrip("<|"), "shape": values.shape, "low": low, "unit": unit, "data": data}
