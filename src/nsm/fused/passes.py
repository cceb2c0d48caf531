"""A pass of the kernels over a batch, there and back: chunks of rows, lanes of chunks, one call for all of them."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from nsm.description import Description, parse
from nsm.fused import layout, programs, recurrence, threads
from nsm.fused.cache import directory, once
from nsm.fused.dnc import DNCTape
from nsm.fused.layout import Array, Words, padded
from nsm.fused.lrua import LRUATape
from nsm.fused.ntm import NTMTape
from nsm.fused.recurrence import BACK, LOSS, THERE, Call, Plan
from nsm.fused.tape import ALL, SOME, STILL, traced_tapes
from nsm.fused.workspace import KEPT, Block, Form, Laid, Room, Span, pool
from nsm.memories import DNC, LRUA, NTM, MemoryConfig

LIMIT = 512 << 20
"""A pass that would keep more bytes than this keeps states only, and is made again, a stretch at a time, on its way
back."""
FORGOTTEN = 1 << 19
"""Without a way back, a stretch of a chunk leaves about this many bytes, and the next one writes over them."""
WAVE = 16
"""So many chunks leave gradients of their own before these are added up."""
PACKED = 4
"""So many blocks of packed weights are held for passes without a way back."""
LARGE = 1 << 17
"""Weights are packed, and gradients unpacked, on several threads if they are more numbers than this."""
WITH_ADDRESSES, WITH_TAPES = 1, 2
"""What a trace may be asked for; 0 is none."""


def kept_tapes(trace: int) -> int:
    """How many tapes a pass keeps that is to tell its trace."""
    return ALL if trace == WITH_TAPES else SOME


Table = ctypes.Array[ctypes.c_int64]
"""Words that kernels read. NumPy takes four times as long to make a small array and to tell where it is."""


def words(values: Sequence[int]) -> Table:
    """Numbers for a kernel."""
    return _table(len(values))(*values)


@cache
def _table(size: int) -> type[Table]:
    return ctypes.c_int64 * size


def span_of(table: Table) -> tuple[int, int]:
    """Where it is, and how long."""
    return ctypes.addressof(table), len(table)


def address(array: Array) -> int:
    """Where an array is."""
    return int(array.ctypes.data)


def addresses(tensors: Iterable[Any]) -> Table:
    """Where tensors are."""
    return words([*map(Tensor.data_ptr, tensors)])


class Given(NamedTuple):
    """What a pass starts from, by address: float32 and C-contiguous. Whoever gives it holds on to it."""

    steps: int
    batch: int
    lengths: tuple[int, ...]
    slots: int
    state: Table
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
    those that reach it, the steps from `start` on. Which samples go together does not depend on the stretch, so that
    each finds the state which its own lane left."""
    found = []
    whole = np.array(lengths, np.int64)
    ends = np.minimum(whole, stop) - start
    order = np.argsort(-whole, kind="stable")
    for place in range(0, np.count_nonzero(ends > 0), size):
        samples = order[place : place + size]
        samples = samples[ends[samples] > 0]
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
        tables = {name: getattr(self.parameters, name) for name in ("places", "there", "learned", "with_start")}
        self._places = {name: (address(table), len(table)) for name, table in tables.items()}
        self.clear = spans.raw_back.start - spans.gates_x.start
        self.leaves = len(self.state_shapes(1, 1)) - self.states - 1
        # Few samples together, whatever the number of threads, so that threads never change a result: what they leave
        # for the way back stays near. More where a step fetches more weights than stay near.
        self.chunk = 4 if 4 * (s.row * s.gates + s.size * s.raw) < 2 << 20 else 8
        self.head_masks = np.zeros(s.interface, np.float32)
        for _, _, xi, length, _ in self.table:
            self.head_masks[xi : xi + length] = 1
        self._rooms: dict[Extent, tuple[Room, Form]] = {}
        self._templates: dict[Outline, Template] = {}
        self._blocks: list[Block] = []

    @property
    def states(self) -> int:
        """How many vectors the controller's state has."""
        return {layout.FEED_FORWARD: 0, layout.LSTM: 2}.get(self.sizes.controller, 1)

    def pack(self, where: Table, block: int, count: int = 1, there: bool = False) -> None:
        """The parameters at these addresses as the kernels read them, into a block whose padding is zero; only what
        the way there needs if so asked."""
        at: layout.Weights = self.weights.records[0]
        computed = [span.start for span in (at.keys, at.key_inverses, at.gates_x, at.nothing)]
        places, blocks = self._places["there" if there else "places"], words([block])
        call = words([0, *places, *span_of(where), *span_of(blocks), 0, self.constants[0], *computed])
        threads.run(layout.pack, ctypes.addressof(call), count if self.weights_size > LARGE else 1)
        layout.finish.ctypes(ctypes.addressof(call))

    def unpack(self, blocks: Sequence[Block], where: Table, fresh: bool, count: int = 1, start: bool = False) -> None:
        """The gradients in these blocks, one after another, to those at these addresses: in their place, or added; if
        asked, those of a learned initial state as well."""
        places, filled = self._places["with_start" if start else "learned"], words([block.address for block in blocks])
        call = words([0, *places, *span_of(where), *span_of(filled), int(fresh), *[0] * 5])
        threads.run(layout.unpack, ctypes.addressof(call), count if len(blocks) * self.weights_size > LARGE else 1)

    def forget_start(self, block: Block) -> None:
        """In a block of gradients, those of the learned initial state are none."""
        start: Span = self.weights.records[0].start
        block.array[start.start : start.start + start.size] = 0

    @contextmanager
    def packed(self, where: Table, count: int) -> Iterator[int]:
        """A block for the way there alone, packed. Blocks are used again: their padding is zero already."""
        block = self._blocks.pop() if self._blocks else Block(self.there_size, zero=True)
        self.pack(where, block.address, count, there=True)
        yield block.address
        if len(self._blocks) < PACKED:
            self._blocks.append(block)

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

    def spans(self, lengths: tuple[int, ...], slots: int, keeps: int) -> tuple[tuple[int, int], ...]:
        """The stretches of a pass, each of which keeps no more than LIMIT bytes, or about that."""
        needed, steps = 4 * self.kept(lengths, slots, keeps), max(lengths)
        if needed <= LIMIT:
            return ALL_STEPS
        return _spans(steps, max(1, steps * LIMIT // needed))

    def glances(self, lengths: tuple[int, ...], slots: int) -> tuple[tuple[int, int], ...]:
        """The stretches of a pass without a way back."""
        size, steps = min(len(lengths), self.chunk), max(lengths)
        if steps == 1:
            return ALL_STEPS
        room = self.room(Extent(size * steps, size, steps, slots, keeps=STILL))[0]
        return _spans(steps, max(1, steps * FORGOTTEN // (4 * (room.kept + room.used))))

    def kept_size(self, lengths: tuple[int, ...], slots: int, trace: int = 0) -> int:
        """How many numbers the way back needs: what each chunk keeps, or a state per stretch."""
        keeps = kept_tapes(trace)
        spans = self.spans(lengths, slots, keeps)
        if len(spans) == 1:
            return self.kept(lengths, slots, keeps)
        return len(spans) * sum(map(math.prod, self.state_shapes(len(lengths), slots)))

    def fits(self, lengths: tuple[int, ...], slots: int) -> bool:
        """Whether a chunk of these can be kept whole."""
        longest = plans(lengths, self.chunk)[0].plan
        return 4 * self._kept(longest, slots, SOME) <= LIMIT

    def template(self, outline: Outline) -> Template:
        """The calls of an outline."""
        found = self._templates.get(outline)
        if found is None:
            if len(self._templates) >= 64:
                self._templates.clear()
            found = self._templates[outline] = Template(self, outline)
        return found


def _spans(steps: int, length: int) -> tuple[tuple[int, int], ...]:
    if length >= steps:
        return ALL_STEPS
    return tuple((start, start + length) for start in range(0, steps, length))


@lru_cache(maxsize=64)
def kernels(described: str, inputs: int, outputs: int) -> Kernels:
    """The kernels for a description. Nothing is compiled before they run: who traces a graph asks for sizes only."""
    return Kernels(parse(described), inputs, outputs)


_compiled: set[type] = set()


def compile_for(memory: MemoryConfig) -> None:
    """Compile the kernels of a memory, unless that was ever done."""
    kind = type(memory)
    if kind not in _compiled:
        once(kind.__name__, lambda: _compile_apart(kind))
        compile_part(kind.__name__)
        _compiled.add(kind)


def compile_part(memory: str, part: str = "") -> None:
    """Compile, or find in the cache, the kernels of a memory by its name: those for the way there, for the way back, or
    all there are."""
    (tape,) = (TAPES[kind] for kind in TAPES if kind.__name__ == memory)
    entries = recurrence.entries(tape.Work)
    shared = [layout.pack, layout.finish, layout.unpack, recurrence.run]
    for made in {"there": [*shared, entries.there], "back": [entries.back]}.get(part, [*shared, *entries]):
        if made.address is None:
            made.compile()


def _compile_apart(kind: type[MemoryConfig]) -> None:
    """Both ways at once, one of them in another process, which hands it over in the cache: a compiler works on one
    core. What it does not hand over is compiled here."""
    with helper(f"from nsm.fused.passes import compile_part; compile_part({kind.__name__!r}, 'back')") as other:
        compile_part(kind.__name__, "there")
        if other is not None:
            other.wait()
    compile_part(kind.__name__)


LEAVE = "import os, threading; threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()"
"""A process that starts with this ends when nobody can write to it any more."""


@contextmanager
def helper(program: str) -> Iterator[subprocess.Popen[bytes] | None]:
    """Another process for a program, if there is a cache to leave something in, a core for it, and it can be started.

    It ends with the block, or with this process, however that ends. Ctrl-C is for this one alone.
    """
    if directory() is None or (os.cpu_count() or 1) < 2:
        yield None
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        other = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{LEAVE}\n{program}"], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
    except OSError:  # it may not be allowed
        yield None
        return
    with other:  # in the end what it reads is closed
        yield other


# Where the words of a call count from: nothing, its buffer, and what else it is told of. Then come the rooms, and for
# each job what it keeps and its gradients.
(
    NOTHING, BUFFER, INITIAL, FINAL, WEIGHTS, X, CELL_NOISE, PROGRAM_NOISE, OUT, D_OUT, D_X, D_FINAL, D_INITIAL,
    TARGETS, MASK, SUMS, OTHERS,
) = range(17)  # fmt: skip


class Job(NamedTuple):
    """What a lane does in its turn: a chunk, or a stretch of one."""

    lane: int
    planned: Planned
    extent: Extent
    again: bool
    """whether it goes on from where the stretch before it ended"""


class Outline(NamedTuple):
    """What decides what a call looks like, but for the addresses in it."""

    lengths: tuple[int, ...]
    slots: int
    spans: tuple[tuple[int, int], ...]
    """the stretches"""
    threads: int
    noisy: tuple[bool, bool]
    keeps: int
    input_gradient: bool
    apart: bool = False
    """whether every job has a room of its own, not only every lane"""
    held: bool = False
    """whether what a job keeps is somewhere else than in its room"""
    slopes: bool = False
    """whether there are gradients"""
    wave: int = 0
    """which WAVE jobs, of those that leave gradients; all of those that don't"""


class Template:
    """A call, as records in one buffer: those of the weights and of gradients, each job's, the chunks', its own. All
    words but for addresses are there, and of each address what it counts from: to make a call is one addition."""

    def __init__(self, k: Kernels, outline: Outline) -> None:
        jobs = self._jobs(k, outline)
        kept = [k.room(job.extent)[0].kept for job in jobs]
        some = slice(outline.wave * WAVE, (outline.wave + 1) * WAVE) if outline.slopes else slice(None)
        self.jobs, self.kept_at = jobs[some], np.cumsum([0, *kept])[:-1][some].tolist()
        """and where in the block of all that is kept each job's begins"""
        rooms = [k.room(job.extent) for job in self.jobs]
        places = range(len(self.jobs)) if outline.apart else [job.lane for job in self.jobs]
        self.needed = [0] * (1 + max(places))
        """how many numbers each room has"""
        self.lanes = 1 + max(job.lane for job in self.jobs)
        words: list[Array] = []
        blocks: list[Array] = []
        at, rest, count = 0, OTHERS + len(self.needed), len(self.jobs)

        def lay(form: Form, kept: int, used: int, inside: int = 0) -> int:
            """Records over two bases, what is kept `inside` numbers after the beginning of its."""
            nonlocal at
            start = at
            words.append(form.words + 4 * inside * (form.blocks == KEPT))
            blocks.append(np.array((NOTHING, kept, used))[form.blocks])
            at += len(form.words)
            return 8 * start

        weights = lay(k.weights, WEIGHTS, WEIGHTS)
        slopes = [lay(k.weights, rest + count + i, NOTHING) for i in range(count)] if outline.slopes else [0] * count
        rows: list[tuple[int, int]] = []
        self.chunks = []
        for i, (place, job, (room, form)) in enumerate(zip(places, self.jobs, rooms, strict=True)):
            used = OTHERS + place
            start = lay(form, rest + i, used) if outline.held else lay(form, used, used, room.used)
            needed = room.used + (0 if outline.held else room.kept)
            self.needed[place] = max(self.needed[place], needed)
            rows += [(job.lane, NOTHING), (0, BUFFER), (job.planned.address, NOTHING)]
            rows += [(start + begin, BUFFER) for begin in form.starts[:3]]
            rows += [(slopes[i], BUFFER if outline.slopes else NOTHING)]
            rows += [(0, FINAL if job.again else INITIAL), (0, FINAL)]
            self.chunks.append((place, job, room, form))
        sizes, scales, table = k.constants
        entries = recurrence.entries(k.tape.Work)
        call = Call(
            turn=0,
            lanes=self.lanes,
            chunks=8 * at,
            chunk_count=count,
            there=entries.there.address,
            back=entries.back.address,
            what=0,
            batch=len(outline.lengths),
            leaves=len(rooms[0][1].starts) - 2,
            read=k.states + k.leaves,
            clear=k.clear,
            sizes=sizes,
            scales=scales,
            table=table,
            weights=weights,
            x=0,
            cell_noise=0,
            program_noise=0,
        )
        based = {
            "chunks": BUFFER, "weights": BUFFER, "x": X, "cell_noise": CELL_NOISE, "program_noise": PROGRAM_NOISE,
            "out": OUT, "d_out": D_OUT, "d_x": D_X, "d_final": D_FINAL, "d_initial": D_INITIAL, "targets": TARGETS,
            "mask": MASK, "sums": SUMS,
        }  # fmt: skip
        rows += [(word, based.get(name, NOTHING)) for name, word in call._asdict().items()]
        self.head = at + recurrence.CHUNK * count
        """where the record of the call begins"""
        last = np.array(rows, np.int64)
        last[1 : recurrence.CHUNK * count : recurrence.CHUNK, 0] = 8 * self.head
        self.words, self.blocks = np.concatenate([*words, last[:, 0]]), np.concatenate([*blocks, last[:, 1]])
        self.bases = rest + count * (1 + outline.slopes)

    def _jobs(self, k: Kernels, outline: Outline) -> list[Job]:
        found: list[Job] = []
        for number, (start, stop) in enumerate(outline.spans):
            chunks = plans(outline.lengths, k.chunk, start, stop)
            lanes = min(outline.threads, -(-len(outline.lengths) // k.chunk))
            for i, planned in enumerate(chunks):
                p = planned.plan
                extent = Extent(
                    p.rows, len(p.samples), len(p.counts), outline.slots, outline.noisy, outline.keeps,
                    outline.input_gradient,
                )  # fmt: skip
                # There and back again: chunks are sorted by their length, and lanes are to be of about the same.
                turn = i % (2 * lanes)
                found.append(Job(min(turn, 2 * lanes - 1 - turn), planned, extent, number > 0))
        return found


ALL_STEPS = ((0, 1 << 62),)


class Run:
    """A batch in the hands of the kernels.

    Weights are a block that `pack` made; everything else comes and goes by its address, or 0 where there is none.
    Tables of states are arrays of their leaves' addresses.
    """

    def __init__(self, kernels: Kernels, given: Given, threads: int = 1, input_gradient: bool = False) -> None:
        self.kernels, self.given = kernels, given
        noisy = (given.cell_noise != 0, given.program_noise != 0)
        self.outline = Outline(given.lengths, given.slots, ALL_STEPS, threads, noisy, SOME, input_gradient)
        compile_for(kernels.tape.config)

    # --- there --------------------------------------------------------------------------------------------------------

    def forward(self, weights: int, out: int, final: Table, kept: int, trace: int = 0) -> list[Array]:
        """All chunks, in one stretch, or in several with a state kept where each begins. Returns a trace."""
        given, traced = self.given, Traced(self.kernels, self.given, trace)
        spans = self.kernels.spans(given.lengths, given.slots, kept_tapes(trace))
        outline, begin = self.outline._replace(keeps=kept_tapes(trace)), given.state
        if len(spans) == 1:
            self._call(THERE, weights, outline._replace(held=True), begin, final, kept, traced=traced, out=out)
            return traced.arrays
        outline = outline._replace(apart=bool(trace))
        for i, span in enumerate(spans):
            self._copy(begin, self._states(kept, i))
            self._call(THERE, weights, outline._replace(spans=(span,)), begin, final, traced=traced, out=out)
            begin = final
        return traced.arrays

    def glance(self, weights: int, out: int, final: Table, trace: int = 0) -> list[Array]:
        """All chunks, with no way back: each in short stretches, a lane's in the same room. Returns a trace."""
        k, given, traced = self.kernels, self.given, Traced(self.kernels, self.given, trace)
        if trace:
            outline = self.outline._replace(keeps=kept_tapes(trace), apart=True)
            outline = outline._replace(spans=k.spans(given.lengths, given.slots, outline.keeps))
        else:
            outline = self.outline._replace(keeps=STILL, spans=k.glances(given.lengths, given.slots))
        self._call(THERE, weights, outline, given.state, final, traced=traced, out=out)
        return traced.arrays

    # --- and back -----------------------------------------------------------------------------------------------------

    def backward(
        self,
        weights: int,
        kept: int,
        d_out: int,
        d_final: Table | None,
        d_x: int,
        d_initial: Table | None,
        collect: Callable[[list[Block]], None],
        trace: int = 0,
    ) -> None:
        """From the gradients of outputs and final state back to those of input and initial state, where these are asked
        for; blocks with those of the parameters go to `collect`, a few at a time."""
        k, given, ends = self.kernels, self.given, {"d_out": d_out, "d_x": d_x}
        spans = k.spans(given.lengths, given.slots, kept_tapes(trace))
        if len(spans) == 1:
            outline = self.outline._replace(keeps=kept_tapes(trace), held=True)
            ends |= {"d_final": _place(d_final), "d_initial": _place(d_initial)}
            self._waves(BACK, weights, outline, collect, None, None, kept, **ends)
            return
        # Where each stretch ends, the gradient of the state is where it began.
        leaves = [np.empty(size, np.float32) for size in self._leaf_sizes] if d_initial is None else []
        between = words([*map(address, leaves)]) if d_initial is None else d_initial
        self._copy(d_final, between)
        ends |= {"d_final": _place(between), "d_initial": _place(between)}

        def but_the_start(blocks: list[Block]) -> None:
            for block in blocks:  # only the first stretch begins with the learned state
                k.forget_start(block)
            collect(blocks)

        for i, span in reversed(list(enumerate(spans))):
            outline, begin = self.outline._replace(spans=(span,), keeps=kept_tapes(trace)), self._states(kept, i)
            self._waves(THERE | BACK, weights, outline, but_the_start if i else collect, begin, None, **ends)

    def learn(
        self,
        weights: int,
        targets: int,
        mask: int,
        loss: int,
        share: float,
        final: Table | None,
        collect: Callable[[list[Block]], None],
    ) -> float:
        """There, to a loss and back, chunk by chunk: what one leaves is near when it is needed. Returns the loss."""
        ends = {"targets": targets, "mask": mask, "loss": loss}
        what = THERE | LOSS | BACK
        return sum(self._waves(what, weights, self.outline, collect, self.given.state, final, share=share, **ends))

    def _waves(
        self,
        what: int,
        weights: int,
        outline: Outline,
        collect: Callable[[list[Block]], None],
        initial: Table | None,
        final: Table | None,
        kept: int = 0,
        **ends: Any,
    ) -> list[float]:
        k, losses = self.kernels, []
        (span,) = outline.spans
        count = len(plans(outline.lengths, k.chunk, *span))
        for wave in range(-(-count // WAVE)):
            blocks = [pool.borrow(k.weights_size) for _ in range(min(WAVE, count - wave * WAVE))]
            part = outline._replace(slopes=True, wave=wave)
            losses += self._call(what, weights, part, initial, final, kept, blocks, **ends)
            collect(blocks)
            for block in blocks:
                pool.give(block)
        return losses

    def _states(self, kept: int, i: int) -> Table:
        """The table of the state that is kept for stretch i."""
        leaves = [4 * size for size in self._leaf_sizes]
        start = kept + i * sum(leaves)
        return words([start + sum(leaves[:n]) for n in range(len(leaves))])

    @property
    def _leaf_sizes(self) -> list[int]:
        given = self.given
        return [math.prod(shape) for shape in self.kernels.state_shapes(given.batch, given.slots)]

    def _copy(self, source: Table | None, target: Words) -> None:
        """A state, or zeros, to where the leaves of another are."""
        for i, size in enumerate(self._leaf_sizes):
            if source is None:
                ctypes.memset(target[i], 0, 4 * size)
            else:
                ctypes.memmove(target[i], source[i], 4 * size)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(
        self,
        what: int,
        weights: int,
        outline: Outline,
        initial: Table | None,
        final: Table | None,
        kept: int = 0,
        gradients: Sequence[Block] = (),
        share: float = 0.0,
        loss: int = 0,
        traced: Traced | None = None,
        **ends: int,
    ) -> list[float]:
        """Run some chunks; returns their losses."""
        given, template = self.given, self.kernels.template(outline)
        rooms = [pool.borrow(size) for size in template.needed]
        buffer, sums = np.empty(len(template.words), np.int64), _sums(1 + len(template.jobs))(share)
        own = address(buffer)
        bases = [
            0, own, _place(initial), _place(final), weights, given.x, given.cell_noise, given.program_noise,
            *(ends.get(name, 0) for name in ENDS), ctypes.addressof(sums), *(room.address for room in rooms),
        ]  # fmt: skip
        bases += [kept + 4 * at if kept else 0 for at in template.kept_at]
        bases += [block.address for block in gradients]
        np.add(template.words, np.array(bases)[template.blocks], out=buffer)
        buffer[template.head + WHAT], buffer[template.head + WHICH_LOSS] = what, loss
        threads.run(recurrence.run, own + 8 * template.head, template.lanes)
        if traced is not None and traced.trace:
            for (place, job, room, form), at in zip(template.chunks, template.kept_at, strict=True):
                block = rooms[place].array
                held = _floats(kept + 4 * at, room.kept) if kept else block[room.used :]
                traced.add(Chunk(job, block, held, form))
        for taken in rooms:
            pool.give(taken)
        return sums[1:]


def _place(table: Table | None) -> int:
    """Where a table is, or 0."""
    return 0 if table is None else ctypes.addressof(table)


def _floats(place: int, size: int) -> Array:
    """The numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_float * size).from_address(place))


@cache
def _sums(size: int) -> type[ctypes.Array[ctypes.c_double]]:
    return ctypes.c_double * size


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

    def add(self, chunk: Chunk) -> None:
        """What happened in a chunk."""
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


ENDS = ("out", "d_out", "d_x", "d_final", "d_initial", "targets", "mask")
WHAT, WHICH_LOSS = Call._fields.index("what"), Call._fields.index("loss")
TAPES: dict[type, Any] = {NTM: NTMTape, LRUA: LRUATape, DNC: DNCTape}
