"""The Python side of the kernels: from a machine, tensors and states to chunks of flat buffers and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from nsm import nested
from nsm.controllers import LSTMState, NoState
from nsm.fused import layout, recurrence
from nsm.fused.buffers import Buffers
from nsm.fused.layout import ATTENTION, HEAD_FIELDS, Scales, Sizes, padded
from nsm.fused.ntm import NTMTape
from nsm.machine import Machine, MachineState, Noise, Trace
from nsm.memories import NTMMemory
from nsm.programs import StoredProgramLinear

EMPTY = np.zeros(0, np.float32)


class Arguments(NamedTuple):
    """What the kernels need to know of a machine."""

    sizes: Sizes
    scales: Scales
    table: np.ndarray
    where: np.ndarray


def describe(machine: Machine) -> Arguments:
    """Sizes, head table and parameter positions of a machine."""
    config, memory = machine.config, machine.memory
    n, programs = config.controller.size, config.programs
    lstm = config.controller.kind == "lstm"
    count, keys = (programs.count, programs.keys) if programs else (1, 0)
    queried = programs is not None and programs.attention != "uniform"
    table = np.zeros((len(memory.heads), 5), np.int64)
    raw = interface = 0
    for h, head in enumerate(memory.heads):
        length_p = padded(head.size)
        table[h] = raw, 0, interface, head.size, length_p
        raw += count * length_p
        interface += length_p
    for h in range(len(memory.heads)):
        table[h, layout.QUERY] = raw
        raw += padded(keys + 1) if queried else 0
    sizes = Sizes(
        inputs=config.input_size,
        inputs_p=padded(config.input_size),
        outputs=config.output_size,
        outputs_p=padded(config.output_size),
        size=n,
        size_p=padded(n),
        reads=memory.read_size,
        reads_p=padded(memory.read_size),
        gates=(4 if lstm else 1) * padded(n),
        lstm=int(lstm),
        controller_norm=int(config.controller.layer_norm),
        interface_norm=int(config.interface.norm),
        heads=len(memory.heads),
        programs=count,
        keys=keys,
        attention=ATTENTION[programs.attention if programs else None],
        bounded=int(programs is not None and programs.bounded_keys),
        raw=raw,
        interface=interface,
    )
    scales = Scales(programs.temperature if programs else 1.0, programs.strength_scale if programs else 1.0)
    return Arguments(sizes, scales, table, _positions(machine))


def _positions(machine: Machine) -> np.ndarray:
    """Where each parameter begins in the flat buffer, −1 for those a machine has not."""
    start, begins = 0, {}
    for name, parameter in machine.named_parameters():
        begins[name] = start
        start += parameter.numel()
    names = [
        *(f"controller.{name}" for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")),
        *("controller.gate_norms.0.weight", "", "controller.cell_norm.weight", "controller.cell_norm.bias"),
        *("output.weight", "output.bias"),
    ]
    for h, network in enumerate(machine.interfaces):
        stored = isinstance(network, StoredProgramLinear)
        inside = (
            ("memory.values", "", "memory.keys", "query.weight", "query.bias", "strength.weight", "strength.bias")
            if stored
            else ("weight", "bias", "", "", "", "", "")
        )
        names += [f"interfaces.{h}.{name}" for name in inside] + [f"norms.{h}.weight", f"norms.{h}.bias"]
    assert len(names) == layout.HEAD + HEAD_FIELDS * len(machine.interfaces)
    return np.array([begins.get(name, -1) for name in names], np.int64)


class Chunk(NamedTuple):
    """A part of a batch that runs as one: samples sorted longest first, rows packed step by step."""

    samples: np.ndarray
    """(B): which samples of the batch"""
    first: np.ndarray
    """(T + 1): where each step's rows begin"""
    count: np.ndarray
    """(T): how many samples each step has"""
    steps: np.ndarray
    """(rows): the step of each row"""
    owners: np.ndarray
    """(rows): the sample of the batch of each row"""
    last: np.ndarray
    """(B): the last row of each sample"""
    work: recurrence.Work
    memory: Any
    buffers: Buffers

    @property
    def rows(self) -> int:
        return int(self.first[-1])


def chunk_size(batch: int) -> int:
    """How many samples run together: a function of the batch alone, so that threads never change a result."""
    return 8 if batch <= 16 else 16


def rows_of(array: np.ndarray, rows: int, width: int) -> np.ndarray:
    """The first `rows` rows of a flat buffer, as a matrix."""
    return array[: rows * width].reshape(rows, width)


class Engine:
    """Runs a machine's kernels. Weights are taken over from a flat buffer; work buffers are kept and used again."""

    def __init__(self, machine: Machine) -> None:
        self.arguments = describe(machine)
        self.weights = layout.weights(self.arguments.sizes)
        self.tape = TAPES[type(machine.memory)](machine.memory)
        self.size = sum(parameter.numel() for parameter in machine.parameters())
        self.head_masks = np.zeros(self.arguments.sizes.interface, np.float32)
        for _, _, xi, length, _ in self.arguments.table:
            self.head_masks[xi : xi + length] = 1
        self._free: list[Buffers] = []

    def run(
        self,
        flat: np.ndarray,
        x: np.ndarray,
        lengths: np.ndarray,
        state: MachineState,
        noise: Noise,
        input_gradient: bool = False,
    ) -> Run:
        """The forward pass. x (T, B, I); `state` and `noise` hold arrays; everything is float32."""
        a = self.arguments
        layout.pack(flat, a.where, a.table, a.sizes, self.weights)
        size = chunk_size(len(lengths))
        chunks = []
        for start in range(0, len(lengths), size):
            samples = np.arange(start, min(start + size, len(lengths)))
            chunks.append(self._chunk(samples, lengths, state, noise, input_gradient))
        run = Run(self, chunks, x.shape[0], x.shape[1])
        for chunk in chunks:
            self._load(chunk, x, state, noise)
            recurrence.forward(
                a.sizes, a.scales, a.table, self.weights, chunk.work, chunk.memory, chunk.first, chunk.count
            )
        return run

    def _chunk(
        self, samples: np.ndarray, lengths: np.ndarray, state: MachineState, noise: Noise, input_gradient: bool
    ) -> Chunk:
        s = self.arguments.sizes
        samples = samples[np.argsort(-lengths[samples], kind="stable")]
        ends = lengths[samples]
        steps, batch = int(ends[0]), len(samples)
        count = (ends[None, :] > np.arange(steps)[:, None]).sum(1)
        first = np.concatenate([[0], np.cumsum(count)])
        rows = int(first[-1])
        step = np.repeat(np.arange(steps), count)
        owners = samples[np.arange(rows) - first[step]]

        buffers = self._free.pop() if self._free else Buffers()
        take, d, mixes = buffers.take, s.row, s.heads * s.programs
        normed, headed = s.controller_norm, s.interface_norm
        work = recurrence.Work(
            noise=EMPTY if noise.cell is None else take("noise", rows * s.size_p),
            gumbel=EMPTY if noise.programs is None else take("gumbel", rows * mixes),
            inputs=take("inputs", rows * s.inputs_p),
            before=take("before", rows * d),
            after=take("after", rows * d),
            gates=take("gates", rows * s.gates),
            cells=take("cells", (batch + rows) * s.size_p),
            raw=take("raw", rows * s.raw),
            mix=take("mix", rows * mixes),
            soft=take("soft", rows * mixes),
            interface=take("interface", rows * s.interface),
            outputs=take("outputs", rows * s.outputs_p),
            mask=buffers.mask(s.size),
            head_masks=self.head_masks,
            hats=take("hats", rows * s.gates * normed),
            cell_hats=take("cell_hats", rows * s.size_p * normed),
            shown=take("shown", rows * s.size_p * normed),
            scales=take("scales", rows * 5 * normed),
            interface_hats=take("interface_hats", rows * s.interface * headed),
            interface_scales=take("interface_scales", rows * s.heads * headed),
            d_outputs=take("d_outputs", rows * s.outputs_p),
            d_after=take("d_after", rows * d),
            d_gates=take("d_gates", rows * s.gates),
            d_raw=take("d_raw", rows * s.raw),
            d_inputs=take("d_inputs", rows * s.inputs_p) if input_gradient else EMPTY,
            d_state=take("d_state", batch * d),
            d_cell=take("d_cell", batch * s.size_p),
            d_shown=take("d_shown", batch * s.size_p),
            d_interface=take("d_interface", batch * s.interface),
            d_mix=take("d_mix", s.programs),
        )
        memory = self.tape.work(buffers, batch, rows, state.memory.memory.shape[1])
        last = first[ends - 1] + np.arange(batch)
        return Chunk(samples, first, count, step, owners, last, work, memory, buffers)

    def _load(self, chunk: Chunk, x: np.ndarray, state: MachineState, noise: Noise) -> None:
        s, work, rows = self.arguments.sizes, chunk.work, chunk.rows
        batch, n, n_p = len(chunk.samples), s.size, s.size_p
        _place(rows_of(work.inputs, rows, s.inputs_p), x[chunk.steps, chunk.owners])
        if noise.cell is not None:
            _place(rows_of(work.noise, rows, n_p), noise.cell[chunk.steps, chunk.owners])
        if noise.programs is not None:
            width = s.heads * s.programs
            rows_of(work.gumbel, rows, width)[:] = noise.programs[chunk.steps, chunk.owners].reshape(rows, width)
        before = rows_of(work.before, batch, s.row)
        before[:] = 0
        if isinstance(state.controller, LSTMState):
            before[:, :n] = state.controller.hidden[chunk.samples]
            _place(rows_of(work.cells, batch, n_p), state.controller.cell[chunk.samples])
        before[:, n_p : n_p + s.reads] = state.read[chunk.samples]
        self.tape.load(chunk.memory, type(state.memory)(*(field[chunk.samples] for field in state.memory)))


class Run:
    """A forward pass that was made: its outputs and final state, its trace, and the way back."""

    def __init__(self, engine: Engine, chunks: list[Chunk], steps: int, batch: int) -> None:
        self.engine, self.chunks, self.steps, self.batch = engine, chunks, steps, batch

    def __del__(self) -> None:
        self.engine._free.extend(chunk.buffers for chunk in self.chunks)

    def _gather(self, width: int, stride: int, rows: Callable[[Chunk], np.ndarray]) -> np.ndarray:
        """Rows of all chunks as (T, B, width), zero where a sequence has ended."""
        out = np.zeros((self.steps, self.batch, width), np.float32)
        for chunk in self.chunks:
            out[chunk.steps, chunk.owners] = rows_of(rows(chunk), chunk.rows, stride)[:, :width]
        return out

    def outputs(self) -> np.ndarray:
        """(T, B, O)"""
        s = self.engine.arguments.sizes
        return self._gather(s.outputs, s.outputs_p, lambda chunk: chunk.work.outputs)

    def final(self) -> MachineState:
        """Each sample's state at its own end."""
        s, n_p = self.engine.arguments.sizes, self.engine.arguments.sizes.size_p
        parts = []
        for chunk in self.chunks:
            rows = rows_of(chunk.work.after, chunk.rows, s.row)[chunk.last]
            controller: Any = NoState()
            if s.lstm:
                cells = rows_of(chunk.work.cells, len(chunk.samples) + chunk.rows, n_p)
                controller = LSTMState(rows[:, : s.size], cells[len(chunk.samples) + chunk.last, : s.size])
            memory = self.engine.tape.final(chunk.memory, chunk.last)
            parts.append(MachineState(controller, memory, rows[:, n_p : n_p + s.reads]))
        return self._merge(parts)

    def _merge(self, parts: list[MachineState]) -> MachineState:
        """States of chunks as one state of the batch, in the batch's order."""
        order = np.argsort(np.concatenate([chunk.samples for chunk in self.chunks]))
        return cast(MachineState, nested.apply(lambda *leaves: np.concatenate(leaves)[order], *parts))

    def backward(self, d_outputs: np.ndarray, d_final: MachineState | None) -> tuple[np.ndarray, MachineState]:
        """From the gradients of outputs and final state to those of the flat parameters and of the initial state."""
        engine, a = self.engine, self.engine.arguments
        s, n, n_p = a.sizes, a.sizes.size, a.sizes.size_p
        flat = np.zeros(engine.size, np.float32)
        parts = []
        for chunk in self.chunks:
            work, batch = chunk.work, len(chunk.samples)
            _place(rows_of(work.d_outputs, chunk.rows, s.outputs_p), d_outputs[chunk.steps, chunk.owners])
            d_state, d_cell = rows_of(work.d_state, batch, s.row), rows_of(work.d_cell, batch, n_p)
            d_state[:], d_cell[:] = 0, 0
            d_memory = None
            if d_final is not None:
                if s.lstm:
                    d_state[:, :n] = d_final.controller.hidden[chunk.samples]
                    d_cell[:, :n] = d_final.controller.cell[chunk.samples]
                d_state[:, n_p : n_p + s.reads] = d_final.read[chunk.samples]
                d_memory = type(d_final.memory)(*(field[chunk.samples] for field in d_final.memory))
            engine.tape.load_gradient(chunk.memory, d_memory)
            gradients = layout.weights(s)
            recurrence.backward(
                s, a.scales, a.table, engine.weights, gradients, work, chunk.memory, chunk.first, chunk.count
            )
            layout.unpack(gradients, engine.weights, a.where, a.table, s, flat)
            controller: Any = LSTMState(d_state[:, :n].copy(), d_cell[:, :n].copy()) if s.lstm else NoState()
            reads = d_state[:, n_p : n_p + s.reads].copy()
            parts.append(MachineState(controller, engine.tape.gradient(chunk.memory), reads))
        return flat, self._merge(parts)

    def trace(self, with_memory: bool) -> Trace:
        """What happened, as arrays (T, B, …)."""
        s, table = self.engine.arguments.sizes, self.engine.arguments.table
        parts = []
        for chunk in self.chunks:
            work, rows = chunk.work, chunk.rows
            after, interface = rows_of(work.after, rows, s.row), rows_of(work.interface, rows, s.interface)
            mix = rows_of(work.mix, rows, s.heads * s.programs).reshape(rows, s.heads, s.programs)
            read, write, tape = self.engine.tape.trace(chunk.memory, rows)
            parts.append(
                Trace(
                    after[:, : s.size],
                    tuple(interface[:, xi : xi + length] for _, _, xi, length, _ in table),
                    None if s.attention == layout.STATIC else mix,
                    read,
                    write,
                    after[:, s.size_p : s.size_p + s.reads],
                    tape if with_memory else None,
                )
            )

        def gather(*leaves: np.ndarray) -> np.ndarray:
            out = np.zeros((self.steps, self.batch, *leaves[0].shape[1:]), np.float32)
            for chunk, leaf in zip(self.chunks, leaves, strict=True):
                out[chunk.steps, chunk.owners] = leaf
            return out

        return cast(Trace, nested.apply(gather, *parts))

    def input_gradient(self) -> np.ndarray:
        """(T, B, I), after `backward`."""
        s = self.engine.arguments.sizes
        return self._gather(s.inputs, s.inputs_p, lambda chunk: chunk.work.d_inputs)


def _place(target: np.ndarray, values: np.ndarray) -> None:
    """Values into the first columns of padded rows, zeros into the rest."""
    width = values.shape[-1]
    target[:, :width] = values
    target[:, width:] = 0


TAPES: dict[type, Any] = {NTMMemory: NTMTape}
