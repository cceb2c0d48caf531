"""A pass of the kernels over a batch, there and back: chunks of rows, lanes of chunks, one call for all of them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nsm.description import Description, parse
from nsm.fused import layout, programs, recurrence, threads
from nsm.fused.cache import once
from nsm.fused.dnc import DNCTape
from nsm.fused.layout import Array, Words, padded
from nsm.fused.lrua import LRUATape
from nsm.fused.ntm import NTMTape
from nsm.fused.recurrence import BACK, LOSS, THERE, Call, Plan
from nsm.fused.tape import ALL, SOME, STILL, traced_tapes
from nsm.fused.workspace import Form, Laid, Room, pool
from nsm.memories import DNC, LRUA, NTM, MemoryConfig

LIMIT = 512 << 20
"""A pass that would keep more bytes than this keeps states only, and is made again, a stretch at a time, on its way
back."""
FORGOTTEN = 1 << 19
"""Without a way back, a stretch of a chunk leaves about this many bytes, and the next one writes over them."""
WAVE = 16
"""So many chunks leave gradients of their own before these are added up."""
LARGE = 1 << 17
"""Weights are packed on several threads if they are more numbers than this."""
WITH_ADDRESSES, WITH_TAPES = 1, 2
"""What a trace may be asked for; 0 is none."""


def kept_tapes(trace: int) -> int:
    """How many tapes a pass keeps that is to tell its trace."""
    return ALL if trace == WITH_TAPES else SOME


class Given(NamedTuple):
    """What a pass starts from, by address: float32 and C-contiguous. Whoever gives it holds on to it."""

    steps: int
    batch: int
    lengths: tuple[int, ...]
    slots: int
    state: Words
    """of the leaves"""
    x: int
    """(T, B, I)"""
    cell_noise: int = 0
    """(T, B, n), or none"""
    program_noise: int = 0
    """(T, B, heads, P), or none"""


class Planned(NamedTuple):
    """A plan, and the address of its record."""

    plan: Plan
    address: int
    form: Form

    @property
    def rows(self) -> tuple[Array, Array, Array]:
        """Per row the step of the batch, the sample of the batch, and that of the chunk."""
        plan = self.plan
        steps = np.repeat(np.arange(len(plan.counts)), plan.counts)
        samples = np.arange(plan.rows) - plan.first[steps]
        return steps + plan.start, plan.samples[samples], samples


@lru_cache(maxsize=128)
def plans(lengths: tuple[int, ...], size: int, start: int = 0, stop: int = 1 << 62) -> tuple[Planned, ...]:
    """The chunks of a batch of sequences of these lengths, `size` each, of sequences about as long as each other; of
    those that reach it, the steps from `start` on."""
    found = []
    ends = np.minimum(np.array(lengths, np.int64), stop) - start
    order = np.argsort(-ends, kind="stable")[: np.count_nonzero(ends > 0)]
    for place in range(0, len(order), size):
        samples = order[place : place + size]
        steps = int(ends[samples[0]])
        counts = (ends[samples][None, :] > np.arange(steps)[:, None]).sum(1)
        first = np.concatenate([[0], np.cumsum(counts)])
        plan = Plan(samples, ends[samples], first, counts, start, int(first[-1]))
        form = Form(plan)
        found.append(Planned(plan, form.words.ctypes.data, form))
    return tuple(found)


class Extent(NamedTuple):
    """What decides how much room a chunk takes."""

    rows: int
    batch: int
    steps: int
    slots: int
    noisy: tuple[bool, bool] = (True, True)
    """whether there is noise on cells, and for programs"""
    keeps: int = SOME
    """how many tapes are kept"""
    input_gradient: bool = True


class Kernels:
    """The kernels of one kind of machine, for one width of input and output. It has no weights: those are handed in."""

    def __init__(self, described: Description, inputs: int, outputs: int) -> None:
        self.sizes, scales, self.table = layout.sizes_of(described, inputs, outputs)
        self.tape = TAPES[type(described.memory)](described.memory)
        s, counted = self.sizes, Room()
        spans = layout.weights(counted.keep, s)
        self.weights, self.weights_size = Form(spans), counted.kept
        self.there_size = spans.gates_x_back.start
        """how many numbers of a block the way there needs"""
        self.parameters = layout.Parameters(described, s, self.table, spans)
        self._constants = np.array(s, np.int64), np.array(scales, np.float64), np.ascontiguousarray(self.table)
        self.constants = tuple(array.ctypes.data for array in self._constants)
        """the addresses of sizes, scales and table"""
        self.clear = spans.raw_back.start - spans.gates_x.start
        self.leaves = len(self.state_shapes(1, 1)) - self.states - 1
        # Few samples together, whatever the number of threads, so that threads never change a result: what they leave
        # for the way back stays near. More where a step fetches more weights than stay near.
        self.chunk = 4 if 4 * (s.row * s.gates + s.size * s.raw) < 2 << 20 else 8
        self.head_masks = np.zeros(s.interface, np.float32)
        for _, _, xi, length, _ in self.table:
            self.head_masks[xi : xi + length] = 1
        self._rooms: dict[Extent, tuple[Room, Form]] = {}

    @property
    def states(self) -> int:
        """How many vectors the controller's state has."""
        return {layout.FEED_FORWARD: 0, layout.LSTM: 2}.get(self.sizes.controller, 1)

    def pack(self, where: Words, block: Array, count: int = 1, there: bool = False) -> None:
        """The parameters at these addresses as the kernels read them, into a block whose padding is zero; only what
        the way there needs if so asked."""
        places = self.parameters.there if there else self.parameters.places
        record, address = np.empty(len(self.weights.words), np.int64), block.ctypes.data
        self.weights.lay(address, address, record)
        blocks = np.array([address])
        call = _packing(places, where, blocks, 0, self.constants[0], record.ctypes.data)
        threads.run(layout.pack, call.ctypes.data, count if self.weights_size > LARGE else 1)
        layout.finish.ctypes(call.ctypes.data)

    def unpack(self, blocks: Sequence[Array], where: Words, places: Words, fresh: bool, count: int = 1) -> None:
        """The gradients in these blocks, one after another, to those at these addresses: in their place, or added."""
        addresses = np.array([block.ctypes.data for block in blocks])
        call = _packing(places, where, addresses, int(fresh), 0, 0)
        threads.run(layout.unpack, call.ctypes.data, count if self.weights_size > LARGE else 1)

    def start(self, block: Array) -> Array:
        """In a block of gradients, those of the learned initial state: h_0 and the cell, padded."""
        whole: Array = Laid(self.weights.records[0], block, block).start
        return whole

    def state_shapes(self, batch: int, slots: int) -> list[tuple[int, ...]]:
        """Of a state's leaves."""
        s = self.sizes
        return [*[(batch, s.size)] * self.states, *self.tape.shapes(batch, slots), (batch, s.reads)]

    def room(self, extent: Extent) -> tuple[Room, Form]:
        """How many numbers a chunk keeps and uses, and the form of its records: work, memory, the memory's leaves."""
        if extent not in self._rooms:
            if len(self._rooms) > 1024:
                self._rooms.clear()
            room = Room()
            work, tape = self._work(room, extent)
            self._rooms[extent] = room, Form(work, tape, *self.tape.leaves(tape))
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
        return work, self.tape.work(room, batch, extent.steps, rows, extent.slots, extent.keeps)

    def kept(self, lengths: tuple[int, ...], slots: int, keeps: int = SOME) -> int:
        """How many numbers a pass keeps for its way back, in one stretch."""
        return sum(self._kept(planned.plan, slots, keeps) for planned in plans(lengths, self.chunk))

    def _kept(self, plan: Plan, slots: int, keeps: int) -> int:
        return self.room(Extent(plan.rows, len(plan.samples), len(plan.counts), slots, keeps=keeps))[0].kept

    def span(self, lengths: tuple[int, ...], slots: int, keeps: int) -> int:
        """How many steps a stretch has that keeps no more than LIMIT bytes, or about that."""
        needed, steps = 4 * self.kept(lengths, slots, keeps), max(lengths)
        return steps if needed <= LIMIT else max(1, steps * LIMIT // needed)

    def kept_size(self, lengths: tuple[int, ...], slots: int, trace: int = 0) -> int:
        """How many numbers the way back needs: what each chunk keeps, or a state per stretch."""
        keeps, steps = kept_tapes(trace), max(lengths)
        span = self.span(lengths, slots, keeps)
        if span >= steps:
            return self.kept(lengths, slots, keeps)
        return -(-steps // span) * sum(map(math.prod, self.state_shapes(len(lengths), slots)))

    def fits(self, lengths: tuple[int, ...], slots: int) -> bool:
        """Whether a chunk of these can be kept whole."""
        longest = plans(lengths, self.chunk)[0].plan
        return 4 * self._kept(longest, slots, SOME) <= LIMIT

    def glance(self, batch: int, steps: int, slots: int) -> int:
        """How many steps a stretch has of a pass without a way back."""
        size = min(batch, self.chunk)
        room = self.room(Extent(size * steps, size, steps, slots, keeps=STILL))[0]
        return max(1, min(steps, steps * FORGOTTEN // (4 * (room.kept + room.used))))


def _packing(places: Words, where: Words, blocks: Words, fresh: int, sizes: int, weights: int) -> Words:
    at = places.ctypes.data, len(places), where.ctypes.data, len(where), blocks.ctypes.data, len(blocks)
    return np.array([0, *at, fresh, sizes, weights])


@lru_cache(maxsize=64)
def kernels(described: str, inputs: int, outputs: int) -> Kernels:
    """The kernels for a description. Nothing is compiled before they run: who traces a graph asks for sizes only."""
    return Kernels(parse(described), inputs, outputs)


_compiled: set[type] = set()


def compile_for(memory: MemoryConfig) -> None:
    """Compile the kernels of a memory, unless that was ever done."""
    kind = type(memory)
    if kind not in _compiled:
        once(kind.__name__, lambda: _compile(kind))
        _compile(kind)
        _compiled.add(kind)


def _compile(kind: type[MemoryConfig]) -> None:
    for entry in (layout.pack, layout.finish, layout.unpack, recurrence.run(TAPES[kind].Work)):
        if entry.address is None:
            entry.compile()


class Job(NamedTuple):
    """What a lane does in its turn: a chunk, or a stretch of one."""

    lane: int
    planned: Planned
    extent: Extent
    initial: int
    """the table of the state it begins with"""
    final: int
    """and of the one it ends with; 0 if nobody asks"""
    kept: Array | None = None
    """what the way back finds again; else it is in the lane's room"""


def address(array: Array) -> int:
    """Where an array is."""
    return int(array.ctypes.data)


def addresses(tensors: Iterable[Any]) -> Words:
    """Where tensors are."""
    return np.array([tensor.data_ptr() for tensor in tensors], np.int64)


class Run:
    """A batch in the hands of the kernels.

    Weights are a block that `pack` made; everything else comes and goes by its address, or 0 where there is none.
    Tables of states are arrays of their leaves' addresses.
    """

    def __init__(self, kernels: Kernels, given: Given, count: int = 1, input_gradient: bool = False) -> None:
        self.kernels, self.given, self.threads, self.input_gradient = kernels, given, count, input_gradient
        compile_for(kernels.tape.config)

    # --- there --------------------------------------------------------------------------------------------------------

    def forward(self, weights: Array, out: int, final: Words, kept: Array, trace: int = 0) -> list[Array]:
        """All chunks, in one stretch, or in several with a state kept where each begins. Returns a trace."""
        given, keeps, traced = self.given, kept_tapes(trace), Traced(self.kernels, self.given, trace)
        span, begin, end = self.kernels.span(given.lengths, given.slots, keeps), address(given.state), address(final)
        if span >= max(given.lengths):
            jobs = self._jobs(begin, end, kept, keeps)
            traced.add(self._call(THERE, weights, jobs, out=out)[0])
            return traced.arrays
        for i, start in enumerate(range(0, max(given.lengths), span)):
            self._copy(final if i else given.state, self._states(kept, i))
            jobs = self._jobs(begin, end, None, keeps, start, start + span)
            traced.add(self._call(THERE, weights, jobs, apart=bool(trace), out=out)[0])
            begin = end
        return traced.arrays

    def glance(self, weights: Array, out: int, final: Words, trace: int = 0) -> list[Array]:
        """All chunks, with no way back: each in short stretches, a lane's in the same room. Returns a trace."""
        given, end, begin = self.given, address(final), address(self.given.state)
        steps, traced = max(given.lengths), Traced(self.kernels, given, trace)
        if trace:
            keeps, span = kept_tapes(trace), self.kernels.span(given.lengths, given.slots, kept_tapes(trace))
        else:
            keeps, span = STILL, self.kernels.glance(given.batch, steps, given.slots)
        jobs: list[Job] = []
        for start in range(0, steps, span):
            jobs += self._jobs(begin, end, None, keeps, start, start + span)
            begin = end
        traced.add(self._call(THERE, weights, jobs, apart=bool(trace), out=out)[0])
        return traced.arrays

    # --- and back -----------------------------------------------------------------------------------------------------

    def backward(
        self,
        weights: Array,
        kept: Array,
        d_out: int,
        d_final: Words | None,
        d_x: int,
        d_initial: Words,
        collect: Callable[[list[Array]], None],
        trace: int = 0,
    ) -> None:
        """From the gradients of outputs and final state back to those of input and initial state; blocks with those of
        the parameters go to `collect`, a few at a time."""
        k, given, steps, keeps = self.kernels, self.given, max(self.given.lengths), kept_tapes(trace)
        span, ends = k.span(given.lengths, given.slots, keeps), {"d_out": d_out, "d_x": d_x}
        if span >= steps:
            end = 0 if d_final is None else address(d_final)
            jobs = self._jobs(0, 0, kept, keeps)
            self._waves(BACK, weights, jobs, collect, **ends, d_final=end, d_initial=address(d_initial))
            return
        # Where each stretch ends, the gradient of the state is where it began.
        self._copy(d_final, d_initial)
        at = address(d_initial)

        def but_the_start(blocks: list[Array]) -> None:
            for block in blocks:  # only the first stretch begins with the learned state
                k.start(block).fill(0)
            collect(blocks)

        for i, start in reversed(list(enumerate(range(0, steps, span)))):
            begin = self._states(kept, i)
            jobs = self._jobs(address(begin), 0, None, SOME, start, start + span)
            finish = but_the_start if start else collect
            self._waves(THERE | BACK, weights, jobs, finish, **ends, d_final=at, d_initial=at)

    def learn(
        self,
        weights: Array,
        targets: int,
        mask: int,
        loss: int,
        share: float,
        final: Words,
        collect: Callable[[list[Array]], None],
    ) -> float:
        """There, to a loss and back, chunk by chunk: what one leaves is near when it is needed. Returns the loss."""
        end = address(final) if len(final) else 0
        jobs = self._jobs(address(self.given.state), end)
        what = THERE | LOSS | BACK
        return sum(self._waves(what, weights, jobs, collect, targets=targets, mask=mask, loss=loss, share=share))

    def _waves(
        self, what: int, weights: Array, jobs: list[Job], collect: Callable[[list[Array]], None], **ends: Any
    ) -> list[float]:
        losses: list[float] = []
        for start in range(0, len(jobs), WAVE):
            wave = jobs[start : start + WAVE]
            blocks = [pool.take(self.kernels.weights_size) for _ in wave]
            losses += self._call(what, weights, wave, blocks, **ends)[1]
            collect(blocks)
        return losses

    def _states(self, kept: Array, i: int) -> Words:
        """The table of the state that is kept for stretch i."""
        leaves = [4 * size for size in self._leaf_sizes]
        start = address(kept) + i * sum(leaves)
        return start + np.cumsum([0, *leaves[:-1]])

    @property
    def _leaf_sizes(self) -> list[int]:
        given = self.given
        return [math.prod(shape) for shape in self.kernels.state_shapes(given.batch, given.slots)]

    def _copy(self, source: Words | None, target: Words) -> None:
        """A state, or zeros, to where the leaves of another are."""
        for i, size in enumerate(self._leaf_sizes):
            if source is None:
                ctypes.memset(int(target[i]), 0, 4 * size)
            else:
                ctypes.memmove(int(target[i]), int(source[i]), 4 * size)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _jobs(
        self,
        initial: int,
        final: int,
        kept: Array | None = None,
        keeps: int = SOME,
        start: int = 0,
        stop: int = 1 << 62,
    ) -> list[Job]:
        """The chunks from a step to another; `kept`, if it is given, has room for what each keeps."""
        k, given, found, place = self.kernels, self.given, [], 0
        noisy = (given.cell_noise != 0, given.program_noise != 0)
        chunks = plans(given.lengths, k.chunk, start, stop)
        lanes = min(self.threads, len(chunks))
        for i, planned in enumerate(chunks):
            p = planned.plan
            extent = Extent(p.rows, len(p.samples), len(p.counts), given.slots, noisy, keeps, self.input_gradient)
            size = k.room(extent)[0].kept
            # There and back again: chunks are sorted by their length, and lanes are to be of about the same.
            turn = i % (2 * lanes)
            lane = min(turn, 2 * lanes - 1 - turn)
            mine = None if kept is None else kept[place : place + size]
            found.append(Job(lane, planned, extent, initial, final, mine))
            place += size
        return found

    def _call(
        self,
        what: int,
        weights: Array,
        jobs: list[Job],
        gradients: Sequence[Array] = (),
        apart: bool = False,
        share: float = 0.0,
        **ends: int,
    ) -> tuple[list[Chunk], list[float]]:
        """Run some chunks; returns them with the room they had, the lane's or, if `apart`, their own; and losses."""
        k, given = self.kernels, self.given
        rooms = [k.room(job.extent) for job in jobs]
        places = range(len(jobs)) if apart else [job.lane for job in jobs]
        needed = [0] * (1 + max(places))
        for place, job, (room, _) in zip(places, jobs, rooms, strict=True):
            needed[place] = max(needed[place], room.used + (room.kept if job.kept is None else 0))
        taken = [(block, address(block)) for block in map(pool.take, needed)]
        # All records in one buffer: those of weights and gradients, then each job's, the chunks', and the call's own.
        blocks, w = (weights, *gradients), len(k.weights.words)
        sizes = [len(form.words) for _, form in rooms]
        records = w * len(blocks) + sum(sizes)
        head = records + CHUNK * len(jobs)
        buffer = np.empty(head + CALL, np.int64)
        base, at = address(buffer), 0
        chunks: list[int] = []
        found: list[Chunk] = []
        for block in blocks:
            begin = address(block)
            k.weights.lay(begin, begin, buffer[at : at + w])
            at += w
        for i, (place, job, size, (room, form)) in enumerate(zip(places, jobs, sizes, rooms, strict=True)):
            block, used = taken[place]
            kept = used + 4 * room.used if job.kept is None else address(job.kept)
            form.lay(kept, used, buffer[at : at + size])
            starts = [base + 8 * at + start for start in form.starts[:3]]
            slopes = base + 8 * w * (1 + i) if gradients else 0
            chunks += job.lane, job.planned.address, *starts, slopes, job.initial, job.final
            found.append(Chunk(job, block, block[room.used :] if job.kept is None else job.kept, form))
            at += size
        buffer[records:head] = chunks
        sums = np.empty(1 + len(jobs))
        sums[0] = share
        call = Call(
            turn=0,
            lanes=1 + max(job.lane for job in jobs),
            chunks=base + 8 * records,
            chunk_count=len(jobs),
            what=what,
            batch=given.batch,
            leaves=len(rooms[0][1].starts) - 2,
            read=len(given.state) - 1,
            clear=k.clear,
            sizes=k.constants[0],
            scales=k.constants[1],
            table=k.constants[2],
            weights=base,
            x=given.x,
            cell_noise=given.cell_noise,
            program_noise=given.program_noise,
            sums=address(sums),
            **ends,
        )
        buffer[head:] = np.array(call)
        threads.run(recurrence.run(k.tape.Work), base + 8 * head, call.lanes)
        return found, sums[1:].tolist()


class Chunk(NamedTuple):
    """A job that was done, and its arrays."""

    job: Job
    used: Array
    kept: Array
    form: Form

    @property
    def work(self) -> Any:
        return Laid(self.form.records[0], self.kept, self.used)

    @property
    def memory(self) -> Any:
        return Laid(self.form.records[1], self.kept, self.used)


class Traced:
    """c_t, r_t, read and write addresses, then w^p if there are programs, ξ per head, and the tape if asked for.

    Each (T, B, …), zero after a sequence's end.
    """

    def __init__(self, kernels: Kernels, given: Given, trace: int) -> None:
        self.kernels, self.given, self.trace = kernels, given, trace
        self.arrays: list[Array] = []

    def add(self, chunks: list[Chunk]) -> None:
        """What happened in some chunks."""
        for chunk in chunks if self.trace else ():
            steps, owners, samples = chunk.job.planned.rows
            parts = self._parts(chunk, len(steps), steps - chunk.job.planned.plan.start, samples)
            if not self.arrays:
                shape = self.given.steps, self.given.batch
                self.arrays = [np.zeros((*shape, *part.shape[1:]), np.float32) for part in parts]
            for array, part in zip(self.arrays, parts, strict=True):
                array[steps, owners] = part

    def _parts(self, chunk: Chunk, rows: int, steps: Array, samples: Array) -> list[Array]:
        k, work, memory = self.kernels, chunk.work, chunk.memory
        s = k.sizes
        after, interface = rows_of(work.after, rows, s.row), rows_of(work.interface, rows, s.interface)
        found = [after[:, : s.size], after[:, s.size_p : s.size_p + s.reads], *k.tape.addresses(memory, rows)]
        if s.attention != layout.STATIC:
            stride = padded(s.programs)
            mix = rows_of(work.mix, rows, s.heads * stride)
            found.append(mix.reshape(rows, s.heads, stride)[..., : s.programs])
        found += [interface[:, xi : xi + length] for _, _, xi, length, _ in k.table]
        if self.trace == WITH_TAPES:
            found.append(traced_tapes(memory, steps, samples))
        return found


def rows_of(array: Array, rows: int, width: int) -> Array:
    """The first `rows` rows of a flat buffer, as a matrix."""
    return array[: rows * width].reshape(rows, width)


CALL, CHUNK = len(Call._fields), len(recurrence.Chunk._fields)
TAPES: dict[type, Any] = {NTM: NTMTape, LRUA: LRUATape, DNC: DNCTape}
