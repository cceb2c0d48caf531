"""What a machine is made of: its modules and their initialisation, its initial state and its noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from nsm.arguments import Forms, check_noise
from nsm.attention import gumbel_noise, seed_from
from nsm.checks import UserError, at_least, choose
from nsm.config import Interface, MachineConfig
from nsm.controllers import Controller, ControllerState, StateNetwork
from nsm.description import Description, operator
from nsm.memories import MEMORIES, Memory, MemoryConfig
from nsm.names import BACKENDS
from nsm.operands import operands
from nsm.programs import Programs, Querying, StoredProgramLinear
from nsm.pytree import tree_map
from nsm.state import NO_NOISE, MachineState, Noise
from nsm.state_programs import StoredStateNetwork
from nsm.trace import ReadHead, WriteHead


class Network(nn.Module, ABC):
    """A state network, an interface network per control head, a data memory and an output layer."""

    initial_read: Tensor

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        controller: str | Controller = "lstm",
        memory: str | MemoryConfig | Memory = "ntm",
        programs: Programs | None = None,
        interface: Interface | None = None,
        batch_first: bool = False,
        backend: str = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.backend = choose("backend", backend, BACKENDS)
        if isinstance(memory, str):
            memory = MEMORIES[choose("memory", memory, MEMORIES)]()
        elif not isinstance(memory, MemoryConfig | Memory):
            raise UserError(f"memory must be a name, a memory's configuration or a Memory, was {memory!r}")
        if isinstance(controller, str):
            controller = Controller(controller)
        elif not isinstance(controller, Controller):
            raise UserError(f"controller must be a name or a Controller, was {controller!r}")
        config = MachineConfig(
            input_size,
            output_size,
            controller,
            memory if isinstance(memory, MemoryConfig) else None,
            programs,
            interface or Interface(),
            batch_first,
        )
        self.config = config
        self.memory = config.memory.build(generator) if config.memory is not None else cast(Memory, memory)
        self.controller = self._state_network(generator)
        self.interfaces = nn.ModuleList(self._interface_network(head.size, generator) for head in self.memory.heads)
        self.norms = nn.ModuleList(nn.LayerNorm(head.size) for head in self.memory.heads if config.interface.norm)
        self.output = self._output_layer(generator)
        self.register_buffer("initial_read", torch.empty(self.memory.read_size).normal_(0, 0.01, generator=generator))
        with torch.no_grad():
            self.state_network.weight_ih[..., :input_size] *= config.controller.input_gain
            self._start_content()
        # Gumbel noise comes from the machine's own generator, so that global random state is neither used nor changed.
        self._generator = torch.Generator().manual_seed(seed_from(next(self.output.parameters())))
        self._forms: Forms = {}
        self._operator, self._description = operator(config.memory), ""
        if self._operator is not None and config.memory is not None:
            self._description = str(Description(controller, config.memory, config.programs, config.interface.norm))

    @property
    def _stored(self) -> tuple[str, ...]:
        """Which of state network and output layer are stored programs, in the order of their noise."""
        return tuple(part for part in ("state", "output") if self._stores(part))

    def _stores(self, part: str) -> bool:
        """Whether the weights of a part, state or output, are stored programs."""
        return self.config.programs is not None and part in self.config.programs.parts

    @property
    def state_network(self) -> StateNetwork:
        """The controller itself, or the one that holds its programs."""
        stored = self.controller
        return stored.memory.network if isinstance(stored, StoredStateNetwork) else stored

    def _state_network(self, generator: torch.Generator | None) -> StateNetwork | StoredStateNetwork:
        shape, programs = self.config.input_size + self.memory.read_size, self.config.programs
        if programs is None or not self._stores("state"):
            return self.config.controller.build(shape, generator)
        networks = [self.config.controller.build(shape, generator) for _ in range(programs.count)]
        return StoredStateNetwork(networks, programs, generator)

    def _output_layer(self, generator: torch.Generator | None) -> nn.Linear | StoredProgramLinear:
        """[c_t, r_t] → y_t; programs start as far from zero as the weights of a layer that isn't stored."""
        shape = self.config.controller.size + self.memory.read_size, self.config.output_size
        if self.config.programs is not None and self._stores("output"):
            return StoredProgramLinear(
                *shape, self.config.programs, bound=math.sqrt(6 / sum(shape)), generator=generator
            )
        # skip_init: nn.Linear would draw from the global generator weights that are drawn anew from the given one.
        layer: nn.Linear = skip_init(nn.Linear, *shape, device=torch.get_default_device())
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.normal_(layer.bias, std=0.01, generator=generator)
        return layer

    def _start_content(self) -> None:
        """Initialise the keys and strengths of content addressing as configured."""
        wanted, content = self.config.interface, self.memory.content
        if wanted.keys == "written":
            if content is None:
                raise UserError(f"interface keys need an LRUA or a DNC, the memory is {type(self.memory).__name__}")
            source, part = content.written
            for head, key in content.keys:
                for ours, theirs in zip(self._weights(head), self._weights(source), strict=True):
                    ours[..., key] = theirs[..., part]
        if not wanted.sharpness:
            return
        if content is None or not content.strengths:
            raise UserError(f"interface sharpness needs a DNC, the memory is {type(self.memory).__name__}")
        for head, strength in content.strengths:
            # A norm would undo a bias that is added before it.
            bias = self.norms[head].bias if self.norms else self._weights(head)[-1]
            bias[..., strength] += wanted.sharpness  # type: ignore[operator, index]

    @abstractmethod
    def _weights(self, n: int) -> tuple[Tensor, Tensor]:
        """Weights and biases of control head n as they are, the numbers of ξ last."""

    @abstractmethod
    def _interface_network(self, size: int, generator: torch.Generator | None) -> nn.Module:
        """The network of a control head whose interface has `size` numbers."""

    @abstractmethod
    def _interface(
        self, n: int, c: Tensor, noise: Tensor | None, allowed: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """ξ_{t,n} (B, L) of control head n, and the program weights (B, P) that made it, of those allowed (P,)."""

    def _state(
        self, x: Tensor, state: MachineState, noise: Noise, allowed: Tensor | None
    ) -> tuple[Tensor, ControllerState, Tensor | None]:
        """c_t and h_t of [x_t, r_{t−1}] and h_{t−1}, Eq. 1, and the program weights (B, P) that made them, of those
        allowed (P,)."""
        seen = torch.cat([x, state.read], dim=-1)
        if self._stores("state"):
            made = self.controller(seen, state.controller, noise.cell, self._choice("state", noise), allowed)
            return cast(tuple[Tensor, ControllerState, Tensor], made)
        return *self.controller(seen, state.controller, noise.cell), None

    def _answer(self, c: Tensor, read: Tensor, noise: Noise, allowed: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """y_t of [c_t, r_t], and the program weights (B, P) that made it, of those allowed (P,)."""
        seen = torch.cat([c, read], dim=-1)
        if self._stores("output"):
            stored = cast(StoredProgramLinear, self.output)
            made = stored.memory(seen, *stored.ask(seen), self._choice("output", noise), allowed)
            return cast(tuple[Tensor, Tensor], made)
        return self.output(seen), None

    def _choice(self, part: str, noise: Noise) -> Tensor | None:
        """The Gumbel noise of the state network or the output layer, after that of the control heads: (B, P)."""
        if noise.programs is None:
            return None
        return noise.programs[:, len(self.interfaces) + self._stored.index(part)]

    def initial_state(self, batch: int | None = None, slots: int | None = None) -> MachineState:
        """The state before the first step; without a `batch`, that of an unbatched sequence.

        No weight depends on N, so the tape may have any number of `slots`.
        """
        if batch is None:
            return tree_map(lambda leaf: leaf.squeeze(0), self.initial_state(1, slots))
        if not isinstance(batch, torch.SymInt):  # as in a graph for batches of any size
            at_least("batch", batch, 1)
        return MachineState(
            self.controller.initial_state(batch),
            self.memory.initial_state(batch, slots),
            self.initial_read.expand(batch, -1).clone(memory_format=torch.contiguous_format),
        )

    def draw_noise(self, *shape: int, generator: torch.Generator, cell: float = 0.0) -> Noise:
        """The noise of a training pass of shape (T, B), or (B,) for one step; `cell` is the deviation on the cell."""
        like = self.initial_read
        cells = programs = None
        if cell:
            if self.config.controller.kind != "lstm":
                raise UserError(f"noise on the cell needs an lstm controller, was {self.config.controller.kind!r}")
            size = (*shape, self.config.controller.size)
            cells = torch.empty(size, dtype=like.dtype, device="cpu").normal_(0, cell, generator=generator)
            cells = cells.to(like.device)
        if self._noisy:
            assert self.config.programs is not None
            programs = gumbel_noise(*shape, self._choices, self.config.programs.count, generator=generator, like=like)
        return Noise(cells, programs)

    @property
    def _noisy(self) -> bool:
        return self.config.programs is not None and self.config.programs.strategy.noisy

    @property
    def noisy_tests(self) -> bool:
        """Whether programs are chosen with noise in tests, too, as the published code does."""
        return self.config.programs is not None and self.config.programs.strategy.noisy_tests

    @property
    def _choices(self) -> int:
        """How many networks choose a program at a step: control heads, state network, output layer."""
        return len(self.interfaces) + len(self._stored)

    def seed(self, seed: int) -> None:
        """Restart the machine's own generator of Gumbel noise."""
        self._generator.manual_seed(seed)

    def _noise(self, shape: tuple[int, ...], noise: Noise | None) -> Noise:
        """The noise that was passed, or else newly drawn noise."""
        if noise is None:
            draw = self.training and self._noisy
            return self.draw_noise(*shape, generator=self._generator) if draw else NO_NOISE
        check_noise(noise, shape, self.config, self._choices)
        return noise

    def program_loss(self) -> Tensor:
        """l_p of all program memories (Eq. 6), 0 in a MANN; to be added to the loss with the factor η_t."""
        networks = *self.interfaces, self.controller, self.output
        losses = [network.loss() for network in networks if isinstance(network, Querying)]
        if not losses:
            return self.initial_read.new_zeros(())
        total = torch.stack(losses).sum()
        return total / len(losses) if self.config.programs and self.config.programs.loss == "mean" else total

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def _marks(self) -> tuple[ReadHead | WriteHead, ...]:
        return tuple(ReadHead() if head.kind == "read" else WriteHead() for head in self.memory.heads)

    def operands(self) -> list[Tensor]:
        """The weights as `torch.ops.nsm` takes them, including those computed by parametrisations and hooks."""
        return operands(self.controller, self.interfaces, self.norms, self.memory, self.output)

    def extra_repr(self) -> str:
        return f"{self.config.input_size} → {self.config.output_size}, {self.parameter_count:,} parameters"
