"""The kernels of a machine, which has its weights elsewhere: sizes, packing, the room of a chunk, stretches of time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from nsm.description import Description, parse
from nsm.fused import attention, layout, packing, recurrence, threads
from nsm.fused.chunks import Plan
from nsm.fused.dnc import DNCTape
from nsm.fused.layout import padded
from nsm.fused.lrua import LRUATape
from nsm.fused.ntm import NTMTape
from nsm.fused.plans import Extent, plans
from nsm.fused.tape import ALL, SOME, STILL
from nsm.fused.workspace import Block, Form, Room, Span, Table, address, span_of, words
from nsm.memories import DNC, LRUA, NTM

LIMIT = 512 << 20
"""A pass that would keep more bytes than this keeps states only, and is made again, a stretch at a time, on its way
back."""
FORGOTTEN = 1 << 19
"""Without a way back, a stretch of a chunk leaves about this many bytes, and the next one writes over them."""
PACKED = 4
"""So many blocks of packed weights are held for passes without a way back."""
LARGE = 1 << 17
"""Weights are packed, and gradients unpacked, on several threads if they are more numbers than this."""
WITH_ADDRESSES, WITH_TAPES = 1, 2
"""What a trace may be asked for; 0 is none."""
ALL_STEPS = ((0, 1 << 62),)
TAPES: dict[type, Any] = {NTM: NTMTape, LRUA: LRUATape, DNC: DNCTape}


def kept_tapes(trace: int) -> int:
    """How many tapes a pass keeps that is to tell its trace."""
    return ALL if trace == WITH_TAPES else SOME


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
        self.chunk = 4 if 4 * (s.row * s.raw_gates + s.size * s.raw) < 2 << 20 else 8
        self.head_masks = np.zeros(s.interface, np.float32)
        for _, _, xi, length, _ in self.table:
            self.head_masks[xi : xi + length] = 1
        self._rooms: dict[Extent, tuple[Room, Form]] = {}
        self.templates: dict[Any, Any] = {}
        """the calls that were made of it, by their outlines"""
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
        threads.run(packing.pack, ctypes.addressof(call), count if self.weights_size > LARGE else 1)
        packing.finish.ctypes(ctypes.addressof(call))

    def unpack(self, blocks: Sequence[Block], where: Table, fresh: bool, count: int = 1, start: bool = False) -> None:
        """The gradients in these blocks, one after another, to those at these addresses: in their place, or added; if
        asked, those of a learned initial state as well."""
        places, filled = self._places["with_start" if start else "learned"], words([block.address for block in blocks])
        call = words([0, *places, *span_of(where), *span_of(filled), int(fresh), *[0] * 5])
        threads.run(packing.unpack, ctypes.addressof(call), count if len(blocks) * self.weights_size > LARGE else 1)

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
        gates, d_gates = room.keep(rows * s.gates), room.use(rows * s.gates)
        outputs, d_outputs = room.use(rows * s.outputs_p), room.use(rows * s.outputs_p)
        mixes = rows * s.choices * padded(s.programs)
        # What one network makes is not mixed: it is there already.
        stores_state, stores_output = s.state_choice >= 0, s.output_choice >= 0
        work = recurrence.Work(
            noise=room.use(rows * s.size_p * extent.noisy[0]),
            gumbel=room.use(rows * s.choices * s.programs * extent.noisy[1]),
            probabilities=room.keep(mixes * (s.attention == layout.GUMBEL_PROBABILITIES)),
            inputs=room.keep(rows * s.inputs_p),
            before=room.keep(rows * d),
            after=room.keep(rows * d),
            raw_gates=room.keep(rows * s.raw_gates) if stores_state else gates,
            gates=gates,
            cells=room.keep((batch + rows) * s.size_p),
            raw=room.keep(rows * s.raw),
            mix=room.keep(mixes),
            soft=room.keep(mixes),
            kept=room.keep(rows * s.choices * (attention.SIMILARITY + s.programs)),
            query=room.use(s.keys),
            scratch=room.use(32),
            interface=room.keep(rows * s.interface),
            raw_outputs=room.keep(rows * s.raw_outputs) if stores_output else outputs,
            outputs=outputs,
            mask=layout.mask(s.size, s.size_p),
            head_masks=self.head_masks,
            hats=room.keep(rows * s.gates * normed),
            cell_hats=room.keep(rows * s.size_p * normed),
            shown=room.keep(rows * s.size_p * normed),
            scales=room.keep(rows * 5 * normed),
            interface_hats=room.keep(rows * s.interface * headed),
            interface_scales=room.keep(rows * heads * headed),
            d_outputs=d_outputs,
            d_raw_outputs=room.use(rows * s.raw_outputs) if stores_output else d_outputs,
            d_after=room.use(rows * d),
            d_raw_gates=room.use(rows * s.raw_gates) if stores_state else d_gates,
            d_gates=d_gates,
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


def _spans(steps: int, length: int) -> tuple[tuple[int, int], ...]:
    if length >= steps:
        return ALL_STEPS
    return tuple((start, start + length) for start in range(0, steps, length))


@lru_cache(maxsize=64)
def kernels(described: str, inputs: int, outputs: int) -> Kernels:
    """The kernels for a description. Nothing is compiled before they run: who traces a graph asks for sizes only."""
    return Kernels(parse(described), inputs, outputs)
