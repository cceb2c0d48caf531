"""The LRUA memory as a kernel, one sample and step at a time; see nsm.memories.lrua."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsm.fused import clock
from nsm.fused.algebra import accumulate, copy, fill, multiply
from nsm.fused.cache import kernel
from nsm.fused.clock import lap
from nsm.fused.functions import sigmoid
from nsm.fused.lanes import fma, load, splat, spread, store, total
from nsm.fused.layout import LENGTH_P, XI, Array, mask, padded
from nsm.fused.tape import (
    STILL,
    Leaf,
    TapeSide,
    content,
    content_back,
    gather,
    lines_leaf,
    norms,
    read_back,
    stretch,
    tape_leaf,
    tapes,
    version,
    versions,
)
from nsm.fused.workspace import Room
from nsm.memories.lrua import LRUAState
from nsm.memories.memory import RESOLUTION

STEPS = np.float32(1 / RESOLUTION)


class LRUAWork(NamedTuple):
    """Sizes and buffers of an LRUA tape for a chunk, R read and W write heads. A step writes once, for all of them.

    What is kept of a row's interface: strengths and 1/|k| of the reads, gates of the writes, the emptied slot.
    """

    batch: int
    slots: int
    slots_p: int
    width: int
    reads: int
    heads: int
    """W"""
    writes: int
    """1"""
    keep: int
    """steps in the ring"""
    apart: int
    """as an NTM's"""
    least: int
    """how many slots count as least used, N at most"""
    write_first: int
    kept: int
    decay: float
    strength: float
    mask: Array
    """(N padded): 1 on slots, 0 on padding"""
    memory: Array
    """(the ring, B, M, N padded): before the first step of a stretch, then after every write"""
    kept_tapes: Array
    """(stretches, B, M, N padded): before the first step of each, or empty if there is but one"""
    inverse: Array
    """(B + rows, N padded): 1/|M(i)|, the initial ones first"""
    usage: Array
    """(B + rows, N padded): w_u"""
    address: Array
    """(B + rows, R, N padded): w_r"""
    written: Array
    """(rows, W, N padded): w_w"""
    away: Array
    """(rows, N padded): what a gate decides on, the mean of w_r before less the least used slots"""
    similarity: Array
    """(rows, R, N padded): D"""
    acts: Array
    """(rows, kept)"""
    d_memory: Array
    """(B, M, N padded): the gradient handed from step to step"""
    d_usage: Array
    """(B, N padded)"""
    d_address: Array
    """(B, R, N padded)"""
    scratch: Array
    """(R + W + 2, N padded), and no less than 2·least + N padded"""


@kernel
def start(m):
    """What depends on the initial state alone."""
    for b in range(m.batch):
        norms(m, b, b)


@kernel
def least_used(m, usage, hot):
    """The `least` least used slots of usage[usage …], equals by position: 1 there in scratch[hot …]; returns the first.

    Usage is compared at its resolution. The slots found so far stand in order in scratch, values, then positions: one
    that comes later has to be smaller than the last of them to get in, and stays behind its equals.
    """
    count, held = m.least, 0
    fill(m.scratch, hot, m.slots_p, np.float32(0.0))
    for i in range(m.slots):
        u = np.rint(m.usage[usage + i] * STEPS)
        if u != u:  # what is no number comes last
            u = np.float32(np.inf)
        if held == count and not u < m.scratch[count - 1]:
            continue
        place = held if held < count else count - 1
        held = min(held + 1, count)
        while place > 0 and u < m.scratch[place - 1]:
            m.scratch[place] = m.scratch[place - 1]
            m.scratch[count + place] = m.scratch[count + place - 1]
            place -= 1
        m.scratch[place], m.scratch[count + place] = u, np.float32(i)
    first = int(m.scratch[count])
    for j in range(count):
        m.scratch[hot + int(m.scratch[count + j])] = np.float32(1.0)
    return first


@kernel
def forward(m, sizes, table, t, b, row, previous, xi, after, reads):
    """One step of one sample: all write heads at once, all read heads before or after. Reads go to `after`."""
    n_p, width = m.slots_p, m.width
    before, now = b if previous < 0 else m.batch + previous, m.batch + row
    add, add_stride = row * sizes.interface + table[m.reads, XI], table[m.reads, LENGTH_P]
    acts, written = row * m.kept, row * m.heads * n_p
    gates = acts + 2 * m.reads

    # w_w = g mean_r(w_r) + (1 − g) hot = hot + g away, of the step before.
    hot = 2 * m.least
    emptied = least_used(m, before * n_p, hot)
    lap(clock.USAGE)
    share = splat(np.float32(1.0) / np.float32(m.reads))
    for i in range(0, n_p, 16):
        mean = splat(np.float32(0.0))
        for r in range(m.reads):
            mean = mean + load(m.address, (before * m.reads + r) * n_p + i)
        store(m.away, row * n_p + i, mean * share - load(m.scratch, hot + i))
    for h in range(m.heads):
        store(m.acts, gates + h, sigmoid(load(xi, add + h * add_stride + width)))
        g = spread(m.acts, gates + h)
        for i in range(0, n_p, 16):
            store(m.written, written + h * n_p + i, fma(g, load(m.away, row * n_p + i), load(m.scratch, hot + i)))
    # Last, as a vector of gates also writes what comes after.
    m.acts[gates + m.heads] = np.float32(emptied)
    lap(clock.ADDRESS)

    source, target, lines = version(m, b, t, 0), version(m, b, t, 1), now * m.reads * n_p
    if not m.write_first:
        read(m, sizes, table, source, before, row, xi, lines, after, reads)
    write(m, sizes, table, row, xi, source, target)
    norms(m, target, now)
    lap(clock.WRITE)
    if m.write_first:
        read(m, sizes, table, target, now, row, xi, lines, after, reads)

    for i in range(0, n_p, 16):
        used = splat(np.float32(m.decay)) * load(m.usage, before * n_p + i)
        for r in range(m.reads):
            used = used + load(m.address, lines + r * n_p + i)
        for h in range(m.heads):
            used = used + load(m.written, written + h * n_p + i)
        store(m.usage, now * n_p + i, used)
    lap(clock.USAGE)


@kernel
def read(m, sizes, table, tape, norm, row, xi, lines, after, reads):
    """All read heads on a tape with its norms, line `norm` of `inverse`: where to address[lines …], what to `after`."""
    n_p, width, acts = m.slots_p, m.width, row * m.kept
    x, stride = row * sizes.interface + table[0, XI], table[0, LENGTH_P]
    for r in range(m.reads):
        m.acts[acts + r] = np.float32(m.strength)
    content(m, tape, norm, xi, x, stride, m.reads, m.acts, acts, row * m.reads * n_p, m.address, lines)
    lap(clock.CONTENT)
    for k in range(m.reads * width):
        after[reads + k] = np.float32(0.0)
    gather(m.address, lines, n_p, m.memory, tape * width * n_p, n_p, after, reads, width, m.reads, width, n_p)
    lap(clock.READ)


@kernel
def write(m, sizes, table, row, xi, source, target):
    """M = M' without the emptied slot + Σ_h w_h a_h, from tape `source` to tape `target`."""
    n_p, width = m.slots_p, m.width
    add, stride = row * sizes.interface + table[m.reads, XI], table[m.reads, LENGTH_P]
    written, emptied = row * m.heads * n_p, int(m.acts[row * m.kept + 2 * m.reads + m.heads])
    fill(m.scratch, 0, n_p, np.float32(1.0))
    m.scratch[emptied] = np.float32(0.0)
    # Row by row, so that a new version of the tape is written from its first byte to its last.
    for k in range(width):
        a, old, new = spread(xi, add + k), (source * width + k) * n_p, (target * width + k) * n_p
        for i in range(0, n_p, 16):
            kept = load(m.memory, old + i) * load(m.scratch, i)
            store(m.memory, new + i, fma(load(m.written, written + i), a, kept))
    if m.heads > 1:
        others = add + stride, stride, m.written, written + n_p, n_p
        accumulate(xi, *others, m.memory, target * width * n_p, n_p, m.heads - 1, width, n_p)


@kernel
def rewrite(m, sizes, table, t, b, row, previous, xi):
    """What the step wrote once more."""
    write(m, sizes, table, row, xi, version(m, b, t, 0), version(m, b, t, 1))


@kernel
def write_back(m, b, row, xi, add, stride, lines, d_xi, dx):
    """From dM and du to the gates, what was added, and the addresses before; scratch[lines …] has room for W + 1.

        M = M' keep + Σ_h w_h a_h       dw_h = du + Σ_m dM a_h,  da_h = Σ_i dM w_h,  dM' = dM keep
        w_h = hot + g_h (mean − hot)    dg_h = Σ_i dw_h (mean − hot),  dmean = Σ_h g_h dw_h
        mean = Σ_r w_r' / R             dw_r' = dmean / R

    Which slots are the least used has no gradient.
    """
    n_p, width, mine = m.slots_p, m.width, b * m.width * m.slots_p
    gates, written = row * m.kept + 2 * m.reads, row * m.heads * n_p
    share, sums = splat(np.float32(1.0) / np.float32(m.reads)), lines + m.heads * n_p
    for h in range(m.heads):
        copy(m.d_usage, b * n_p, m.scratch, lines + h * n_p, n_p)
    multiply(xi, add, stride, m.d_memory, mine, n_p, m.scratch, lines, n_p, m.heads, width, n_p)
    gather(m.written, written, n_p, m.d_memory, mine, n_p, d_xi, dx, stride, m.heads, width, n_p)
    emptied = int(m.acts[gates + m.heads])
    for k in range(width):
        m.d_memory[mine + k * n_p + emptied] = np.float32(0.0)

    fill(m.scratch, sums, n_p, np.float32(0.0))
    for h in range(m.heads):
        g, d_gate = m.acts[gates + h], splat(np.float32(0.0))
        for i in range(0, n_p, 16):
            dw = load(m.scratch, lines + h * n_p + i)
            d_gate = fma(dw, load(m.away, row * n_p + i), d_gate)
            store(m.scratch, sums + i, fma(splat(g), dw, load(m.scratch, sums + i)))
        d_xi[dx + h * stride + width] = total(d_gate) * g * (np.float32(1.0) - g)
    for i in range(0, n_p, 16):
        d = load(m.scratch, sums + i) * share
        for r in range(m.reads):
            store(m.d_address, (b * m.reads + r) * n_p + i, d)
    lap(clock.WRITE_BACK)


@kernel
def backward(m, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi):
    """One step back. d_read[reads …] is dr; d_memory, d_usage and d_address carry on; dξ goes to d_xi by sample.

    u = γ u' + Σ_r w_r + Σ_h w_h     dw_r += du,  dw_h += du,  du' = γ du
    """
    n_p = m.slots_p
    before, now = b if previous < 0 else m.batch + previous, m.batch + row
    x, stride = row * sizes.interface + table[0, XI], table[0, LENGTH_P]
    add, add_stride = row * sizes.interface + table[m.reads, XI], table[m.reads, LENGTH_P]
    dx, d_add = b * sizes.interface + table[0, XI], b * sizes.interface + table[m.reads, XI]
    acts, line, lines = row * m.kept, row * m.reads * n_p, now * m.reads * n_p

    # dw_r: what later steps want of w_r, through u too.
    for r in range(m.reads):
        for i in range(0, n_p, 16):
            d = load(m.d_address, (b * m.reads + r) * n_p + i)
            store(m.scratch, r * n_p + i, d + load(m.d_usage, b * n_p + i))
    spare = (m.reads + 1) * n_p
    if not m.write_first:
        write_back(m, b, row, xi, add, add_stride, spare, d_xi, d_add)
    tape, norm = version(m, b, t, m.write_first), now if m.write_first else before
    read_back(m, tape, b, m.reads, m.address, lines, 0, d_read, reads)
    lap(clock.READ_BACK)
    content_back(m, tape, norm, b, xi, x, stride, m.reads, m.acts, acts, line, m.address, lines, 0, d_xi, dx, -1)
    lap(clock.CONTENT_BACK)
    if m.write_first:
        write_back(m, b, row, xi, add, add_stride, spare, d_xi, d_add)
    for i in range(0, n_p, 16):
        store(m.d_usage, b * n_p + i, splat(np.float32(m.decay)) * load(m.d_usage, b * n_p + i))


class LRUATape(TapeSide):
    """An LRUA's."""

    State, Work = LRUAState, LRUAWork

    def work(self, room: Room, batch: int, steps: int, rows: int, slots: int, keeps: int) -> LRUAWork:
        n_p, m, reads, writes = padded(slots), self.config.width, self.config.read_heads, self.config.write_heads
        least, count = min(self.config.least_used or reads, slots), batch + rows
        keep = stretch(steps, 1, 4 * m * n_p, keeps)
        kept = 2 * reads + writes + 16
        return LRUAWork(
            batch,
            slots,
            n_p,
            m,
            reads,
            writes,
            1,
            keep,
            0 if keeps == STILL else batch,
            least,
            int(self.config.order == "write-first"),
            kept,
            self.config.decay,
            self.config.strength,
            mask(slots, n_p),
            *tapes(room, batch, steps, 1, m * n_p, keep, keeps),
            room.keep(count * n_p),
            room.keep(count * n_p),
            room.keep(count * reads * n_p),
            room.keep(rows * writes * n_p),
            room.keep(rows * n_p),
            room.keep(rows * reads * n_p),
            room.keep(rows * kept),
            room.use(batch * m * n_p),
            room.use(batch * n_p),
            room.use(batch * reads * n_p),
            room.use(max((reads + writes + 2) * n_p, 2 * least + n_p)),
        )

    def leaves(self, work: LRUAWork) -> list[Leaf]:
        return [
            tape_leaf(work),
            lines_leaf(work.usage, work.d_usage, 1, np.arange(1)),
            lines_leaf(work.address, work.d_address, work.reads, np.arange(work.reads)),
        ]

    def addresses(self, work: LRUAWork, rows: int) -> tuple[Array, Array]:
        after, n = slice(work.batch, work.batch + rows), work.slots
        written = versions(work.written, work.heads, work)[:rows, :, :n]
        return versions(work.address, work.reads, work)[after, :, :n], written

    def shapes(self, batch: int, slots: int) -> tuple[tuple[int, ...], ...]:
        return (batch, slots, self.config.width), (batch, slots), (batch, self.config.read_heads, slots)
