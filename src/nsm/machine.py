"""Algorithm 1: the Neural Universal Turing Machine, and the plain memory-augmented network it generalises.

    h_t, c_t = RNN([x_t, r_{t−1}], h_{t−1})                   state network         nsm.controllers
    ξ^p      = P_I(c_t);  W_t = NSM(ξ^p, M_p)                 per control head      nsm.programs
    ξ        = c_t W_t                                        per control head
    r_t      = memory(ξ, M)                                   data memory           nsm.memories
    y_t      = [c_t, r_t] W_out

In a `MANN` W_t is one matrix for all time; in a `NUTM` it is read from a program memory at every step. The weights of
the state network and W_out can be read from program memories of their own, too (`Programs.parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from nsm import backends, hub, pretrained
from nsm.arguments import Lengths, autocast_dtype, check_input, check_lengths, check_state, repacked
from nsm.checks import UserError
from nsm.config import Interface, MachineConfig, Repertoire
from nsm.controllers import Controller
from nsm.interventions import UNTOUCHED, Course, Intervention, Touch
from nsm.memories import Memory, MemoryConfig
from nsm.network import Network
from nsm.operands import NotCovered
from nsm.programs import Programs, StoredProgramLinear
from nsm.pytree import tree_map, tree_mask, tree_stack, tree_where
from nsm.repertoire import RepertoireMachine
from nsm.saved import Saved
from nsm.state import NO_NOISE, MachineState, Noise
from nsm.trace import Trace

__all__ = ["MANN", "NUTM", "Interface", "Machine", "MachineConfig", "MachineState", "Noise", "Repertoire", "Trace"]

X = TypeVar("X", Tensor, PackedSequence)
"""What goes in, and what comes out."""
Ran = tuple[Tensor, MachineState, Trace | None]
"""Outputs, the final state, and the trace if one was asked for."""


class Machine(Network, Saved):
    """A state network, an interface network per control head, a data memory and an output layer.

    `out, state = machine(x, state)` as in `nn.LSTM`: x (T, B, I), or (B, T, I) with `batch_first`.
    """

    _interventions: Sequence[Intervention] = ()

    # --- Algorithm 1 --------------------------------------------------------------------------------------------------

    def _step(
        self, x: Tensor, state: MachineState, noise: Noise, touch: Touch = UNTOUCHED
    ) -> tuple[Tensor, MachineState, Trace]:
        state, noise = touch.before(state, noise)
        c, controller, state_mix = self._state(x, state, noise, touch.allowed("state"))
        interfaces, programs = [], []
        for n in range(len(self.interfaces)):
            drawn = None if noise.programs is None else noise.programs[:, n]
            interface, weights = self._interface(n, c, drawn, touch.allowed(n))
            interfaces.append(self.norms[n](interface) if self.norms else interface)
            programs.append(weights)
        read, memory, addresses = self.memory(interfaces, state.memory, *touch.placing)
        y, output_mix = self._answer(c, read, noise, touch.allowed("output"))
        mix = None if programs[0] is None else torch.stack(cast(list[Tensor], programs), dim=1)
        tape, seen = getattr(memory, "memory", None), (addresses.read, addresses.write, read)
        trace = Trace(c, tuple(interfaces), mix, *seen, tape, self._marks, state_mix, output_mix)
        return y, MachineState(controller, memory, read), trace

    def step(self, x: Tensor, state: MachineState, noise: Noise | None = None) -> tuple[Tensor, MachineState]:
        """One time step: x (B, I), or (I,) → y and the next state. A loop of steps equals one `forward`."""
        self._check_input(x, ("B", "I"), ("I",))
        noise = self._noise(x.shape[:-1], noise)
        if noise is not NO_NOISE:
            noise = tree_map(lambda drawn: drawn.unsqueeze(0), noise)
        self._check_state(state, x.shape[0] if x.dim() == 2 else None)
        run = self._run if x.dim() == 2 else self._unbatched
        out, state, _ = run(x.unsqueeze(0), state, noise)
        return out.squeeze(0), state

    @overload
    def forward(
        self,
        x: X,
        state: MachineState | None = None,
        lengths: Lengths | None = None,
        trace: Literal[False] = False,
        noise: Noise | None = None,
    ) -> tuple[X, MachineState]: ...

    @overload
    def forward(
        self,
        x: X,
        state: MachineState | None = None,
        lengths: Lengths | None = None,
        *,
        trace: Literal[True, "memory"],
        noise: Noise | None = None,
    ) -> tuple[X, MachineState, Trace]: ...

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: MachineState | None = None,
        lengths: Lengths | None = None,
        trace: bool | str = False,
        noise: Noise | None = None,
    ) -> tuple[Tensor | PackedSequence, MachineState] | tuple[Tensor | PackedSequence, MachineState, Trace]:
        """Run over whole sequences: `out, state`, or `out, state, trace` if a trace is asked for.

        x (T, B, I) → out (T, B, O); with `batch_first` (B, T, I) → (B, T, O). A single sequence may be unbatched, as in
        `nn.LSTM`: x (T, I) → out (T, O), and its state without the batch dimension. `lengths` (B,) are the lengths of
        the sequences: after its end a sequence outputs zeros and keeps the state of its last step. A `PackedSequence`
        has its own lengths, and gives a packed output. `trace=True` adds a `Trace`, `trace="memory"` one with the whole
        tape at every step. Under autocast the machine computes in the precision of its weights, and its output has that
        of autocast.
        """
        if trace not in (True, False, "memory"):
            raise UserError(f"trace must be True, False or 'memory', was {trace!r}")
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise UserError("a PackedSequence x has its own lengths; leave out lengths")
            padded, lengths = pad_packed_sequence(x)
            self._check_input(padded, ("T", "B", "I"))
            if state is not None:
                self._check_state(state, padded.shape[1])
            noise = self._noise(padded.shape[:2], noise)
            out, state, happened = self._run(padded, state, noise, lengths, trace)
            packed = repacked(x, out, lengths)
            return (packed, state) if happened is None else (packed, state, happened)
        first = self.config.batch_first
        self._check_input(x, ("B", "T", "I") if first else ("T", "B", "I"), ("T", "I"))
        alone = x.dim() == 2
        if alone and lengths is not None:
            raise UserError("lengths need a batch; leave them out for an unbatched x (T, I)")
        if first and not alone:
            x = x.transpose(0, 1)
        if state is not None:
            self._check_state(state, None if alone else x.shape[1])
        noise = self._noise(x.shape[:-1], noise)
        if alone:
            out, state, happened = self._unbatched(x, state, noise, trace)
        else:
            out, state, happened = self._run(x, state, noise, check_lengths(lengths, *x.shape[:2]), trace)
            out = out.transpose(0, 1) if first else out
        return (out, state) if happened is None else (out, state, happened)

    if TYPE_CHECKING:
        __call__ = forward

    def run(
        self,
        x: Tensor,
        interventions: Sequence[Intervention] = (),
        state: MachineState | None = None,
        lengths: Lengths | None = None,
        trace: Literal[True, "memory"] = True,
        noise: Noise | None = None,
    ) -> tuple[Tensor, MachineState, Trace]:
        """`forward` with a trace, under interventions: see `nsm.interventions`.

        Steps count from the first step of x; interventions apply to all sequences of a batch. Uses the reference.
        """
        touched = copy(self)  # it has the same weights; the machine itself is not changed
        touched._interventions = tuple(interventions)
        return touched(x, state, lengths, trace=trace, noise=noise)

    def _check_input(self, x: Tensor, *shapes: tuple[str, ...]) -> None:
        check_input(x, self.config.input_size, self.initial_read.dtype, *shapes)

    def _check_state(self, state: MachineState, batch: int | None) -> None:
        forms = None if torch.compiler.is_compiling() or self._operator is None else self._forms
        check_state(state, batch, self.initial_read.dtype, self.initial_state, forms)

    def _unbatched(self, x: Tensor, state: MachineState | None, noise: Noise, trace: bool | str = False) -> Ran:
        """A batch of one. x (T, I) → out (T, O)."""
        if state is not None:
            state = tree_map(lambda leaf: leaf.unsqueeze(0), state)
        noise = tree_map(lambda drawn: drawn.unsqueeze(1), noise)
        out, state, happened = self._run(x.unsqueeze(1), state, noise, None, trace)
        state = tree_map(lambda leaf: leaf.squeeze(0), state)
        return out.squeeze(1), state, tree_map(lambda leaf: leaf.squeeze(1), happened)

    def _run(
        self,
        x: Tensor,
        state: MachineState | None,
        noise: Noise,
        lengths: Tensor | None = None,
        trace: bool | str = False,
    ) -> Ran:
        """Run on the backend that applies. x (T, B, I) → out (T, B, O)."""
        state = self.initial_state(x.shape[1]) if state is None else state
        weights = self._kernel_operands(noise)
        wanted = autocast_dtype(x)
        if wanted is None:
            return self._on(weights, x, state, lengths, trace, noise)
        # The state stays in the precision of the weights: x is cast on entry, and out is cast back.
        with torch.autocast(x.device.type, enabled=False):
            out, state, happened = self._on(weights, x.to(self.initial_read.dtype), state, lengths, trace, noise)
        return out.to(wanted), state, happened

    def _on(self, weights: list[Tensor] | None, *rest: Any) -> Ran:
        return self._reference(*rest) if weights is None else self._fused(weights, *rest)

    def _reference(
        self, x: Tensor, state: MachineState, lengths: Tensor | None, trace: bool | str, noise: Noise
    ) -> Ran:
        """Step by step, with autograd: any device, any float, any option. The specification."""
        outputs, traces = [], []
        course = Course(self._interventions, self, state, x.shape[0])
        ends, shortest = (None, x.shape[0]) if lengths is None else (lengths.to(x.device), int(lengths.min()))
        for t in range(x.shape[0]):
            running = t < ends if ends is not None and t >= shortest else None
            # Zero after the end: padding, which may be NaN, would otherwise reach the gradient, multiplied by zero.
            inputs, drawn = (x[t], noise.at(t)) if running is None else tree_mask(running, (x[t], noise.at(t)))
            y, after, happened = self._step(inputs, state, drawn, course.at(t))
            if trace != "memory":
                happened = happened._replace(memory=None)
            if running is not None:
                y, happened = tree_mask(running, y), tree_mask(running, happened)
                after = tree_where(running, after, state)
            state = after
            outputs.append(y)
            traces.append(happened if trace else None)
        return torch.stack(outputs), state, tree_stack(traces) if trace else None

    def _fused(
        self,
        weights: list[Tensor],
        x: Tensor,
        state: MachineState,
        lengths: Tensor | None,
        trace: bool | str,
        noise: Noise,
    ) -> Ran:
        """All steps in one operator: CPU, float32, the same numbers up to rounding. A trace carries no gradient."""
        ran = backends.fused(cast(str, self._operator), self._description, weights, x, state, lengths, trace, noise)
        out, after, happened = ran
        if not trace:
            return out, after, None
        controller, reads, read, write, *rest = happened
        programs = rest.pop(0) if self.config.programs is not None else None
        chosen = [rest.pop(0) if self._stores(part) else None for part in ("state", "output")]
        tape = rest.pop() if trace == "memory" else None
        return out, after, Trace(controller, tuple(rest), programs, read, write, reads, tape, self._marks, *chosen)

    def uncovered(self) -> str | None:
        """Why the fused backend can't run this machine, or None if it can."""
        try:
            self._covered(Noise())
        except NotCovered as reason:
            return str(reason)
        return None

    def _covered(self, noise: Noise) -> list[Tensor]:
        """The weights for the fused backend, or NotCovered if it can't run this machine with this noise."""
        like = self.initial_read
        if like.device.type != "cpu" or like.dtype != torch.float32:
            raise NotCovered(f"{like.dtype} on {like.device.type}", plain=True)
        if self._operator is None:
            raise NotCovered(f"a {type(self.config.memory or self.memory).__name__}")
        if type(self)._step is not Machine._step or type(self)._interface not in (MANN._interface, NUTM._interface):
            raise NotCovered(f"the steps of a {type(self).__name__}")
        if any(drawn is not None and drawn.requires_grad for drawn in noise):
            raise NotCovered("noise with a gradient")
        if self._interventions:
            raise NotCovered("interventions", plain=True)
        return self.operands()

    def _kernel_operands(self, noise: Noise) -> list[Tensor] | None:
        """The weights for the fused backend, or None to use the reference."""
        return backends.operands_for(self.backend, lambda: self._covered(noise))

    @classmethod
    def from_pretrained(
        cls, directory: str | Path, memory: Memory | None = None, backend: str = "auto", revision: str | None = None
    ) -> Self:
        """Read a machine written by `save_pretrained`; a memory module of your own has to be passed as `memory`.

        "user/name" is downloaded from the Hugging Face Hub if there is no such directory, at a `revision` if given.
        `nsm.load` reads runs and checkpoints, too.
        """
        directory = hub.find(directory, revision)
        kind, config, tensors = pretrained.load(directory, MachineConfig)
        known = {machine.__name__: machine for machine in (MANN, NUTM)}
        if kind not in known or not (issubclass(known[kind], cls) or issubclass(cls, known[kind])):
            raise UserError(f"{directory} contains a machine of kind {kind!r}, not a {cls.__name__}")
        if (kind == "NUTM") != (config.programs is not None):
            raise UserError(f"{directory} is damaged: a {kind} with programs {config.programs}")
        if (config.memory is None) != (memory is not None):
            missing = f"needs its own memory module: pass memory=… to {cls.__name__}.from_pretrained"
            wanted = missing if memory is None else "has a memory already: leave out memory=…"
            raise UserError(f"the machine in {directory} {wanted}")
        return cast(Self, cls.from_tensors(directory, config, tensors, memory, backend))

    @classmethod
    def from_tensors(
        cls,
        directory: Path,
        config: MachineConfig,
        tensors: dict[str, Tensor],
        memory: Memory | None = None,
        backend: str = "auto",
    ) -> Machine:
        """The machine of a configuration, with tensors read from a directory, checked before use."""
        try:
            # Nothing is drawn or allocated for tensors that the file replaces, whatever sizes a damaged file claims.
            with torch.device("meta"):
                machine = cls.from_config(config, memory, backend)
        except (ValueError, RuntimeError, TypeError) as error:
            raise UserError(f"{directory} can't be loaded: {error}") from None
        pretrained.check(directory / pretrained.TENSORS, tensors, machine.state_dict())
        # Copies, because parts of the file's bytes aren't aligned like separate tensors.
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
        """The machine that a configuration describes: a NUTM if it has programs, else a MANN, or your subclass of it.
        With a repertoire it is a `RepertoireMachine`, which is called like a single machine."""
        if config.repertoire is not None:
            one = replace(config, repertoire=None, batch_first=False)
            several = [
                cls.from_config(one, deepcopy(memory), backend, generator) for _ in range(config.repertoire.count)
            ]
            return cast(Machine, RepertoireMachine(config, several))
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

    def _interface(
        self, n: int, c: Tensor, noise: Tensor | None, allowed: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
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

    def _interface(
        self, n: int, c: Tensor, noise: Tensor | None, allowed: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        network = cast(StoredProgramLinear, self.interfaces[n])
        return cast(tuple[Tensor, Tensor], network.memory(c, *network.ask(c), noise, allowed))
