"""A pass of the kernels over a batch, there and back: from arrays to chunks of rows and from those to arrays again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nsm.controllers import Controller
from nsm.description import Description, parse
from nsm.fused import layout, programs, recurrence
from nsm.fused.cache import once
from nsm.fused.dnc import DNCTape
from nsm.fused.layout import Array, padded
from nsm.fused.lrua import LRUATape
from nsm.fused.ntm import NTMTape
from nsm.fused.tape import traced_tapes
from nsm.fused.workspace import Form, Laid, Room, pool, zeros
from nsm.memories import DNC, LRUA, NTM, MemoryConfig

T = TypeVar("T")
U = TypeVar("U")
LIMIT = 512 << 20
"""A pass that would keep more bytes than this keeps states only, and is made again, a stretch at a time, on its way
back."""
FORGOTTEN = 8 << 20
"""Of a pass without a way back, a stretch leaves about this many bytes, and the next one writes over them."""
WITH_ADDRESSES, WITH_TAPES = 1, 2
"""What a trace may be asked for; 0 is none."""
NO_CONTROLLER = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32)
"""What a controller without state has of it."""


class State(NamedTuple):
    """A state, or its gradient, in arrays."""

    controller: tuple[Array, ...]
    """(B, n) each: hidden and cell, hidden, or nothing"""
    memory: Any
    """the memory's named tuple"""
    read: Array
    """(B, R·M)"""

    def map(self, function: Callable[..., Any], *others: State) -> State:
        """`function` of every array, with those of other states beside it."""
        parts = zip(self.leaves, *(other.leaves for other in others), strict=True)
        return self.like([function(*leaves) for leaves in parts])

    @property
    def leaves(self) -> list[Array]:
        return [*self.controller, *self.memory, self.read]

    def like(self, leaves: Sequence[Any]) -> State:
        """A state of the same shape, of these leaves."""
        split = len(self.controller)
        return State(tuple(leaves[:split]), type(self.memory)(*leaves[split:-1]), leaves[-1])


class Given(NamedTuple):
    """What a pass starts from, in arrays: float32 and C-contiguous."""

    x: Array
    """(T, B, I)"""
    lengths: tuple[int, ...]
    state: State
    cell_noise: Array | None = None
    """(T, B, n)"""
    program_noise: Array | None = None
    """(T, B, heads, P)"""
    input_gradient: bool = True
    """whether anybody wants the gradient of x"""

    def part(self, start: int, stop: int, samples: Array, state: State) -> Given:
        """Some steps of some samples, which begin them with `state`."""

        def cut(array: Array | None) -> Any:
            return None if array is None else np.ascontiguousarray(array[start:stop].take(samples, 1))

        lengths = tuple(min(self.lengths[b], stop) - start for b in samples)
        noise = cut(self.cell_noise), cut(self.program_noise)
        return Given(cut(self.x), lengths, state, *noise, self.input_gradient)


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

    def pick(self, array: Array) -> Array:
        """What belongs to the chunk's samples."""
        return array if self.whole else array[self.samples]


@lru_cache(maxsize=128)
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


class Extent(NamedTuple):
    """What decides how much room a chunk takes."""

    rows: int
    batch: int
    steps: int
    slots: int
    noisy: tuple[bool, bool] = (True, True)
    """whether there is noise on cells, and for programs"""
    whole: bool = False
    """whether the tape after every step is wanted"""
    input_gradient: bool = True


class Kernels:
    """The kernels of one kind of machine, for one width of input and output. It has no weights: those are handed in."""

    def __init__(self, described: Description, inputs: int, outputs: int) -> None:
        self.sizes, self.scales, self.table = layout.sizes_of(described, inputs, outputs)
        self.tape = TAPES[type(described.memory)](described.memory)
        s, counted = self.sizes, Room()
        self.integers = np.array(s, np.int64)
        spans = layout.weights(counted.keep, s)
        self.weights, self.weights_size = Form(spans), counted.kept
        self.parameters = layout.Parameters(described, s, self.table, spans)
        # Few samples together, whatever the number of threads, so that threads never change a result: what they leave
        # for the way back stays near. More where a step fetches more weights than stay near.
        self.chunk = 4 if 4 * (s.row * s.gates + s.size * s.raw) < 2 << 20 else 8
        self.head_masks = np.zeros(s.interface, np.float32)
        for _, _, xi, length, _ in self.table:
            self.head_masks[xi : xi + length] = 1
        self._rooms: dict[Extent, tuple[Room, Form, Form]] = {}

    @property
    def states(self) -> int:
        """How many vectors the controller's state has."""
        return {layout.FEED_FORWARD: 0, layout.LSTM: 2}.get(self.sizes.controller, 1)

    def pack(self, where: Array, block: Array) -> None:
        """The parameters at these addresses as the kernels read them, into a block of `weights_size`."""
        record = self.weights.record(block, block)
        layout.pack(where, self.parameters.places, self.integers, block[: self.weights_size], record)

    def unpack(self, block: Array, weights: Array, where: Array, starts: Sequence[Array] = ()) -> None:
        """Add the gradients in a block, of what `pack` made the block `weights` of, to those at these addresses."""
        records = (self.weights.record(each, each) for each in (block, weights))
        layout.unpack(block, *records, where, self.parameters.places, self.integers)
        for start, found in zip(starts, self.start(block), strict=False):
            start += found

    def start(self, block: Array) -> Array:
        """In a block of gradients, those of the learned initial state: (2, n)."""
        whole = Laid(self.weights, block, block).start
        return whole[: 2 * self.sizes.size_p].reshape(2, -1)[:, : self.sizes.size]

    def state(self, leaves: Sequence[Array]) -> State:
        """A state of its leaves."""
        return State(tuple(leaves[: self.states]), self.tape.State(*leaves[self.states : -1]), leaves[-1])

    def state_shapes(self, batch: int, slots: int) -> list[tuple[int, ...]]:
        """Of a state's leaves."""
        s = self.sizes
        return [*[(batch, s.size)] * self.states, *self.tape.shapes(batch, slots), (batch, s.reads)]

    def room(self, extent: Extent) -> tuple[Room, Form, Form]:
        """How many numbers a chunk keeps and uses, and where its arrays and those of its tape lie in them."""
        if extent not in self._rooms:
            if len(self._rooms) > 1024:
                self._rooms.clear()
            room = Room()
            work, tape = self._work(room, extent)
            self._rooms[extent] = room, Form(work), Form(tape)
        return self._rooms[extent]

    def _work(self, room: Room, extent: Extent) -> tuple[recurrence.Work, Any]:
        s, rows, batch = self.sizes, extent.rows, extent.batch
        d, heads, normed, headed = s.row, s.heads, s.controller_norm, s.interface_norm
        work = recurrence.Work(
            noise=room.use(rows * s.size_p * extent.noisy[0]),
            gumbel=room.use(rows * heads * s.programs * extent.noisy[1]),
            inputs=room.keep(rows * s.inputs_p),
            before=room.keep(rows * d),
            after=room.keep(rows * d),
            gates=room.keep(rows * s.gates),
            cells=room.keep((batch + rows) * s.size_p),
            raw=room.keep(rows * s.raw),
            mix=room.keep(rows * heads * padded(s.programs)),
            soft=room.keep(rows * heads * padded(s.programs)),
            kept=room.keep(rows * heads * (programs.SIMILARITY + s.programs)),
            query=room.use(s.keys),
            scratch=room.use(32),
            interface=room.keep(rows * s.interface),
            outputs=room.use(rows * s.outputs_p),
            mask=layout.mask(s.size, s.size_p),
            head_masks=self.head_masks,
            hats=room.keep(rows * s.gates * normed),
            cell_hats=room.keep(rows * s.size_p * normed),
            shown=room.keep(rows * s.size_p * normed),
            scales=room.keep(rows * 5 * normed),
            interface_hats=room.keep(rows * s.interface * headed),
            interface_scales=room.keep(rows * heads * headed),
            d_outputs=room.use(rows * s.outputs_p),
            d_after=room.use(rows * d),
            d_gates=room.use(rows * s.gates),
            d_raw=room.use(rows * s.raw),
            d_inputs=room.use(rows * s.inputs_p * extent.input_gradient),
            d_state=room.use(batch * d),
            d_cell=room.use(batch * s.size_p),
            d_shown=room.use(batch * s.size_p),
            d_interface=room.use(batch * s.interface),
            d_mix=room.use(s.programs),
        )
        return work, self.tape.work(room, batch, extent.steps, rows, extent.slots, extent.whole)

    def forward(self, weights: Array, chunk: Chunk) -> None:
        """The kernels on a chunk that is open; weights are a block that `pack` made."""
        recurrence.forward(*self._arguments(weights), *self._chunk(chunk))

    def backward(self, weights: Array, gradients: Array, chunk: Chunk) -> None:
        """And back; the gradients are added to a block of the same layout."""
        recurrence.backward(*self._arguments(weights, gradients), *self._chunk(chunk))

    def _arguments(self, *blocks: Array) -> tuple[Any, ...]:
        return self.integers, self.scales, self.table, *(self.weights.record(block, block) for block in blocks)

    def _chunk(self, chunk: Chunk) -> tuple[Any, ...]:
        return chunk.work.record, self.tape.Work, chunk.memory.record, chunk.plan.first, chunk.plan.counts

    def kept(self, lengths: Sequence[int], slots: int, whole: bool = False) -> int:
        """How many numbers a pass keeps for its way back, in one stretch."""
        return sum(
            self.room(Extent(plan.rows, len(plan.samples), len(plan.counts), slots, whole=whole))[0].kept
            for plan in plans(tuple(lengths), self.chunk)
        )

    def span(self, lengths: Sequence[int], slots: int, whole: bool, limit: int) -> int:
        """How many steps a stretch has that keeps no more than `limit` bytes, or about that."""
        needed, steps = 4 * self.kept(lengths, slots, whole), max(lengths)
        return steps if needed <= limit else max(1, steps * limit // needed)


@lru_cache(maxsize=64)
def kernels(described: str, inputs: int, outputs: int) -> Kernels:
    """The kernels for a description. Nothing is compiled before they run: who traces a graph asks for sizes only."""
    return Kernels(parse(described), inputs, outputs)


_compiled: set[type] = set()


def compile_for(memory: MemoryConfig) -> None:
    """Compile the kernels of a memory, unless that was ever done."""
    kind = type(memory)
    if kind not in _compiled:
        once(kind.__name__, lambda: _use(kind))
        _compiled.add(kind)


def _use(memory: type[MemoryConfig]) -> None:
    """One step of the smallest machine there and back, for its own sake: all of one memory have the same code."""
    k = Kernels(Description(Controller(size=1), memory(slots=1, width=1), None, False), 1, 1)
    values = zeros(1024)
    where = np.full(len(k.parameters.shapes), values.ctypes.data)
    nothing = np.zeros((1, 1), np.float32)
    blank = k.tape.State(*(np.zeros(shape, np.float32) for shape in k.tape.shapes(1, 1)))
    given = Given(nothing[None], (1,), State((nothing, nothing), blank, np.zeros((1, k.sizes.reads), np.float32)))
    weights, run = zeros(k.weights_size), Run(k, given)
    k.pack(where, weights)
    run.forward(weights)
    run.backward(weights, run.outputs(), run.final())
    run.collect(weights, where)
    run.d_x(np.empty_like(given.x))


class Chunk:
    """A plan and the room it works in."""

    def __init__(self, plan: Plan, extent: Extent, kept: Array | None) -> None:
        self.plan, self.extent, self.kept = plan, extent, kept
        self.used: Array | None = None
        self.work: Laid
        self.memory: Laid

    def open(self, kernels: Kernels) -> None:
        """Take the room it works in, if it has none."""
        if self.used is None:
            room, *forms = kernels.room(self.extent)
            self.used = pool.take(room.used + (room.kept if self.kept is None else 0))
            kept = self.used[room.used :] if self.kept is None else self.kept
            self.work, self.memory = (Laid(form, kept, self.used) for form in forms)

    def close(self) -> None:
        """Give the room back."""
        self.used = None


class Run:
    """A batch, or part of one, in the hands of the kernels, chunk by chunk.

    With a block to keep things in, a backward pass may be made later, by another run on the same block.
    """

    def __init__(
        self,
        kernels: Kernels,
        given: Given,
        kept: Array | None = None,
        whole: bool = False,
        threads: int = 1,
    ) -> None:
        self.kernels, self.given, self.threads = kernels, given, threads
        noisy = (given.cell_noise is not None, given.program_noise is not None)
        slots, start = given.state.memory.memory.shape[1], 0
        self.chunks: list[Chunk] = []
        self.gradients: list[Array] = []
        for plan in plans(given.lengths, kernels.chunk):
            extent = Extent(plan.rows, len(plan.samples), len(plan.counts), slots, noisy, whole, given.input_gradient)
            size = kernels.room(extent)[0].kept
            self.chunks.append(Chunk(plan, extent, None if kept is None else kept[start : start + size]))
            start += size

    # --- there --------------------------------------------------------------------------------------------------------

    def forward(self, weights: Array, trace: int = 0) -> None:
        """All chunks, on as many threads as there are."""
        list(each(lambda chunk: self._forward(weights, chunk), self.chunks, self.threads))

    def _forward(self, weights: Array, chunk: Chunk) -> None:
        k, plan, given = self.kernels, chunk.plan, self.given
        s = k.sizes
        chunk.open(k)
        work = chunk.work
        layout.gather_rows(given.x, plan.steps, plan.owners, work.inputs, s.inputs_p)
        if given.cell_noise is not None:
            layout.gather_rows(given.cell_noise, plan.steps, plan.owners, work.noise, s.size_p)
        if given.program_noise is not None:
            flattened = given.program_noise.reshape(*given.program_noise.shape[:2], -1)
            layout.gather_rows(flattened, plan.steps, plan.owners, work.gumbel, s.heads * s.programs)
        state = given.state.map(plan.pick)
        layout.place_states(k.integers, *self._controller(state), state.read, work.before, work.cells)
        k.tape.load(chunk.memory, state.memory)
        k.forward(weights, chunk)

    def _controller(self, state: State) -> tuple[Array, ...]:
        return (*state.controller, *NO_CONTROLLER)[:2]

    def outputs(self, out: Array | None = None) -> Array:
        """(T, B, O), zero after a sequence's end; into `out` if it is given."""
        s = self.kernels.sizes
        if out is None:
            out = np.empty((*self.given.x.shape[:2], s.outputs), np.float32)
        if min(self.given.lengths) < out.shape[0]:
            out[:] = 0
        for chunk in self.chunks:
            layout.scatter_rows(chunk.work.outputs, s.outputs_p, chunk.plan.steps, chunk.plan.owners, out)
        return out

    def final(self) -> State:
        """Each sample's state at its own end."""
        s, n_p = self.kernels.sizes, self.kernels.sizes.size_p
        parts = []
        for chunk in self.chunks:
            last, batch = chunk.plan.last, chunk.extent.batch
            rows = rows_of(chunk.work.after, chunk.plan.rows, s.row)[last]
            cells = rows_of(chunk.work.cells, batch + chunk.plan.rows, n_p)[batch + last]
            controller = (rows[:, : s.size], cells[:, : s.size])[: self.kernels.states]
            memory = self.kernels.tape.final(chunk.memory, last, chunk.plan.lengths)
            parts.append(State(controller, memory, rows[:, n_p : n_p + s.reads]))
        return self._merge(parts)

    def _merge(self, parts: list[State]) -> State:
        """States of chunks as one state of the batch, in the batch's order: copies, the room is used again."""
        if len(parts) == 1 and self.chunks[0].plan.whole:
            return parts[0].map(lambda leaf: np.array(leaf, order="C"))
        order = np.argsort(np.concatenate([chunk.plan.samples for chunk in self.chunks]))
        return parts[0].map(lambda *leaves: np.concatenate(leaves)[order], *parts[1:])

    # --- and back -----------------------------------------------------------------------------------------------------

    def backward(self, weights: Array, d_outputs: Array, d_final: State | None) -> None:
        """From the gradients of outputs and final state back to the beginning: see `collect`, `d_initial`, `d_x`."""
        one = lambda chunk: self._backward(weights, chunk, d_outputs, d_final)  # noqa: E731
        self.gradients = list(each(one, self.chunks, self.threads))

    def _backward(self, weights: Array, chunk: Chunk, d_outputs: Array, d_final: State | None) -> Array:
        k, plan = self.kernels, chunk.plan
        s = k.sizes
        chunk.open(k)
        work = chunk.work
        layout.gather_rows(d_outputs, plan.steps, plan.owners, work.d_outputs, s.outputs_p)
        if d_final is None:
            work.d_state[:] = 0
            work.d_cell[:] = 0
            k.tape.load_gradient(chunk.memory, None)
        else:
            end = d_final.map(plan.pick)
            layout.place_states(k.integers, *self._controller(end), end.read, work.d_state, work.d_cell)
            k.tape.load_gradient(chunk.memory, end.memory)
        block = pool.take(k.weights_size)
        block.fill(0)
        k.backward(weights, block, chunk)
        return block

    def collect(self, weights: Array, where: Array, starts: Sequence[Array] = ()) -> None:
        """Add the parameters' gradients that `backward` found to those at these addresses, chunk by chunk.

        `starts` are the gradients of a learned h_0 and cell, for who has no other way to them than this.
        """
        for block in self.gradients:
            self.kernels.unpack(block, weights, where, starts)
        self.gradients = []

    def release(self) -> None:
        """Let others have the room; but for `collect`, it is over then."""
        for chunk in self.chunks:
            chunk.close()

    def d_initial(self) -> State:
        """After `backward`: the gradient of the initial state."""
        s, n, n_p = self.kernels.sizes, self.kernels.sizes.size, self.kernels.sizes.size_p
        parts = []
        for chunk in self.chunks:
            batch = chunk.extent.batch
            d_state, d_cell = rows_of(chunk.work.d_state, batch, s.row), rows_of(chunk.work.d_cell, batch, n_p)
            controller = (d_state[:, :n], d_cell[:, :n])[: self.kernels.states]
            parts.append(State(controller, self.kernels.tape.gradient(chunk.memory), d_state[:, n_p : n_p + s.reads]))
        return self._merge(parts)

    def d_x(self, out: Array) -> None:
        """After `backward`: the gradient of the input, into `out` (T, B, I)."""
        s = self.kernels.sizes
        if min(self.given.lengths) < out.shape[0]:
            out[:] = 0
        for chunk in self.chunks:
            layout.scatter_rows(chunk.work.d_inputs, s.inputs_p, chunk.plan.steps, chunk.plan.owners, out)

    # --- what happened ------------------------------------------------------------------------------------------------

    def trace(self, trace: int) -> list[Array]:
        """c_t, r_t, read and write addresses, then w^p if there are programs, ξ per head, and the tape if asked for.

        Each (T, B, …), zero after a sequence's end.
        """
        s, table, heads = self.kernels.sizes, self.kernels.table, self.kernels.sizes.heads
        after = self._gather(lambda chunk: rows_of(chunk.work.after, chunk.plan.rows, s.row))
        interface = self._gather(lambda chunk: rows_of(chunk.work.interface, chunk.plan.rows, s.interface))
        found = [after[..., : s.size], after[..., s.size_p : s.size_p + s.reads]]
        found += [self._gather(lambda chunk, kind=kind: self._addresses(chunk)[kind]) for kind in (0, 1)]  # type: ignore[misc]
        if s.attention != layout.STATIC:
            stride = padded(s.programs)
            mix = self._gather(lambda chunk: rows_of(chunk.work.mix, chunk.plan.rows, heads * stride))
            found.append(mix.reshape(*mix.shape[:2], heads, stride)[..., : s.programs])
        found += [interface[..., xi : xi + length] for _, _, xi, length, _ in table]
        if trace == WITH_TAPES:
            found.append(self._gather(self._tapes))
        return [np.ascontiguousarray(array) for array in found]

    def _addresses(self, chunk: Chunk) -> tuple[Array, Array]:
        lines: tuple[Array, Array] = self.kernels.tape.addresses(chunk.memory, chunk.plan.rows)
        return lines

    def _tapes(self, chunk: Chunk) -> Array:
        plan = chunk.plan
        return traced_tapes(chunk.memory, plan.steps, np.arange(plan.rows) - plan.first[plan.steps])

    def _gather(self, rows: Callable[[Chunk], Array]) -> Array:
        """Something of every row of all chunks as (T, B, …), zero where a sequence has ended."""
        parts = [rows(chunk) for chunk in self.chunks]
        out = np.zeros((*self.given.x.shape[:2], *parts[0].shape[1:]), np.float32)
        for chunk, part in zip(self.chunks, parts, strict=True):
            out[chunk.plan.steps, chunk.plan.owners] = part
        return out


class Stretches:
    """A run too long to keep whole: states are kept where stretches begin, and each is run again on the way back.

    It takes one more forward pass, and the memory of one stretch and of the states.
    """

    def __init__(
        self, kernels: Kernels, given: Given, kept: Array | None, whole: bool, threads: int, span: int
    ) -> None:
        self.kernels, self.given, self.kept = kernels, given, kept
        self._options = whole, threads
        ends = np.array(given.lengths)
        starts = range(0, int(ends.max()), span)
        self.stretches = [(start, min(start + span, int(ends.max())), np.flatnonzero(ends > start)) for start in starts]
        steps, batch, _ = given.x.shape
        self._outputs = np.zeros((steps, batch, kernels.sizes.outputs), np.float32)
        self._d_x = np.zeros_like(given.x)
        self._trace: list[Array] = []
        self._state = given.state

    def _run(self, start: int, stop: int, samples: Array, state: State) -> Run:
        begin = state.map(lambda leaf: np.ascontiguousarray(leaf[samples]))
        return Run(self.kernels, self.given.part(start, stop, samples, begin), None, *self._options)

    def forward(self, weights: Array, trace: int = 0) -> None:
        """One stretch after another; `trace` is as an operator's."""
        self._state, kept = self.given.state.map(np.copy), 0
        for start, stop, samples in self.stretches:
            if self.kept is not None:
                for leaf in self._state.leaves:
                    self.kept[kept : kept + leaf.size] = leaf.reshape(-1)
                    kept += leaf.size
            run = self._run(start, stop, samples, self._state)
            run.forward(weights)
            self._outputs[start:stop, samples] = run.outputs()
            _put(self._state, samples, run.final())
            for i, part in enumerate(run.trace(trace) if trace else ()):
                if not start:
                    self._trace.append(np.zeros((*self.given.x.shape[:2], *part.shape[2:]), np.float32))
                self._trace[i][start:stop, samples] = part

    def outputs(self, out: Array | None = None) -> Array:
        if out is None:
            return self._outputs
        out[:] = self._outputs
        return out

    def final(self) -> State:
        return self._state

    def trace(self, trace: int) -> list[Array]:
        return self._trace

    def backward(self, weights: Array, d_outputs: Array, d_final: State | None) -> None:
        """The stretches in reverse, each run again and then back."""
        assert self.kept is not None
        self._state = self.given.state.map(np.zeros_like) if d_final is None else d_final.map(np.copy)
        self._gradient = zeros(self.kernels.weights_size)
        size = sum(leaf.size for leaf in self.given.state.leaves)
        for i, (start, stop, samples) in reversed(list(enumerate(self.stretches))):
            run = self._run(start, stop, samples, _taken(self.given.state, self.kept[i * size :]))
            run.forward(weights)
            d_end = self._state.map(lambda leaf, samples=samples: np.ascontiguousarray(leaf[samples]))
            run.backward(weights, np.ascontiguousarray(d_outputs[start:stop].take(samples, 1)), d_end)
            for block in run.gradients:
                if start:  # only the first stretch begins with the learned state
                    self.kernels.start(block)[:] = 0
                self._gradient += block
            if self.given.input_gradient:
                d_x = np.empty_like(run.given.x)
                run.d_x(d_x)
                self._d_x[start:stop, samples] = d_x
            _put(self._state, samples, run.d_initial())

    def collect(self, weights: Array, where: Array, starts: Sequence[Array] = ()) -> None:
        self.kernels.unpack(self._gradient, weights, where, starts)

    def release(self) -> None:
        """Each stretch has let go of its room already."""

    def d_initial(self) -> State:
        return self._state

    def d_x(self, out: Array) -> None:
        out[:] = self._d_x


def _put(whole: State, samples: Array, part: State) -> None:
    """Some samples' part of a state into the whole."""
    for target, source in zip(whole.leaves, part.leaves, strict=True):
        target[samples] = source


def _taken(like: State, block: Array) -> State:
    """A state that was written down leaf by leaf."""
    leaves, start = [], 0
    for leaf in like.leaves:
        leaves.append(block[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return like.like(leaves)


def start(
    kernels: Kernels, given: Given, kept: Array | None = None, whole: bool = False, threads: int = 1, keep: bool = True
) -> Run | Stretches:
    """A run, in stretches where it would take too much memory; without `keep` there is no way back."""
    compile_for(kernels.tape.config)
    slots = given.state.memory.memory.shape[1]
    span = kernels.span(given.lengths, slots, whole, LIMIT if keep else FORGOTTEN)
    if span >= max(given.lengths):
        return Run(kernels, given, kept, whole, threads)
    if keep and kept is None:
        kept = zeros(-(-max(given.lengths) // span) * sum(leaf.size for leaf in given.state.leaves))
    return Stretches(kernels, given, kept, whole, threads, span)


def rows_of(array: Array, rows: int, width: int) -> Array:
    """The first `rows` rows of a flat buffer, as a matrix."""
    return array[: rows * width].reshape(rows, width)


def each(function: Callable[[T], U], items: Sequence[T], threads: int) -> Iterator[U]:
    """Work on all of them and yield the results in order; kernels don't hold Python's lock.

    The calling thread does its part: it has the weights in its cache already, and need not be woken.
    """
    helpers = min(threads, len(items)) - 1
    if helpers < 1:
        yield from map(function, items)
        return
    found: dict[int, U] = {}
    open_, given = iter(range(len(items))), 0

    def help_out() -> None:
        for i in open_:
            found[i] = function(items[i])

    futures = [_helpers(helpers).submit(help_out) for _ in range(helpers)]
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


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="nsm")


os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads stay behind; work handed to them would wait for ever
TAPES: dict[type, Any] = {NTM: NTMTape, LRUA: LRUATape, DNC: DNCTape}
