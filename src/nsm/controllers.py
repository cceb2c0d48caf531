"""State networks: h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1}), Eq. 1, one step at a time.

Every network has the same interface: `output, state = network(x, state, noise)` with x (B, input_size), output c_t
(B, size) and a named tuple of (B, size) tensors as state. The c_t of an LSTM is its hidden
vector.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Never, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nsm.checks import UserError, at_least, choose, finite, positive


@dataclass(frozen=True)
class Controller:
    """The state network."""

    kind: str = "lstm"
    """lstm, gru, rnn or feed-forward."""
    size: int = 100
    """n, the width of c_t."""
    gain: float = 5.0
    """Weights are initialised from U(±gain/√(n_in + n)). The published 5 is large, but helps Associative Recall."""
    input_gain: float = 1.0
    """Initial weights of the input x are this many times larger; at 1 a one-hot word hardly changes the state."""
    forget_bias: float = 0.0
    """Initial bias of an LSTM's forget gates: 0 keeps half of the cell per step, 1 three quarters."""
    biases: int = 2
    """Bias vectors of a recurrent layer: 2 as in PyTorch (input and state), or 1."""
    learned_start: bool = True
    """Whether the initial state is learned; else it is zero."""
    layer_norm: bool = False
    """Layer norm on each gate and on the cell before its tanh (lstm only), as for question answering."""

    def __post_init__(self) -> None:
        choose("controller", self.kind, NETWORKS)
        at_least("controller size", self.size, 1)
        positive("gain", self.gain)
        positive("input_gain", self.input_gain)
        finite("forget_bias", self.forget_bias)
        if self.forget_bias and self.kind != "lstm":
            raise UserError(f"forget_bias needs an lstm controller, was {self.kind!r}")
        if self.biases not in (1, 2):
            raise UserError(f"biases must be 1 or 2, was {self.biases!r}")
        if self.layer_norm and self.kind != "lstm":
            raise UserError(f"layer_norm needs an lstm controller, was {self.kind!r}")

    def build(self, input_size: int, generator: torch.Generator | None = None) -> StateNetwork:
        """The network for inputs of width `input_size`, its weights drawn from `generator`."""
        network = NETWORKS[self.kind](input_size, self)
        network.reset_parameters(generator)
        return network


class LSTMState(NamedTuple):
    hidden: Tensor
    cell: Tensor


class HiddenState(NamedTuple):
    hidden: Tensor


class NoState(NamedTuple):
    """A feed-forward controller has no state: all memory is in the tape."""


ControllerState = LSTMState | HiddenState | NoState


class StateNetwork(nn.Module, ABC):
    """A single-step state network; subclasses give the state's type, the number of gates and the step."""

    State: type[LSTMState] | type[HiddenState] | type[NoState]
    gates: int = 1

    def __init__(self, input_size: int, config: Controller) -> None:
        super().__init__()
        self.config = config
        self.input_size = at_least("input_size", input_size, 1)
        self.size = config.size
        rows = self.gates * self.size
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.weight_hh: nn.Parameter | None = None
        self.bias_hh: nn.Parameter | None = None
        if self.State._fields:
            self.weight_hh = nn.Parameter(torch.empty(rows, self.size))
            if config.biases == 2:
                self.bias_hh = nn.Parameter(torch.empty(rows))
        learned = self.State._fields if config.learned_start else ()
        self.initial = nn.ParameterDict({name: torch.empty(self.size) for name in learned})

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        bound = self.config.gain / math.sqrt(self.input_size + self.size)
        for weight in (self.weight_ih, self.weight_hh):
            if weight is not None:
                nn.init.uniform_(weight, -bound, bound, generator=generator)
        for bias in (self.bias_ih, self.bias_hh):
            if bias is not None:
                nn.init.zeros_(bias)
        for start in self.initial.values():
            nn.init.normal_(start, std=0.05, generator=generator)

    def initial_state(self, batch: int) -> ControllerState:
        """h_0 (and c_0), the same for every sample: a named tuple of (batch, size)."""
        if not self.config.learned_start:
            return self.State(*(self.weight_ih.new_zeros(batch, self.size) for _ in self.State._fields))
        return self.State(*(self.initial[name].expand(batch, -1) for name in self.State._fields))

    @property
    def norms(self) -> tuple[nn.Module, ...]:
        """Its layer norms: of the gates in their order, then of the cell."""
        return ()

    def forward(self, x: Tensor, state: ControllerState, noise: Tensor | None = None) -> tuple[Tensor, ControllerState]:
        """One step. `noise` (B, size) is added to an LSTM's cell."""
        ours, theirs = F.linear(x, self.weight_ih, self.bias_ih), None
        if self.weight_hh is not None and not isinstance(state, NoState):
            theirs = F.linear(state.hidden, self.weight_hh, self.bias_hh)
        return self.advance(ours, cast(Never, theirs), cast(Never, state), noise)

    # `Never`: each network takes only its own state. A subclass may declare any type; this method can't be called.
    @abstractmethod
    def advance(
        self, ours: Tensor, theirs: Never, state: Never, noise: Tensor | None = None
    ) -> tuple[Tensor, ControllerState]:
        """The step after both products: `ours` = W x + b, and `theirs` = U h + b′ where there is a state (B, rows)."""


class LSTM(StateNetwork):
    """i, f, g, o = gates; c = f c + i g (+ noise); h = o tanh(c)."""

    State = LSTMState
    gates = 4

    def __init__(self, input_size: int, config: Controller) -> None:
        super().__init__(input_size, config)
        self.gate_norms: nn.ModuleList | None = None
        self.cell_norm: nn.LayerNorm | None = None
        if config.layer_norm:
            self.gate_norms = nn.ModuleList(nn.LayerNorm(self.size) for _ in range(self.gates))
            self.cell_norm = nn.LayerNorm(self.size)

    @property
    def norms(self) -> tuple[nn.Module, ...]:
        return () if self.gate_norms is None or self.cell_norm is None else (*self.gate_norms, self.cell_norm)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        # A norm would cancel a bias that is the same for all units before it.
        bias = self.bias_ih[self.size : 2 * self.size] if self.gate_norms is None else self.gate_norms[1].bias
        with torch.no_grad():
            bias.fill_(self.config.forget_bias)  # type: ignore[operator]

    def advance(
        self, ours: Tensor, theirs: Tensor, state: LSTMState, noise: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        gates = (ours + theirs).chunk(4, dim=-1)
        if self.gate_norms is not None:
            gates = tuple(norm(gate) for norm, gate in zip(self.gate_norms, gates, strict=True))
        i, f, g, o = gates
        cell = torch.sigmoid(f) * state.cell + torch.sigmoid(i) * torch.tanh(g)
        if noise is not None:
            cell = cell + noise
        # The norm applies to the cell's output, not to the cell that is carried on.
        shown = cell if self.cell_norm is None else self.cell_norm(cell)
        hidden = torch.sigmoid(o) * torch.tanh(shown)
        return hidden, LSTMState(hidden, cell)


class GRU(StateNetwork):
    """r, z = σ(…); n = tanh(W x + r (U h)); h = (1 − z) n + z h."""

    State = HiddenState
    gates = 3

    def advance(
        self, ours: Tensor, theirs: Tensor, state: HiddenState, noise: Tensor | None = None
    ) -> tuple[Tensor, HiddenState]:
        r_x, z_x, n_x = ours.chunk(3, dim=-1)
        r_h, z_h, n_h = theirs.chunk(3, dim=-1)
        z = torch.sigmoid(z_x + z_h)
        candidate = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        hidden = (1 - z) * candidate + z * state.hidden
        return hidden, HiddenState(hidden)


class RNN(StateNetwork):
    """h = tanh(W x + U h)."""

    State = HiddenState

    def advance(
        self, ours: Tensor, theirs: Tensor, state: HiddenState, noise: Tensor | None = None
    ) -> tuple[Tensor, HiddenState]:
        hidden = torch.tanh(ours + theirs)
        return hidden, HiddenState(hidden)


class FeedForward(StateNetwork):
    """c = tanh(W x): no state network, a one-state machine."""

    State = NoState

    def advance(
        self, ours: Tensor, theirs: None, state: NoState, noise: Tensor | None = None
    ) -> tuple[Tensor, NoState]:
        return torch.tanh(ours), state


NETWORKS: dict[str, type[StateNetwork]] = {"lstm": LSTM, "gru": GRU, "rnn": RNN, "feed-forward": FeedForward}
