"""Algorithm 1: the Neural Universal Turing Machine, and the plain memory-augmented network it generalises.

    h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1})                   state network         nsm.controllers
    ξ^p      = P_I(c_t);  W_t = NSM(ξ^p, M_p)                 per control head      nsm.programs
    ξ        = c_t W_t                                        per control head
    r_t      = memory(ξ, M)                                   data memory           nsm.memories
    y_t      = [c_t, r_t] W_out

In a `MANN` W_t is one matrix for all time; in a `NUTM` it is read from a program memory at every step.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nsm import pretrained
from nsm.checks import UserError, at_least, choose, finite, positive
from nsm.controllers import Controller
from nsm.description import Description, operator
from nsm.memories import MEMORIES, NTM, Memory, MemoryConfig
from nsm.names import BACKENDS, PRESETS
from nsm.nested import apply, check_like, scale, select, stack
from nsm.operands import NotCovered, operands
from nsm.programs import Programs, StoredProgramLinear, gumbel_noise, seed_from

logger = logging.getLogger("nsm")
_told: set[str] = set()
"""What has been said once about the fused back end and is not said again."""


@dataclass(frozen=True)
class Interface:
    """How the interface networks c_t → ξ start, and whether ξ is normalised."""

    gain: float = 1.4
    """Weights start as U(±gain √(6 / fan))."""
    fan: str = "memory"
    """head: fan = n + L, a head's own size (Xavier, the published NTM). memory: fan = P + K + (n+1)L, that of a whole
    program memory, four to six times smaller weights (the published NUTM, and what learns reliably in both)."""
    norm: bool = False
    """Layer norm on each head's ξ, as for question answering."""
    keys: str = "own"
    """written: the weights of every content key start as those of the vector that is written, so that a state finds
    what was written in states like it. own: they start independent of each other, and that has to be learned (LRUA,
    DNC)."""
    sharpness: float = 0.0
    """Added to the strengths of content addressing at the start, before their softplus (DNC)."""

    def __post_init__(self) -> None:
        positive("interface gain", self.gain)
        finite("interface sharpness", self.sharpness)
        choose("interface fan", self.fan, ("head", "memory"))
        choose("interface keys", self.keys, ("own", "written"))

    def bound(self, in_features: int, out_features: int, programs: Programs | None) -> float:
        """The bound of the uniform distribution a head's weights are drawn from."""
        if self.fan == "head":
            fan = in_features + out_features
        else:
            rows, keys = (1, 0) if programs is None else (programs.count, programs.keys)
            fan = rows + keys + (in_features + 1) * out_features
        return self.gain * math.sqrt(6 / fan)


@dataclass(frozen=True)
class MachineConfig:
    """Everything that decides a machine's shape and how it starts; `programs` is None for a MANN."""

    input_size: int
    output_size: int
    controller: Controller = field(default_factory=Controller)
    memory: MemoryConfig | None = field(default_factory=NTM)
    """None for a memory module of the user's own."""
    programs: Programs | None = None
    interface: Interface = field(default_factory=Interface)
    batch_first: bool = False

    def __post_init__(self) -> None:
        at_least("input_size", self.input_size, 1)
        at_least("output_size", self.output_size, 1)

    def preset(self, name: str) -> MachineConfig:
        """This configuration with the values that `name` stands for; nothing but those values knows a preset.

        default: what learns reliably. A constant tape, heads on the first slot, small interface weights.
        paper: the paper's equations, with the initial interface weights of the published code. How the tape starts it
        does not say, and only a constant one with heads on the first slot shows what it found (docs/campaign.md).
        authors: paper, with the published code's random tape and heads nowhere, and its deviations from the equations:
        tanh on keys, β/K, l_p averaged.
        """
        choose("preset", name, PRESETS)
        if name == "default":
            return self
        config = replace(self, interface=replace(self.interface, fan="memory" if self.programs else "head"))
        if name == "paper":
            return config
        if self.memory is not None:
            start: dict[str, Any] = {"initial_address": "zeros"} if isinstance(self.memory, NTM) else {}
            config = replace(config, memory=replace(self.memory, initial_memory="random", **start))
        if self.programs is not None:
            deviations = replace(self.programs, bounded_keys=True, strength_scale=1 / self.programs.keys, loss="mean")
            config = replace(config, programs=deviations)
        return config


class MachineState(NamedTuple):
    """All a machine carries from step to step."""

    controller: Any
    """The state network's named tuple, each (B, n)."""
    memory: Any
    """The data memory's named tuple, batch first."""
    read: Tensor
    """r_{t−1} (B, R·M)"""

    def detach(self) -> MachineState:
        """The same numbers, cut from the graph that made them: what truncated backpropagation hands on."""
        return cast(MachineState, apply(Tensor.detach, self))

    def clone(self) -> MachineState:
        """A copy, which gradients flow through."""
        return cast(MachineState, apply(Tensor.clone, self))

    def to(self, *arguments: Any, **options: Any) -> MachineState:
        """Every tensor moved or converted as `torch.Tensor.to` does."""
        return cast(MachineState, apply(lambda leaf: leaf.to(*arguments, **options), self))


class Noise(NamedTuple):
    """Random numbers of a forward pass, drawn outside and handed in, so that the pass itself is a pure function.

    In `forward` with a leading time dimension, in `step` without.
    """

    cell: Tensor | None = None
    """Added to an LSTM's cell: (T, B, n)."""
    programs: Tensor | None = None
    """Gumbel noise per control head: (T, B, heads, P)."""

    def at(self, t: int) -> Noise:
        return Noise(*(None if noise is None else noise[t] for noise in self))


NO_NOISE = Noise()


class Trace(NamedTuple):
    """What happened at every step, time first. Steps after a sequence's end are zero."""

    controller: Tensor
    """c_t (T, B, n)"""
    interfaces: tuple[Tensor, ...]
    """ξ per control head, each (T, B, L)"""
    programs: Tensor | None
    """w^p (T, B, heads, P), None in a MANN"""
    read_addresses: Tensor
    """(T, B, R, N)"""
    write_addresses: Tensor
    """(T, B, W, N)"""
    reads: Tensor
    """r_t (T, B, R·M)"""
    memory: Tensor | None
    """M_t (T, B, N, M) if asked for with trace="memory" """


FORMS = 64
"""How many forms of states a machine remembers: one for each batch size and number of slots."""


def _form(state: MachineState) -> Any:
    """What a state consists of: types of tuples, and shapes of tensors or whatever else is in their place."""
    leaves = *state.controller, *state.memory, state.read
    return type(state.controller), type(state.memory), [getattr(leaf, "shape", type(leaf)) for leaf in leaves]


def _autocast(x: Tensor) -> torch.dtype | None:
    """The precision that autocast wants on the device of x, if it is on."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def _repacked(x: PackedSequence, out: Tensor, lengths: Tensor) -> PackedSequence:
    """out (T, B, O) packed in the order of x."""
    if x.sorted_indices is not None:
        out, lengths = out[:, x.sorted_indices], lengths[x.sorted_indices.cpu()]
    return x._replace(data=pack_padded_sequence(out, lengths).data)


class Machine(nn.Module, ABC):
    """A state network, an interface network per control head, a data memory and an output layer.

    `out, state = machine(x, state)` as in `nn.LSTM`: x (T, B, I), or (B, T, I) with `batch_first`.
    """

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
        preset: str = "default",
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
        ).preset(preset)
        self.config = config
        self.memory = config.memory.build(generator) if config.memory is not None else cast(Memory, memory)
        self.controller = config.controller.build(input_size + self.memory.read_size, generator)
        self.interfaces = nn.ModuleList(self._interface_network(head.size, generator) for head in self.memory.heads)
        self.norms = nn.ModuleList(nn.LayerNorm(head.size) for head in self.memory.heads if config.interface.norm)
        # skip_init: nn.Linear itself would draw from the global generator what is drawn anew from the one given.
        shape = (config.controller.size + self.memory.read_size, output_size)
        self.output: nn.Linear = skip_init(nn.Linear, *shape, device=torch.get_default_device())
        nn.init.xavier_uniform_(self.output.weight, generator=generator)
        nn.init.normal_(self.output.bias, std=0.01, generator=generator)
        self.register_buffer("initial_read", torch.empty(self.memory.read_size).normal_(0, 0.01, generator=generator))
        with torch.no_grad():
            self.controller.weight_ih[:, :input_size] *= config.controller.input_gain
            self._start_content()
        # Gumbel noise comes from a generator of the machine's own, so that it neither uses nor moves any global state.
        self._generator = torch.Generator().manual_seed(seed_from(self.output.weight))
        self._forms: dict[Any, Any] = {}
        self._operator, self._description = operator(config.memory), ""
        if self._operator is not None and config.memory is not None:
            self._description = str(Description(controller, config.memory, config.programs, config.interface.norm))

    def _start_content(self) -> None:
        """Give keys and strengths of content addressing the start that the configuration wants."""
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
            # A norm would undo what is added before it.
            bias = self.norms[head].bias if self.norms else self._weights(head)[-1]
            bias[..., strength] += wanted.sharpness  # type: ignore[operator, index]

    @abstractmethod
    def _weights(self, n: int) -> tuple[Tensor, Tensor]:
        """Weights and biases of control head n as they are, the numbers of ξ last."""

    @abstractmethod
    def _interface_network(self, size: int, generator: torch.Generator | None) -> nn.Module:
        """The network of a control head whose interface has `size` numbers."""

    @abstractmethod
    def _interface(self, n: int, c: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """ξ_{t,n} (B, L) of control head n, and the program weights (B, P) that made it."""

    # --- Algorithm 1 --------------------------------------------------------------------------------------------------

    def _step(self, x: Tensor, state: MachineState, noise: Noise) -> tuple[Tensor, MachineState, Trace]:
        c, controller = self.controller(torch.cat([x, state.read], dim=-1), state.controller, noise.cell)
        interfaces, programs = [], []
        for n in range(len(self.interfaces)):
            interface, weights = self._interface(n, c, None if noise.programs is None else noise.programs[:, n])
            interfaces.append(self.norms[n](interface) if self.norms else interface)
            programs.append(weights)
        read, memory, addresses = self.memory(interfaces, state.memory)
        y = self.output(torch.cat([c, read], dim=-1))
        mix = None if programs[0] is None else torch.stack(cast(list[Tensor], programs), dim=1)
        tape = getattr(memory, "memory", None)
        trace = Trace(c, tuple(interfaces), mix, addresses.read, addresses.write, read, tape)
        return y, MachineState(controller, memory, read), trace

    def step(self, x: Tensor, state: MachineState, noise: Noise | None = None) -> tuple[Tensor, MachineState]:
        """One time step: x (B, I), or (I,) → y and the next state. A loop of steps equals one `forward`."""
        self._check_input(x, ("B", "I"), ("I",))
        noise = self._noise(x.shape[:-1], noise)
        if noise is not NO_NOISE:
            noise = apply(lambda drawn: drawn.unsqueeze(0), noise)
        self._check_state(state, x.shape[0] if x.dim() == 2 else None)
        run = self._run if x.dim() == 2 else self._unbatched
        out, state, _ = run(x.unsqueeze(0), state, noise)
        return out.squeeze(0), state

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: MachineState | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        trace: bool | str = False,
        noise: Noise | None = None,
    ) -> Any:
        """Run over whole sequences: `out, state`, or `out, state, trace` if a trace is asked for.

        x (T, B, I) → out (T, B, O); with `batch_first` (B, T, I) → (B, T, O). A single sequence may be unbatched, as in
        `nn.LSTM`: x (T, I) → out (T, O), and its state without the batch dimension. `lengths` (B,) are the sequences'
        own lengths: after its end a sequence puts out zeros and its state stays as it was at its last step. A
        `PackedSequence` brings its lengths along, and gets a packed output. `trace=True` adds a `Trace`,
        `trace="memory"` one with the whole tape at every step. Under autocast the machine computes in the precision of
        its weights, and puts out that of autocast.
        """
        if trace not in (True, False, "memory"):
            raise UserError(f"trace must be True, False or 'memory', was {trace!r}")
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise UserError("lengths are those of the PackedSequence x; leave them out")
            padded, lengths = pad_packed_sequence(x)
            self._check_input(padded, ("T", "B", "I"))
            if state is not None:
                self._check_state(state, padded.shape[1])
            noise = self._noise(padded.shape[:2], noise)
            out, state, happened = self._run(padded, state, noise, lengths, trace)
            packed = _repacked(x, out, lengths)
            return (packed, state, happened) if trace else (packed, state)
        first = self.config.batch_first
        self._check_input(x, ("B", "T", "I") if first else ("T", "B", "I"), ("T", "I"))
        alone = x.dim() == 2
        if alone and lengths is not None:
            raise UserError("lengths are for batches; an unbatched x (T, I) is as long as it is")
        if first and not alone:
            x = x.transpose(0, 1)
        if state is not None:
            self._check_state(state, None if alone else x.shape[1])
        noise = self._noise(x.shape[:-1], noise)
        if alone:
            out, state, happened = self._unbatched(x, state, noise, trace)
        else:
            out, state, happened = self._run(x, state, noise, self._check_lengths(lengths, *x.shape[:2]), trace)
            out = out.transpose(0, 1) if first else out
        return (out, state, happened) if trace else (out, state)

    def _unbatched(
        self, x: Tensor, state: MachineState | None, noise: Noise, trace: bool | str = False
    ) -> tuple[Tensor, MachineState, Trace | None]:
        """A batch of one. x (T, I) → out (T, O)."""
        if state is not None:
            state = apply(lambda leaf: leaf.unsqueeze(0), state)
        noise = apply(lambda drawn: drawn.unsqueeze(1), noise)
        out, state, happened = self._run(x.unsqueeze(1), state, noise, None, trace)
        state = apply(lambda leaf: leaf.squeeze(0), state)
        return out.squeeze(1), state, apply(lambda leaf: leaf.squeeze(1), happened)

    def _run(
        self,
        x: Tensor,
        state: MachineState | None,
        noise: Noise,
        lengths: Tensor | None = None,
        trace: bool | str = False,
    ) -> tuple[Tensor, MachineState, Trace | None]:
        """On whichever back end is to run it. x (T, B, I) → out (T, B, O)."""
        state = self.initial_state(x.shape[1]) if state is None else state
        weights = self._kernel_operands(noise)
        wanted = _autocast(x)
        if wanted is None:
            return self._on(weights, x, state, lengths, trace, noise)
        # A state goes from step to step in the precision of the weights: x is cast at the door, and out is cast back.
        with torch.autocast(x.device.type, enabled=False):
            out, state, happened = self._on(weights, x.to(self.output.weight.dtype), state, lengths, trace, noise)
        return out.to(wanted), state, happened

    def _on(self, weights: list[Tensor] | None, *rest: Any) -> tuple[Tensor, MachineState, Trace | None]:
        return self._reference(*rest) if weights is None else self._fused(weights, *rest)

    def _reference(
        self, x: Tensor, state: MachineState, lengths: Tensor | None, trace: bool | str, noise: Noise
    ) -> tuple[Tensor, MachineState, Trace | None]:
        """Step by step, with autograd: any device, any float, any option. The specification."""
        outputs, traces = [], []
        ends, shortest = (None, x.shape[0]) if lengths is None else (lengths.to(x.device), int(lengths.min()))
        for t in range(x.shape[0]):
            running = t < ends if ends is not None and t >= shortest else None
            # Zero after the end: what is there, even NaN, would reach the gradient as zero times itself.
            inputs, drawn = (x[t], noise.at(t)) if running is None else scale((x[t], noise.at(t)), running)
            y, after, happened = self._step(inputs, state, drawn)
            if trace != "memory":
                happened = happened._replace(memory=None)
            if running is not None:
                y, happened = scale(y, running), scale(happened, running)
                after = select(running, after, state)
            state = after
            outputs.append(y)
            traces.append(happened if trace else None)
        return torch.stack(outputs), state, stack(traces) if trace else None

    def _fused(
        self,
        weights: list[Tensor],
        x: Tensor,
        state: MachineState,
        lengths: Tensor | None,
        trace: bool | str,
        noise: Noise,
    ) -> tuple[Tensor, MachineState, Trace | None]:
        """All steps in one operator: CPU, float32, the same numbers up to rounding. A trace carries no gradient."""
        # Not at the top: Numba takes half as long to import as torch, and the reference has no use for it.
        from nsm.fused import operators

        level = {False: 0, True: operators.WITH_ADDRESSES, "memory": operators.WITH_TAPES}[trace]
        leaves = [*state.controller, *state.memory, state.read]
        inputs = x, leaves, weights, *noise, lengths, self._description, level
        out, final, happened, _ = operators.run(cast(str, self._operator), *inputs)
        split = len(state.controller)
        after = MachineState(type(state.controller)(*final[:split]), type(state.memory)(*final[split:-1]), final[-1])
        if not trace:
            return out, after, None
        controller, reads, read, write, *rest = happened
        programs = rest.pop(0) if self.config.programs is not None else None
        tape = rest.pop() if trace == "memory" else None
        return out, after, Trace(controller, tuple(rest), programs, read, write, reads, tape)

    def operands(self) -> list[Tensor]:
        """The weights as `torch.ops.nsm` takes them, those that parametrisations and hooks make among them."""
        return operands(self.controller, self.interfaces, self.norms, self.memory, self.output)

    def uncovered(self) -> str | None:
        """Why the fused back end can't run this machine, or None if it can."""
        try:
            self._covered(Noise())
        except NotCovered as reason:
            return str(reason)
        return None

    def _covered(self, noise: Noise) -> list[Tensor]:
        """The weights for the fused back end, or NotCovered if it can't run this machine with this noise."""
        weight = self.output.weight
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            raise NotCovered(f"{weight.dtype} on {weight.device.type}", plain=True)
        if self._operator is None:
            raise NotCovered(f"a {type(self.config.memory or self.memory).__name__}")
        if type(self)._step is not Machine._step or type(self)._interface not in (MANN._interface, NUTM._interface):
            raise NotCovered(f"the steps of a {type(self).__name__}")
        if any(drawn is not None and drawn.requires_grad for drawn in noise):
            raise NotCovered("noise with a gradient")
        return self.operands()

    def _kernel_operands(self, noise: Noise) -> list[Tensor] | None:
        """The weights for the fused back end, or None if the reference is to run."""
        if self.backend == "reference":
            return None
        try:
            return self._covered(noise)
        except NotCovered as reason:
            if self.backend == "fused":
                raise UserError(f"backend 'fused' doesn't cover {reason}; backend 'reference' does") from None
            if not reason.plain and str(reason) not in _told:
                _told.add(str(reason))
                logger.warning("nsm: the fused back end doesn't cover %s; using the reference, which is slower", reason)
            return None

    def initial_state(self, batch: int | None = None, slots: int | None = None) -> MachineState:
        """The state before the first step; without a `batch`, that of an unbatched sequence.

        No weight depends on N: a tape of any number of `slots` will do.
        """
        if batch is None:
            return cast(MachineState, apply(lambda leaf: leaf.squeeze(0), self.initial_state(1, slots)))
        if not isinstance(batch, torch.SymInt):  # as in a graph for batches of any size
            at_least("batch", batch, 1)
        return MachineState(
            self.controller.initial_state(batch),
            self.memory.initial_state(batch, slots),
            self.initial_read.expand(batch, -1).clone(memory_format=torch.contiguous_format),
        )

    # --- noise --------------------------------------------------------------------------------------------------------

    def draw_noise(self, *shape: int, generator: torch.Generator, cell: float = 0.0) -> Noise:
        """The noise of a training pass of shape (T, B), or (B,) for one step: `cell` is its deviation on the cell."""
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
            heads = len(self.interfaces)
            programs = gumbel_noise(*shape, heads, self.config.programs.count, generator=generator, like=like)
        return Noise(cells, programs)

    @property
    def _noisy(self) -> bool:
        return self.config.programs is not None and self.config.programs.attention == "gumbel"

    def seed(self, seed: int) -> None:
        """Restart the machine's own generator of Gumbel noise."""
        self._generator.manual_seed(seed)

    def _noise(self, shape: tuple[int, ...], noise: Noise | None) -> Noise:
        if noise is None:
            draw = self.training and self._noisy
            return self.draw_noise(*shape, generator=self._generator) if draw else NO_NOISE
        programs = self.config.programs.count if self.config.programs else 0
        expected = ((*shape, self.config.controller.size), (*shape, len(self.interfaces), programs))
        for name, drawn, size in zip(Noise._fields, noise, expected, strict=True):
            if drawn is not None and drawn.shape != size:
                raise UserError(f"noise.{name} must have shape {size}, was {tuple(drawn.shape)}")
        if noise.cell is not None and self.config.controller.kind != "lstm":
            raise UserError(f"noise.cell needs an lstm controller, was {self.config.controller.kind!r}")
        return noise

    # --- losses, checks, files ----------------------------------------------------------------------------------------

    def program_loss(self) -> Tensor:
        """l_p of all program memories (Eq. 6), 0 in a MANN; to be added to the loss with the factor η_t."""
        losses = [network.loss() for network in self.interfaces if isinstance(network, StoredProgramLinear)]
        if not losses:
            return self.initial_read.new_zeros(())
        total = torch.stack(losses).sum()
        return total / len(losses) if self.config.programs and self.config.programs.loss == "mean" else total

    @property
    def parameter_count(self) -> int:
        """How many numbers are trained."""
        return sum(parameter.numel() for parameter in self.parameters())

    def _check_input(self, x: Tensor, *shapes: tuple[str, ...]) -> None:
        if (
            isinstance(x, Tensor)
            and any(x.dim() == len(axes) for axes in shapes)
            and x.shape[-1] == self.config.input_size
            and 0 not in x.shape
            and x.dtype == self.output.weight.dtype
        ):
            return
        wanted = " or ".join(f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in shapes)
        wanted = wanted.replace("I", str(self.config.input_size))
        if not isinstance(x, Tensor):
            raise UserError(f"x must be a tensor of shape {wanted}, was {type(x).__name__}")
        if x.dim() not in map(len, shapes) or x.shape[-1] != self.config.input_size or 0 in x.shape:
            raise UserError(f"x must have shape {wanted}, none of it 0, was {tuple(x.shape)}")
        if x.dtype != self.output.weight.dtype and (_autocast(x) is None or not x.is_floating_point()):
            raise UserError(f"x must be {self.output.weight.dtype} like the weights, was {x.dtype}")

    def _check_lengths(self, lengths: Tensor | Sequence[int] | None, steps: int, batch: int) -> Tensor | None:
        """(B,) on the CPU, or None."""
        if lengths is None:
            return None
        if torch.compiler.is_compiling() and isinstance(lengths, Tensor):
            return lengths.to("cpu", torch.int64)  # what they are is only known when they come: the operator looks then
        try:
            ends = lengths.tolist() if hasattr(lengths, "tolist") else list(lengths)
            ends = [end.item() if isinstance(end, np.generic) else end for end in ends]
        except TypeError:
            raise UserError(f"lengths must have one entry per sequence, {batch}, was {lengths!r}") from None
        if len(ends) != batch:
            raise UserError(f"lengths must have one entry per sequence, {batch}, had {len(ends)}")
        for end in ends:
            if isinstance(end, bool) or not isinstance(end, int) or not 1 <= end <= steps:
                raise UserError(f"lengths must be integers from 1 to T = {steps}, one was {end!r}")
        return torch.tensor(ends, device="cpu")

    def _check_state(self, state: MachineState, batch: int | None) -> None:
        if not isinstance(state, MachineState):
            raise UserError(f"state must be a MachineState, as initial_state() makes it, was {type(state).__name__}")
        tape = getattr(state.memory, "memory", None)
        slots = tape.shape[-2] if isinstance(tape, Tensor) and tape.dim() == (2 if batch is None else 3) else None
        if torch.compiler.is_compiling() or self._operator is None:
            check_like("state", state, self.initial_state(batch, slots))
            return
        # What a state has to be like does not change: a machine that is run step by step is not to make one every time.
        known = self._forms.get((batch, slots))
        if known is None:
            known = _form(self.initial_state(batch, slots))
            if len(self._forms) < FORMS:
                self._forms[batch, slots] = known
        dtype = self.output.weight.dtype
        if _form(state) != known or any(leaf.dtype != dtype for leaf in (*state.controller, *state.memory, state.read)):
            check_like("state", state, self.initial_state(batch, slots))

    def save_pretrained(self, directory: str | Path) -> None:
        """Write the machine to a directory as `config.json` and `model.safetensors`: nothing in it can be executed."""
        kind = MANN if self.config.programs is None else NUTM
        pretrained.save(Path(directory), kind.__name__, self.config, self.state_dict())

    @classmethod
    def from_pretrained(cls, directory: str | Path, memory: Memory | None = None, backend: str = "auto") -> Self:
        """Read a machine that `save_pretrained` wrote; a memory module of your own is handed in again.

        `nsm.load` reads runs and checkpoints, too.
        """
        kind, config, tensors = pretrained.load(Path(directory), MachineConfig)
        known = {machine.__name__: machine for machine in (MANN, NUTM)}
        if kind not in known or not (issubclass(known[kind], cls) or issubclass(cls, known[kind])):
            raise UserError(f"{directory} holds a machine of kind {kind!r}, not a {cls.__name__}")
        if (kind == "NUTM") != (config.programs is not None):
            raise UserError(f"{directory} is damaged: a {kind} with programs {config.programs}")
        if (config.memory is None) != (memory is not None):
            missing = f"needs its own memory module, memory=… of {cls.__name__}.from_pretrained"
            wanted = missing if memory is None else "has a memory of its own already"
            raise UserError(f"the machine in {directory} {wanted}")
        return cast(Self, cls.from_tensors(Path(directory), config, tensors, memory, backend))

    @classmethod
    def from_tensors(
        cls,
        directory: Path,
        config: MachineConfig,
        tensors: dict[str, Tensor],
        memory: Memory | None = None,
        backend: str = "auto",
    ) -> Machine:
        """The machine of a configuration, with the tensors found in a directory, checked before they are used."""
        try:
            # Nothing is drawn or allocated for what the file replaces, whatever sizes a damaged one asks for.
            with torch.device("meta"):
                machine = cls.from_config(config, memory, backend)
        except (ValueError, RuntimeError, TypeError) as error:
            raise UserError(f"{directory} can't be loaded: {error}") from None
        pretrained.check(directory / pretrained.TENSORS, tensors, machine.state_dict())
        # Copies, because what was read in one piece isn't aligned as a tensor of its own is.
        machine.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
        return machine

    @classmethod
    def from_config(
        cls,
        config: MachineConfig,
        memory: Memory | None = None,
        backend: str = "auto",
        generator: torch.Generator | None = None,
    ) -> Machine:
        """The machine a configuration describes: a NUTM if it has programs, else a MANN; or one of a class of yours."""
        arguments: dict[str, Any] = {
            "controller": config.controller,
            "memory": config.memory if memory is None else memory,
            "interface": config.interface,
            "batch_first": config.batch_first,
            "backend": backend,
            "generator": generator,
        }
        kind: type[Machine] = MANN
        if config.programs is not None:
            kind, arguments = NUTM, {**arguments, "programs": config.programs}
        return (cls if issubclass(cls, kind) else kind)(config.input_size, config.output_size, **arguments)

    def extra_repr(self) -> str:
        return f"{self.config.input_size} → {self.config.output_size}, {self.parameter_count:,} parameters"


class Bytes(NamedTuple):
    """How large a machine is, and a state of some sequences."""

    weights: int
    buffers: int
    state: int


def least_memory(config: MachineConfig, batch: int, slots: int | None = None) -> Bytes:
    """How large the machine of a configuration would be, on a tape of any size; nothing is allocated."""
    memory = config.memory
    if memory is None:
        return Bytes(0, 0, 0)  # who brings a memory of their own has it already
    config = replace(config, memory=replace(memory, slots=memory.slots if slots is None else slots))
    try:
        with torch.device("meta"):
            machine = Machine.from_config(config)
            leaves: list[Tensor] = []
            apply(leaves.append, machine.initial_state(batch))
            kinds = machine.parameters(), machine.buffers(), leaves
    except (RuntimeError, TypeError, OverflowError):  # torch counts in 64 bits
        raise UserError("the machine can't be built: it has more numbers than can be counted") from None
    return Bytes(*(sum(tensor.numel() * tensor.element_size() for tensor in kind) for kind in kinds))


class MANN(Machine):
    """A memory-augmented network with one static interface network per control head, ξ = c W (Eq. 2)."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        controller: str | Controller = "lstm",
        memory: str | MemoryConfig | Memory = "ntm",
        interface: Interface | None = None,
        preset: str = "default",
        batch_first: bool = False,
        backend: str = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            input_size,
            output_size,
            controller=controller,
            memory=memory,
            interface=interface,
            preset=preset,
            batch_first=batch_first,
            backend=backend,
            generator=generator,
        )

    def _interface_network(self, size: int, generator: torch.Generator | None) -> nn.Module:
        n = self.config.controller.size
        network: nn.Linear = skip_init(nn.Linear, n, size, device=torch.get_default_device())
        bound = self.config.interface.bound(n, size, None)
        nn.init.uniform_(network.weight, -bound, bound, generator=generator)
        nn.init.normal_(network.bias, std=0.01, generator=generator)
        return network

    def _weights(self, n: int) -> tuple[Tensor, Tensor]:
        network = cast(nn.Linear, self.interfaces[n])
        return network.weight.T, network.bias

    def _interface(self, n: int, c: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return self.interfaces[n](c), None


class NUTM(Machine):
    """A neural universal Turing machine: one stored-program memory per control head, ξ = c W_t (Algorithm 1)."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        programs: int | Programs = 2,
        *,
        controller: str | Controller = "lstm",
        memory: str | MemoryConfig | Memory = "ntm",
        interface: Interface | None = None,
        preset: str = "default",
        batch_first: bool = False,
        backend: str = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            input_size,
            output_size,
            controller=controller,
            memory=memory,
            programs=programs if isinstance(programs, Programs) else Programs(programs),
            interface=interface,
            preset=preset,
            batch_first=batch_first,
            backend=backend,
            generator=generator,
        )

    def _interface_network(self, size: int, generator: torch.Generator | None) -> nn.Module:
        assert self.config.programs is not None
        n = self.config.controller.size
        bound = self.config.interface.bound(n, size, self.config.programs)
        return StoredProgramLinear(n, size, self.config.programs, bound=bound, generator=generator)

    def _weights(self, n: int) -> tuple[Tensor, Tensor]:
        memory = cast(StoredProgramLinear, self.interfaces[n]).memory
        return memory.weight, cast(Tensor, memory.bias)

    def _interface(self, n: int, c: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        network = cast(StoredProgramLinear, self.interfaces[n])
        return cast(tuple[Tensor, Tensor], network.memory(c, *network.ask(c), noise))
