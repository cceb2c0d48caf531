"""A pass of the kernels over a batch, there and back: chunks of rows, lanes of chunks, one call for all of them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from nsm.fused import chunks, layout, threads
from nsm.fused.calls import WAVE, Job, Outline, template
from nsm.fused.chunks import BACK, LOSS, THERE, Call
from nsm.fused.compiling import compile_for
from nsm.fused.kernels import ALL_STEPS, WITH_TAPES, Kernels, kept_tapes
from nsm.fused.layout import Array, Words, padded
from nsm.fused.plans import plans
from nsm.fused.tape import SOME, STILL, traced_tapes
from nsm.fused.workspace import Block, Form, Laid, Table, address, pool, words


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
    """(T, B, choices, P), or none"""


class Pass:
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
        given, call = self.given, template(self.kernels, outline)
        rooms = [pool.borrow(size) for size in call.needed]
        buffer, sums = np.empty(len(call.words), np.int64), _sums(1 + len(call.jobs))(share)
        own = address(buffer)
        bases = [
            0, own, _place(initial), _place(final), weights, given.x, given.cell_noise, given.program_noise,
            *(ends.get(name, 0) for name in ENDS), ctypes.addressof(sums), *(room.address for room in rooms),
        ]  # fmt: skip
        bases += [kept + 4 * at if kept else 0 for at in call.kept_at]
        bases += [block.address for block in gradients]
        np.add(call.words, np.array(bases)[call.blocks], out=buffer)
        buffer[call.head + WHAT], buffer[call.head + WHICH_LOSS] = what, loss
        threads.run(chunks.run, own + 8 * call.head, call.lanes)
        if traced is not None and traced.trace:
            for (place, job, room, form), at in zip(call.chunks, call.kept_at, strict=True):
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
    """c_t, r_t, read and write addresses, then w^p if there are programs (of the heads, and each
    of state network and output layer if they are stored), ξ per head, and the tape if asked for.

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
            mix = rows_of(work.mix, rows, s.choices * stride).reshape(rows, s.choices, stride)[..., : s.programs]
            found += [mix[:, : s.heads], *(mix[:, choice] for choice in range(s.heads, s.choices))]
        found += [interface[:, xi : xi + length] for _, _, xi, length, _ in k.table]
        if self.trace == WITH_TAPES:
            found.append(traced_tapes(memory, steps, samples))
        return found


def rows_of(array: Array, rows: int, width: int) -> Array:
    """The first `rows` rows of a flat buffer, as a matrix."""
    return array[: rows * width].reshape(rows, width)


ENDS = ("out", "d_out", "d_x", "d_final", "d_initial", "targets", "mask")
WHAT, WHICH_LOSS = Call._fields.index("what"), Call._fields.index("loss")
