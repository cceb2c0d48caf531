"""The memory that a machine takes, without allocating it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from nsm.checks import UserError
from nsm.config import MachineConfig
from nsm.machine import Machine
from nsm.pytree import tree_leaves


class Bytes(NamedTuple):
    """Sizes in bytes of a machine, and of its state for a batch."""

    weights: int
    buffers: int
    state: int


def least_memory(config: MachineConfig, batch: int, slots: int | None = None) -> Bytes:
    """The size of a configuration's machine, on a tape of any size; nothing is allocated."""
    memory = config.memory
    if memory is None:
        return Bytes(0, 0, 0)  # a memory of the user's own exists already
    config = replace(config, memory=replace(memory, slots=memory.slots if slots is None else slots))
    try:
        with torch.device("meta"):
            machine = Machine.from_config(config)
            kinds = machine.parameters(), machine.buffers(), tree_leaves(machine.initial_state(batch))
    except (RuntimeError, TypeError, OverflowError):  # sizes of more than 64 bits
        raise UserError("the machine can't be built: its size exceeds 64-bit integers") from None
    return Bytes(*(sum(tensor.numel() * tensor.element_size() for tensor in kind) for kind in kinds))
