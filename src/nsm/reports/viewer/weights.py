"""A machine in a page: its configuration and its weights, from which machine/weights.js builds it."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch

from nsm.machine import MANN, NUTM, Machine
from nsm.operands import NotCovered
from nsm.tree import to_json


def portable(machine: Machine) -> dict[str, Any] | None:
    """A machine as JSON data, its weights exact in float32; None for one whose steps the page's machine doesn't have.

    That is a machine with a user's own memory, of a subclass, with hooks or parametrisations, or in another precision.
    The bytes are grouped by significance, all lowest bytes first, so that they compress well.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in machine.state_dict().items()}
    try:
        machine.operands()
        with torch.device("meta"):
            plain = Machine.from_config(machine.config).state_dict() if machine.config.memory is not None else {}
    except NotCovered:
        return None
    single = all(tensor.dtype == torch.float32 for tensor in tensors.values())
    if type(machine) not in (MANN, NUTM) or tensors.keys() != plain.keys() or not single:
        return None
    numbers = np.concatenate([tensor.numpy().ravel() for tensor in tensors.values()]).astype("<f4")
    planes = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 4).T)
    return {
        "config": to_json(machine.config),
        "tensors": [(name, tuple(tensor.shape)) for name, tensor in tensors.items()],
        "data": base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode(),
    }
