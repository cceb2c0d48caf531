"""The Python side of the kernels: from a machine, tensors and states to chunks of flat buffers and back."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from nsm import nested
from nsm.controllers import LSTMState, NoState
from nsm.fused import layout, programs, recurrence
from nsm.fused.buffers import Buffers, Held, Shelf, Tally
from nsm.fused.cache import once
from nsm.fused.dnc import DNCTape
from nsm.fused.layout import ATTENTION, HEAD_FIELDS, Array, Scales, Sizes, padded
from nsm.fused.lrua import LRUATape
from nsm.fused.ntm import NTMTape
from nsm.fused.segments import Segments
from nsm.machine import Machine, MachineState, Noise, Trace
from nsm.memories import DNCMemory, LRUAMemory, NTMMemory
from nsm.programs import StoredProgramLinear

EMPTY = np.zeros(0, np.float32)
NOTHING = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32)
"""What a controller without state has of it."""
T = TypeVar("T")
U = TypeVar("U")


class Arguments(NamedTuple):
    """What the kernels need to know of a machine."""

    sizes: Sizes
    scales: Scales
    table: Array
    where: Array


def describe(machine: Machine) -> Arguments:
    """Sizes, head table and parameter positions of a machine."""
    config, memory = machine.config, machine.memory
    n, stored = config.controller.size, config.programs
    lstm = config.controller.kind == "lstm"
    # Rows of gates a multiple of 4,096 bytes apart would push each other out of the nearest cache.
    size_p = padded(n) + (16 if padded(n) % 256 == 0 else 0)
    programs_, keys = (stored.count, stored.keys) if stored else (1, 0)
    queried = stored is not None and stored.attention != "uniform"
    table = np.zeros((len(memory.heads), 5), np.int64)
    raw = interface = 0
    for h, head in enumerate(memory.heads):
        length_p = padded(head.size)
        table[h] = raw, 0, interface, head.size, length_p
        raw += programs_ * length_p
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
        size_p=size_p,
        reads=memory.read_size,
        reads_p=padded(memory.read_size),
        gates=(4 if lstm else 1) * size_p,
        lstm=int(lstm),
        controller_norm=int(config.controller.layer_norm),
        interface_norm=int(config.interface.norm),
        heads=len(memory.heads),
        programs=programs_,
        keys=keys,
        attention=ATTENTION[stored.attention if stored else None],
        bounded=int(stored is not None and stored.bounded_keys),
        raw=raw,
        interface=interface,
    )
    scales = Scales(stored.temperature if stored else 1.0, stored.strength_scale if stored else 1.0)
    return Arguments(sizes, scales, table, _positions(machine))


def _positions(machine: Machine) -> Array:
    """Where each parameter begins in the flat buffer, −1 for those a machine has not."""
    start, begins = 0, {}
    for name, shape in machine.made_of.parameters.items():
        begins[name] = start
        start += math.prod(shape)
    names = [
        *(f"controller.{name}" for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")),
        *("controller.gate_norms.0.weight", "controller.cell_norm.weight", "controller.cell_norm.bias"),
        *("output.weight", "output.bias", "controller.initial.hidden", "controller.initial.cell"),
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


class Plan(NamedTuple):
    """A part of a batch that runs as one: samples sorted longest first, rows packed step by step."""

    samples: Array
    """(B): which samples of the batch"""
    first: Array
    """(T + 1): where each step's rows begin"""
    counts: Array
    """(T): how many samples each step has"""
    steps: Array
    """(rows): the step of each row"""
    owners: Array
    """(rows): the sample of the batch of each row"""
    last: Array
    """(B): the last row of each sample"""
    lengths: Array
    """(B): the steps of each sample"""
    rows: int
    whole: bool
    """whether the chunk is the batch, in its own order"""

    def pick(self, tree: Any) -> Any:
        """The chunk's samples of a named tuple of arrays."""
        return tree if self.whole else type(tree)(*(leaf[self.samples] for leaf in tree))


def chunk_size(sizes: Sizes) -> int:
    """How many samples run together, whatever the number of threads, so that threads never change a result.

    Few, so that what they leave for the way back stays near; more where a step fetches more weights than stay near.
    """
    return 4 if 4 * (sizes.row * sizes.gates + sizes.size * sizes.raw) < 2 << 20 else 8


@lru_cache(maxsize=1024)
def plans(lengths: tuple[int, ...], size: int) -> tuple[Plan, ...]:
    """The chunks of a batch of sequences of these lengths, `size` each, of sequences about as long as each other."""
    found = []
    ends = np.array(lengths, np.int64)
    order = np.argsort(-ends, kind="stable")
    for start in range(0, len(lengths), size):
        samples = order[start : start + size]
        steps = int(ends[samples[0]])
        counts = (ends[samples][None, :] > np.arange(steps)[:, None]).sum(1)
        first = np.concatenate([[0], np.cumsum(counts)])
        step = np.repeat(np.arange(steps), counts)
        rows = int(first[-1])
        owners = samples[np.arange(rows) - first[step]]
        last = first[ends[samples] - 1] + np.arange(len(samples))
        whole = len(samples) == len(lengths) and bool((samples == np.arange(len(lengths))).all())
        found.append(Plan(samples, first, counts, step, owners, last, ends[samples], rows, whole))
    return tuple(found)


class Taken(NamedTuple):
    """Parameters that an engine was given for a pass, and the number by which it knows them."""

    flat: Array
    number: int


class Chunk(NamedTuple):
    """A plan and the buffers it runs on."""

    plan: Plan
    work: recurrence.Work
    memory: Any
    buffers: Held[Buffers]


def rows_of(array: Array, rows: int, width: int) -> Array:
    """The first `rows` rows of a flat buffer, as a matrix."""
    return array[: rows * width].reshape(rows, width)


class Engine:
    """Runs a machine's kernels. Weights are taken over from a flat buffer; work buffers are kept and used again."""

    def __init__(self, machine: Machine) -> None:
        self.arguments = describe(machine)
        self.tape = TAPES[type(machine.memory)](machine.memory)
        self.size = sum(map(math.prod, machine.made_of.parameters.values()))
        self.threads = 1
        self.chunk = chunk_size(self.arguments.sizes)
        self.memory_limit = 512 << 20
        self.head_masks = np.zeros(self.arguments.sizes.interface, np.float32)
        for _, _, xi, length, _ in self.arguments.table:
            self.head_masks[xi : xi + length] = 1
        self.buffers = Shelf(Buffers)
        self.gradients = Shelf(lambda: layout.weights(self.arguments.sizes))
        self._numbers = count()
        self._local = threading.local()
        self._sizes: dict[tuple[Any, ...], int] = {}
        once(type(machine.memory).__name__, lambda: self._use(machine))

    def _use(self, machine: Machine) -> None:
        """One step there and back, for its own sake."""
        initial = machine.initial_state(1)
        state = nested.apply(lambda tensor: np.ascontiguousarray(tensor.detach().float().numpy()), initial)
        flat, x = np.zeros(self.size, np.float32), np.zeros((1, 1, self.arguments.sizes.inputs), np.float32)
        run = self.run(flat, x, [1], state, Noise(), input_gradient=True)
        run.backward(run.outputs(), state, flat)

    def take(self, flat: Array) -> Taken:
        """Parameters for a pass; they must not change while it goes on."""
        return Taken(flat, next(self._numbers))

    def weights(self, taken: Taken) -> layout.Weights:
        """The parameters as the kernels read them. Each thread has its own: it takes longer to share than to pack."""
        local, a = self._local, self.arguments
        if not hasattr(local, "weights"):
            local.weights, local.number = layout.weights(a.sizes), -1
        if local.number != taken.number:
            layout.pack(taken.flat, a.where, a.table, a.sizes, local.weights)
            local.number = taken.number
        packed: layout.Weights = local.weights
        return packed

    def run(
        self,
        flat: Array,
        x: Array,
        lengths: Sequence[int],
        state: MachineState,
        noise: Noise,
        input_gradient: bool = False,
        whole: bool = False,
    ) -> Run | Segments:
        """The forward pass. x (T, B, I); `state` and `noise` hold arrays; everything is float32 and C-contiguous.

        What would take more than `memory_limit` bytes is run in stretches, unless the `whole` is asked for.
        """
        return self._run(self.take(flat), x, list(lengths), state, noise, input_gradient, whole)

    def _run(
        self,
        taken: Taken,
        x: Array,
        lengths: list[int],
        state: MachineState,
        noise: Noise,
        input_gradient: bool = False,
        whole: bool = False,
    ) -> Run | Segments:
        needed = 0 if whole else self._bytes(lengths, state, noise, input_gradient)
        if needed <= self.memory_limit:
            return self.stretch(taken, x, lengths, state, noise, input_gradient, whole)
        span = max(1, int(max(lengths) * self.memory_limit / needed))
        return Segments(self, taken, x, lengths, state, noise, input_gradient, span)

    def learn(
        self,
        flat: Array,
        x: Array,
        lengths: Sequence[int],
        state: MachineState,
        noise: Noise,
        loss: Callable[[Array, Array | None], tuple[float, Array]],
        gradient: Array,
    ) -> float:
        """Forward, loss and backward one chunk of the batch after another: what a chunk leaves for its way back is
        still near when it is needed, however large the batch.

        `loss(outputs, samples)` gives what these samples (None: all) add to the loss, and its gradient. The gradient of
        the parameters, the learned initial state's among them, is added to `gradient`; returns the loss.
        """
        taken, ends = self.take(flat), list(lengths)

        def part(plan: Plan) -> tuple[float, Run | Segments]:
            if plan.whole:
                run = self._run(taken, x, ends, state, noise)
                value, d_outputs = loss(run.outputs(), None)
            else:
                own, steps = plan.samples, len(plan.counts)
                cut = Noise(*(None if drawn is None else drawn[:steps].take(own, 1) for drawn in noise))
                begin = nested.apply(lambda leaf: leaf[own], state)
                run = self._run(taken, x[:steps].take(own, 1), [ends[b] for b in own], begin, cut)
                value, d_outputs = loss(run.outputs(), own)
            run.back(d_outputs, None)
            run.release()
            return value, run

        total = 0.0
        for value, run in self.each(part, plans(tuple(ends), self.chunk)):
            total += value
            run.collect(gradient, start=True)
        return total

    def _bytes(self, lengths: list[int], state: MachineState, noise: Noise, input_gradient: bool) -> int:
        """What the buffers of a pass come to, by asking for them without getting them."""
        slots, optional = state.memory.memory.shape[1], (noise.cell is None, noise.programs is None, input_gradient)
        key = (sum(lengths), len(lengths), max(lengths), slots, optional, False)
        if key not in self._sizes:
            tally = Tally()
            self._buffers(tally, *key)
            self._sizes[key] = tally.asked
        return self._sizes[key]

    def stretch(
        self,
        taken: Taken,
        x: Array,
        lengths: list[int],
        state: MachineState,
        noise: Noise,
        input_gradient: bool,
        whole: bool = False,
    ) -> Run:
        """The forward pass, all of it kept."""
        parts = plans(tuple(lengths), self.chunk)
        chunks = [self._chunk(plan, state, noise, input_gradient, whole) for plan in parts]
        list(self.each(lambda chunk: self._forward(taken, chunk, x, state, noise), chunks))
        return Run(self, taken, chunks, x.shape[0], x.shape[1])

    def each(self, function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Work on all of them and yield the results in order; kernels don't hold Python's lock.

        The calling thread does its part: it has the weights in its cache already, and need not be woken.
        """
        helpers = min(self.threads, len(items)) - 1
        if helpers < 1:
            yield from map(function, items)
            return
        found: dict[int, U] = {}
        open_, given = iter(range(len(items))), 0

        def help_out() -> None:
            for i in open_:
                found[i] = function(items[i])

        futures = [_pool(helpers).submit(help_out) for _ in range(helpers)]
        try:
            for i in open_:
                found[i] = function(items[i])
                while given in found:
                    yield found.pop(given)
                    given += 1
        finally:
            for _ in open_:  # nothing more to begin after an exception
                pass
            for future in futures:
                future.result()
        for i in range(given, len(items)):
            yield found.pop(i)

    def _chunk(self, plan: Plan, state: MachineState, noise: Noise, input_gradient: bool, whole: bool) -> Chunk:
        buffers = self.buffers.take()
        optional = (noise.cell is None, noise.programs is None, input_gradient)
        slots = state.memory.memory.shape[1]
        key = (plan.rows, len(plan.samples), len(plan.counts), slots, optional, whole)
        work, memory = buffers.thing.remembered(key, lambda: self._buffers(buffers.thing, *key))
        return Chunk(plan, work, memory, buffers)

    def _buffers(
        self,
        buffers: Buffers,
        rows: int,
        batch: int,
        steps: int,
        slots: int,
        optional: tuple[bool, bool, bool],
        whole: bool,
    ) -> tuple[recurrence.Work, Any]:
        """The work of a chunk and of its tape; `optional` says: no cell noise, no Gumbel noise, input gradient."""
        s, take = self.arguments.sizes, buffers.take
        quiet, unrandom, input_gradient = optional
        d, mixes, normed, headed = s.row, s.heads * s.programs, s.controller_norm, s.interface_norm
        work = recurrence.Work(
            noise=EMPTY if quiet else take("noise", rows * s.size_p),
            gumbel=EMPTY if unrandom else take("gumbel", rows * mixes),
            inputs=take("inputs", rows * s.inputs_p),
            before=take("before", rows * d),
            after=take("after", rows * d),
            gates=take("gates", rows * s.gates),
            cells=take("cells", (batch + rows) * s.size_p),
            raw=take("raw", rows * s.raw),
            mix=take("mix", rows * s.heads * padded(s.programs)),
            soft=take("soft", rows * s.heads * padded(s.programs)),
            kept=take("kept", rows * s.heads * (programs.SIMILARITY + s.programs)),
            query=take("query", s.keys),
            scratch=take("attention", 32),
            interface=take("interface", rows * s.interface),
            outputs=take("outputs", rows * s.outputs_p),
            mask=buffers.mask(s.size, s.size_p),
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
        return work, self.tape.work(buffers, batch, steps, rows, slots, whole)

    def _forward(self, taken: Taken, chunk: Chunk, x: Array, state: MachineState, noise: Noise) -> None:
        a, plan, work = self.arguments, chunk.plan, chunk.work
        s = a.sizes
        layout.gather_rows(x, plan.steps, plan.owners, work.inputs, s.inputs_p)
        if noise.cell is not None:
            layout.gather_rows(noise.cell, plan.steps, plan.owners, work.noise, s.size_p)
        if noise.programs is not None:
            flattened = noise.programs.reshape(*noise.programs.shape[:2], -1)
            layout.gather_rows(flattened, plan.steps, plan.owners, work.gumbel, s.heads * s.programs)
        begin = plan.pick(state.controller) if s.lstm else NOTHING
        layout.place_states(s, *begin, state.read if plan.whole else state.read[plan.samples], work.before, work.cells)
        self.tape.load(chunk.memory, plan.pick(state.memory))
        recurrence.forward(s, a.scales, a.table, self.weights(taken), work, chunk.memory, plan.first, plan.counts)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="nsm")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay behind; work handed to them would wait for ever


class Run:
    """A forward pass that was made: its outputs and final state, its trace, and the way back."""

    def __init__(self, engine: Engine, taken: Taken, chunks: list[Chunk], steps: int, batch: int) -> None:
        self.engine, self.taken = engine, taken
        self.chunks, self.steps, self.batch = chunks, steps, batch
        self.found: list[Held[layout.Weights]] = []

    def release(self) -> None:
        """Let others have the buffers; but for `collect`, it is over then."""
        for chunk in self.chunks:
            self.engine.buffers.give(chunk.buffers)
        self.chunks = []

    def __del__(self) -> None:
        self.release()

    def _gather(self, rows: Callable[[Chunk], Array]) -> Array:
        """Something of every row of all chunks as (T, B, …), zero where a sequence has ended."""
        parts = [rows(chunk) for chunk in self.chunks]
        out = np.zeros((self.steps, self.batch, *parts[0].shape[1:]), np.float32)
        for chunk, part in zip(self.chunks, parts, strict=True):
            out[chunk.plan.steps, chunk.plan.owners] = part
        return out

    def outputs(self) -> Array:
        """(T, B, O)"""
        s = self.engine.arguments.sizes
        out = np.zeros((self.steps, self.batch, s.outputs), np.float32)
        for chunk in self.chunks:
            layout.scatter_rows(chunk.work.outputs, s.outputs_p, chunk.plan.steps, chunk.plan.owners, out)
        return out

    def final(self) -> MachineState:
        """Each sample's state at its own end."""
        s, n_p = self.engine.arguments.sizes, self.engine.arguments.sizes.size_p
        parts = []
        for chunk in self.chunks:
            last, batch = chunk.plan.last, len(chunk.plan.samples)
            rows = rows_of(chunk.work.after, chunk.plan.rows, s.row)[last]
            controller: Any = NoState()
            if s.lstm:
                cells = rows_of(chunk.work.cells, batch + chunk.plan.rows, n_p)
                controller = LSTMState(rows[:, : s.size], cells[batch + last, : s.size])
            memory = self.engine.tape.final(chunk.memory, last, chunk.plan.lengths)
            parts.append(MachineState(controller, memory, rows[:, n_p : n_p + s.reads]))
        return self._merge(parts)

    def _merge(self, parts: list[MachineState]) -> MachineState:
        """States of chunks as one state of the batch, in the batch's order."""
        order = np.argsort(np.concatenate([chunk.plan.samples for chunk in self.chunks]))
        return cast(MachineState, nested.apply(lambda *leaves: np.concatenate(leaves)[order], *parts))

    def backward(self, d_outputs: Array, d_final: MachineState | None, gradient: Array) -> None:
        """From the gradients of outputs and final state to that of the parameters, which is added to `gradient`.

        Afterwards `initial_gradient` and `input_gradient` have those of the initial state and of the input.
        """
        self.back(d_outputs, d_final)
        self.collect(gradient)

    def back(self, d_outputs: Array, d_final: MachineState | None) -> None:
        """`backward`, but for handing the gradient of the parameters over."""
        self.found = list(self.engine.each(lambda chunk: self._backward(chunk, d_outputs, d_final), self.chunks))

    def collect(self, gradient: Array, start: bool = False) -> None:
        """Add what `back` found of the parameters' gradient to `gradient`.

        That of the learned `start` is among it only if asked for: else it is the initial state's, and reaches the
        parameters through that.
        """
        a = self.engine.arguments
        for g in self.found:
            layout.unpack(g.thing, self.engine.weights(self.taken), a.where, a.table, a.sizes, start, gradient)
            self.engine.gradients.give(g)
        self.found = []

    def _backward(self, chunk: Chunk, d_outputs: Array, d_final: MachineState | None) -> Held[layout.Weights]:
        engine, a, plan, work = self.engine, self.engine.arguments, chunk.plan, chunk.work
        s, batch = a.sizes, len(plan.samples)
        layout.gather_rows(d_outputs, plan.steps, plan.owners, work.d_outputs, s.outputs_p)
        if d_final is None:
            work.d_state[: batch * s.row] = 0
            work.d_cell[: batch * s.size_p] = 0
            engine.tape.load_gradient(chunk.memory, None)
        else:
            end = plan.pick(d_final.controller) if s.lstm else NOTHING
            layout.place_states(s, *end, d_final.read[plan.samples], work.d_state, work.d_cell)
            engine.tape.load_gradient(chunk.memory, plan.pick(d_final.memory))
        g, w = engine.gradients.take(), engine.weights(self.taken)
        recurrence.backward(s, a.scales, a.table, w, g.thing, work, chunk.memory, plan.first, plan.counts)
        return g

    def initial_gradient(self) -> MachineState:
        """After `backward`: the gradient of the initial state."""
        s, n, n_p = self.engine.arguments.sizes, self.engine.arguments.sizes.size, self.engine.arguments.sizes.size_p
        parts = []
        for chunk in self.chunks:
            batch = len(chunk.plan.samples)
            d_state, d_cell = rows_of(chunk.work.d_state, batch, s.row), rows_of(chunk.work.d_cell, batch, n_p)
            controller: Any = LSTMState(d_state[:, :n], d_cell[:, :n]) if s.lstm else NoState()
            memory = self.engine.tape.gradient(chunk.memory)
            parts.append(MachineState(controller, memory, d_state[:, n_p : n_p + s.reads]))
        return self._merge(parts)

    def input_gradient(self) -> Array:
        """After `backward`: (T, B, I)."""
        s = self.engine.arguments.sizes
        return self._gather(lambda chunk: rows_of(chunk.work.d_inputs, chunk.plan.rows, s.inputs_p)[:, : s.inputs])

    def _trace(self, chunk: Chunk) -> tuple[Array, Array, Array]:
        plan = chunk.plan
        place: tuple[Array, Array, Array] = self.engine.tape.trace(
            chunk.memory, plan.steps, np.arange(plan.rows) - plan.first[plan.steps]
        )
        return place

    def trace(self, with_memory: bool) -> Trace:
        """What happened, as arrays (T, B, …)."""
        s, table = self.engine.arguments.sizes, self.engine.arguments.table
        after = self._gather(lambda chunk: rows_of(chunk.work.after, chunk.plan.rows, s.row))
        interface = self._gather(lambda chunk: rows_of(chunk.work.interface, chunk.plan.rows, s.interface))
        heads, stride = s.heads, padded(s.programs)
        mix = self._gather(lambda chunk: rows_of(chunk.work.mix, chunk.plan.rows, heads * stride))
        mix = mix.reshape(*mix.shape[:2], heads, stride)[..., : s.programs]
        tapes = [self._trace(chunk) for chunk in self.chunks]
        parts = [iter([tape[k] for tape in tapes]) for k in range(3)]
        read, write = (self._gather(lambda _, part=part: next(part)) for part in parts[:2])  # type: ignore[misc]
        memory = self._gather(lambda _: next(parts[2])) if with_memory else None
        return Trace(
            after[..., : s.size],
            tuple(interface[..., xi : xi + length] for _, _, xi, length, _ in table),
            None if s.attention == layout.STATIC else mix,
            read,
            write,
            after[..., s.size_p : s.size_p + s.reads],
            memory,
        )


TAPES: dict[type, Any] = {NTMMemory: NTMTape, LRUAMemory: LRUATape, DNCMemory: DNCTape}
