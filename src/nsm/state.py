"""The inputs of a forward pass besides x: the state, and random numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nsm.controllers import ControllerState
from nsm.pytree import tree_map

To = torch.device | torch.dtype | torch.memory_format | Tensor | str | int | bool | None
"""What `torch.Tensor.to` takes."""


class MachineState(NamedTuple):
    """Everything a machine carries from step to step."""

    controller: ControllerState
    """The state network's named tuple, each (B, n)."""
    memory: tuple[Tensor, ...]
    """The data memory's named tuple, batch first: an NTMState, LRUAState, DNCState, or that of your own memory."""
    read: Tensor
    """r_{t−1} (B, R·M)"""

    def detach(self) -> MachineState:
        """The state detached from the graph, as for truncated backpropagation through time."""
        return tree_map(Tensor.detach, self)

    def clone(self) -> MachineState:
        """A copy that gradients flow through."""
        return tree_map(Tensor.clone, self)

    def to(self, *arguments: To, **options: To) -> MachineState:
        """Every tensor moved or converted as `torch.Tensor.to` does."""
        return tree_map(lambda leaf: leaf.to(*arguments, **options), self)


class Noise(NamedTuple):
    """Random numbers of a forward pass, passed in so that the pass is a pure function.

    In `forward` with a leading time dimension, in `step` without.
    """

    cell: Tensor | None = None
    """Added to an LSTM's cell: (T, B, n)."""
    programs: Tensor | None = None
    """Gumbel noise per control head, then of the state network and the output layer if they have stored programs:
    (T, B, heads …, P)."""

    def at(self, t: int) -> Noise:
        return Noise(*(None if noise is None else noise[t] for noise in self))


NO_NOISE = Noise()
