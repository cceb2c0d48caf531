"""A state network whose weights are stored programs: with the interface networks', the whole controller of a machine.

    ξ^s      = P_I^s([x_t, r_{t−1}, h_{t−1}])                     what it can see before it runs
    w^s      = softmax_i(β D(k, k_i))                             Eqs. 3–4
    W_t, U_t = Σ_i w^s(i) (W_i, U_i)                              Eq. 5
    h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1}; W_t, U_t)             Eq. 1

Both products are mixed afterwards. The state before the first step and layer norms belong to all programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never, cast

import torch
from torch import Tensor, nn

from nsm.controllers import ControllerState, NoState, StateNetwork
from nsm.programs import ProgramKeys, Programs, Querying
from nsm.stored_modules import mixed_linear

WEIGHTS = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")


class StatePrograms(ProgramKeys):
    """P programs of a state network under P keys.

    `network` has its weights and biases with a dimension P in front: weight_ih (P, rows, inputs), weight_hh
    (P, rows, n), bias_ih and bias_hh (P, rows).
    """

    def __init__(self, config: Programs, networks: Sequence[StateNetwork]) -> None:
        super().__init__(config, device=networks[0].weight_ih.device, dtype=networks[0].weight_ih.dtype)
        self.network = networks[0]
        for name in WEIGHTS:
            if getattr(self.network, name) is not None:
                stack = torch.stack([getattr(network, name).detach() for network in networks])
                setattr(self.network, name, nn.Parameter(stack))

    def forward(
        self, x: Tensor, state: ControllerState, weights: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, ControllerState]:
        """One step by the mixture of programs. x (B, inputs), weights (B, P)."""
        network = self.network
        ours, theirs = mixed_linear(x, network.weight_ih, network.bias_ih, weights), None
        if network.weight_hh is not None and not isinstance(state, NoState):
            theirs = mixed_linear(state.hidden, network.weight_hh, network.bias_hh, weights)
        return network.advance(ours, cast(Never, theirs), cast(Never, state), noise)


class StoredStateNetwork(Querying):
    """A state network that reads its weights from a program memory at every step."""

    memory: StatePrograms

    def __init__(
        self, networks: Sequence[StateNetwork], config: Programs, generator: torch.Generator | None = None
    ) -> None:
        sees = networks[0].input_size + (networks[0].size if networks[0].State._fields else 0)
        super().__init__(sees, StatePrograms(config, networks))
        self.reset_parameters(generator=generator)

    def initial_state(self, batch: int) -> ControllerState:
        """h_0 (and c_0), the same for every sample and program: a named tuple of (batch, size)."""
        return self.memory.network.initial_state(batch)

    def forward(
        self,
        x: Tensor,
        state: ControllerState,
        noise: Tensor | None = None,
        choice: Tensor | None = None,
        allowed: Tensor | None = None,
    ) -> tuple[Tensor, ControllerState, Tensor]:
        """One step, and the program weights (B, P) that made it, among the `allowed` (P,). x (B, inputs); `choice`
        (B, P) is Gumbel noise."""
        seen = torch.cat([x, state.hidden], dim=-1) if state else x
        weights = self.memory.attend(*self.ask(seen), choice, allowed)
        return *self.memory(x, state, weights, noise), weights
