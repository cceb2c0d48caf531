"""The DNC's memory as a kernel, one sample and step at a time, with or without temporal links; see nsm.memories.dnc."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsm.fused import clock
from nsm.fused.algebra import copy, fill
from nsm.fused.cache import kernel
from nsm.fused.clock import lap
from nsm.fused.functions import sigmoid, softplus
from nsm.fused.lanes import fma, load, splat, spread, store, total
from nsm.fused.layout import XI, Array, Order, mask, padded
from nsm.fused.links import follow, follow_back, followed_back, link, link_back, relink
from nsm.fused.masked import masked_content, masked_content_back
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
from nsm.fused.usage import SCALE, allocate, allocate_back, usage_back
from nsm.fused.workspace import Room
from nsm.memories.dnc import DNCState

# What is kept of the write's activated interface, per row: β, 1/|k|, g_a, g_w, dβ/dξ, then erase. Before it comes the
# reads': dβ/dξ and free gates, R each, and from `strengths` on β and 1/|k|.
STRENGTH, KEY_INVERSE, ALLOCATE, WRITE, SLOPE, ERASE = range(6)


class DNCWork(NamedTuple):
    """Sizes and buffers of a DNC tape for a chunk, R read heads and one that writes."""

    batch: int
    slots: int
    slots_p: int
    width: int
    reads: int
    writes: int
    """1"""
    keep: int
    """steps in the ring"""
    apart: int
    """as an NTM's"""
    strengths: int
    writing: int
    kept: int
    linked: int
    """1 with temporal links"""
    masked: int
    """1 if content addressing is masked"""
    erasing: int
    """1 if slots that are freed are erased"""
    mask: Array
    """(N padded): 1 on slots, 0 on padding"""
    memory: Array
    """(the ring, B, M, N padded): before the first step of a stretch, then after every write"""
    kept_tapes: Array
    """(stretches, B, M, N padded): before the first step of each, or empty if there is but one"""
    inverse: Array
    """(B + rows, N padded): 1/|M(i)|, the initial ones first"""
    usage: Array
    """(B + rows, N padded)"""
    address: Array
    """(B + rows, R + 1, N padded): the reads', then the write's"""
    similarity: Array
    """(rows, R + 1, N padded): D"""
    content: Array
    """(rows, N padded): the write's w^c"""
    order: Order
    """(rows, N padded): φ, the slots from least to most used"""
    product: Array
    """(rows, N padded): per slot the product of the usages of all that are used less"""
    acts: Array
    """(rows, kept)"""
    links: Array
    """(the ring, B, N, N padded), as `memory`; like all that follows, empty without links"""
    kept_links: Array
    """(stretches, B, N, N padded)"""
    precedence: Array
    """(B + rows, N padded)"""
    found: Array
    """(rows, R, N padded): where the reads' content is"""
    followed: Array
    """(rows, 2R, N padded): where the last reads came from by the links, a line a head, then where they lead to"""
    modes: Array
    """(rows, R, 3): how much each head goes back, by content, ahead"""
    d_links: Array
    """(B, N, N padded)"""
    d_precedence: Array
    """(B, N padded)"""
    d_followed: Array
    """(2R, N padded)"""
    seen: Array
    """(rows, R + 1, 2, M padded): see `masked.py`; empty without masks, as is the next"""
    lengths: Array
    """(rows, R + 1, N padded)"""
    retention: Array
    """(rows, N padded): ψ, or empty if nothing is erased by it"""
    d_memory: Array
    """(B, M, N padded): the gradient handed from step to step"""
    d_usage: Array
    """(B, N padded)"""
    d_address: Array
    """(B, R + 1, N padded)"""
    scratch: Array
    """(R + 4, N padded), with masks 2R + 4"""


@kernel
def start(m):
    """What depends on the initial state alone."""
    for b in range(m.batch):
        norms(m, b, b)


@kernel
def forward(m, sizes, table, t, b, row, previous, xi, after, reads):
    """One step of one sample: usage, the write, then the reads on what was written. Reads go to `after`."""
    heads, n_p, width, source, tape = m.reads, m.slots_p, m.width, version(m, b, t, 0), version(m, b, t, 1)
    before, now = b if previous < 0 else m.batch + previous, m.batch + row
    x, wx = row * sizes.interface + table[0, XI], row * sizes.interface + table[1, XI]
    acts, line = row * m.kept, row * n_p
    mine, free = acts + m.writing, acts + heads
    addresses, earlier = now * (heads + 1) * n_p, before * (heads + 1) * n_p
    one = splat(np.float32(1.0))
    # Strengths and free gates of the reads lie side by side in ξ, so do strength and erase, and the two gates of the
    # write. A vector may also write what comes after, so they go in order.
    raw = x + heads * width
    for i in range(0, 2 * heads, 16):
        store(m.acts, acts + i, sigmoid(load(xi, raw + i)))
    for i in range(0, heads, 16):
        store(m.acts, acts + m.strengths + i, one + softplus(load(xi, raw + i)))
    store(m.acts, mine + STRENGTH, one + softplus(load(xi, wx + width)))
    store(m.acts, mine + ALLOCATE, sigmoid(load(xi, wx + 3 * width + 1)))
    for k in range(0, width + 1, 16):
        store(m.acts, mine + SLOPE + k, sigmoid(load(xi, wx + width + k)))
    lap(clock.ACTIVATE)

    # u = (u' + w' − u' w') Π_r (1 − f_r w_r'), of the addresses before.
    for i in range(0, n_p, 16):
        u, w = load(m.usage, before * n_p + i), load(m.address, earlier + heads * n_p + i)
        u, kept = fma(w, one - u, u), one
        for r in range(heads):
            kept = kept * fma(-load(m.address, earlier + r * n_p + i), spread(m.acts, free + r), one)
        store(m.usage, now * n_p + i, u * kept)
        if m.erasing:
            store(m.retention, line + i, kept)
    allocate(m, row, now)
    lap(clock.USAGE)

    # w = g_w (g_a a + (1 − g_a) c)
    look(m, source, before, row, xi, wx, 3 * width + 3, heads, 1, mine, m.content, line)
    lap(clock.CONTENT)
    g_a, g_w = m.acts[mine + ALLOCATE], m.acts[mine + WRITE]
    by_allocation, by_content = splat(g_w * g_a), splat(g_w * (np.float32(1.0) - g_a))
    address = addresses + heads * n_p
    for i in range(0, n_p, 16):
        a = splat(SCALE) * (one - load(m.usage, now * n_p + i)) * load(m.product, line + i)
        store(m.address, address + i, fma(by_allocation, a, by_content * load(m.content, line + i)))
    lap(clock.ADDRESS)
    write(m, row, xi, wx, source, tape)
    if not m.masked:
        norms(m, tape, now)
    lap(clock.WRITE)

    modes = heads * (width + 2)
    masks = modes + 3 * heads * m.linked
    if m.linked:
        link(m, b, t, row, before)
        look(m, tape, now, row, xi, x, masks, 0, heads, acts + m.strengths, m.found, line * heads)
        follow(m, b, t, row, xi, x + modes, earlier, addresses)
    else:
        look(m, tape, now, row, xi, x, masks, 0, heads, acts + m.strengths, m.address, addresses)
    lap(clock.CONTENT)
    for k in range(heads * width):
        after[reads + k] = np.float32(0.0)
    gather(m.address, addresses, n_p, m.memory, tape * width * n_p, n_p, after, reads, width, heads, width, n_p)
    lap(clock.READ)


@kernel
def look(m, tape, norm, row, xi, x, masks, first, heads, a, out, o):
    """Where the contents are that `heads` heads from number `first` on look for, keys at xi[x …], masks so far
    into ξ: to out[o …]."""
    line = (row * (m.reads + 1) + first) * m.slots_p
    if m.masked:
        masked_content(m, tape, row, xi, x, x + masks, first, heads, m.acts, a, line, out, o)
    else:
        content(m, tape, norm, xi, x, m.width, heads, m.acts, a, line, out, o)


@kernel
def write(m, row, xi, wx, source, target):
    """M = M' + w (v − M' e), from tape `source` to tape `target`; the interface of the write is at xi[wx …].

    Where what is freed is erased, M' is the tape before times ψ.
    """
    n_p, width = m.slots_p, m.width
    address = ((m.batch + row) * (m.reads + 1) + m.reads) * n_p
    add, erase = wx + 2 * width + 1, row * m.kept + m.writing + ERASE
    # Row by row, so that a new version of the tape is written from its first byte to its last.
    for k in range(width):
        v, e, old, new = spread(xi, add + k), spread(m.acts, erase + k), source * width + k, target * width + k
        for i in range(0, n_p, 16):
            x = load(m.memory, old * n_p + i)
            if m.erasing:
                x = x * load(m.retention, row * n_p + i)
            store(m.memory, new * n_p + i, fma(load(m.address, address + i), v - x * e, x))


@kernel
def rewrite(m, sizes, table, t, b, row, previous, xi):
    """What the step wrote once more, and how that changed the links."""
    write(m, row, xi, row * sizes.interface + table[1, XI], version(m, b, t, 0), version(m, b, t, 1))
    if m.linked:
        size = m.slots * m.slots_p
        if t % m.keep == 0:
            copy(m.kept_links, (t // m.keep * m.batch + b) * size, m.links, version(m, b, t, 0) * size, size)
        before = b if previous < 0 else m.batch + previous
        relink(m, version(m, b, t, 0) * size, version(m, b, t, 1) * size, row, before)


# --- and back ---------------------------------------------------------------------------------------------------------


@kernel
def write_back(m, b, row, tape, now, xi, wx, d_xi, dx):
    """From dM and the address' own dw (scratch[0 …]) to what was erased and added, the gates, content and allocation.

        M = M' + w (v − M' e)             dw += Σ_m dM (v − M' e),  dM' = dM (1 − w e)
                                          dv = Σ_i dM w,  de = −Σ_i dM M' w
        w = g_w (g_a a + (1 − g_a) c)     da = g_w g_a dw,  dc = g_w (1 − g_a) dw
                                          dg_w = Σ dw (g_a a + (1 − g_a) c),  dg_a = g_w Σ dw (a − c)

    dc takes the place of dw, da goes to the fourth line. Where what is freed is erased, M' is ψ times the tape before,
    and dψ = Σ_m dM' M'/ψ goes to the line behind those that `usage_back` works in.
    """
    n_p, width, line, freed = m.slots_p, m.width, row * m.slots_p, (m.reads + 3) * m.slots_p
    address, mine, acts = (now * (m.reads + 1) + m.reads) * n_p, b * width * n_p, row * m.kept + m.writing
    zero, one = splat(np.float32(0.0)), splat(np.float32(1.0))
    fill(m.scratch, freed, n_p, np.float32(0.0))
    for k in range(width):
        e, v, d_erase, d_add = m.acts[acts + ERASE + k], xi[wx + 2 * width + 1 + k], zero, zero
        for i in range(0, n_p, 16):
            place, w = mine + k * n_p + i, load(m.address, address + i)
            d, old, kept = load(m.d_memory, place), load(m.memory, (tape * width + k) * n_p + i), one
            if m.erasing:
                kept = load(m.retention, line + i)
            x = old * kept
            store(m.scratch, i, fma(d, splat(v) - x * splat(e), load(m.scratch, i)))
            dw = d * w
            d_add, d_erase = d_add + dw, fma(dw, x, d_erase)
            d_old = d - dw * splat(e)
            if m.erasing:
                store(m.scratch, freed + i, fma(d_old, old, load(m.scratch, freed + i)))
            store(m.d_memory, place, d_old * kept)
        d_xi[dx + width + 1 + k] = -total(d_erase) * e * (np.float32(1.0) - e)
        d_xi[dx + 2 * width + 1 + k] = total(d_add)

    g_a, g_w = m.acts[acts + ALLOCATE], m.acts[acts + WRITE]
    d_allocate, d_write = zero, zero
    for i in range(0, n_p, 16):
        a = splat(SCALE) * (one - load(m.usage, now * n_p + i)) * load(m.product, line + i)
        c, dw = load(m.content, line + i), load(m.scratch, i)
        d_allocate = fma(dw, a - c, d_allocate)
        d_write = fma(dw, fma(splat(g_a), a - c, c), d_write)
        store(m.scratch, i, splat(g_w * (np.float32(1.0) - g_a)) * dw)
        store(m.scratch, 3 * n_p + i, splat(g_w * g_a) * dw)
    d_xi[dx + 3 * width + 1] = total(d_allocate) * g_w * g_a * (np.float32(1.0) - g_a)
    d_xi[dx + 3 * width + 2] = total(d_write) * g_w * (np.float32(1.0) - g_w)


@kernel
def look_back(m, tape, norm, row, b, xi, x, masks, first, heads, a, w, w0, d_xi, dx, strengths):
    """`look` back, from dw in the first lines of scratch; masks and strengths begin so far into ξ."""
    line = (row * (m.reads + 1) + first) * m.slots_p
    if m.masked:
        masked_content_back(
            m, tape, row, b, xi, x, x + masks, first, heads, m.acts, a, line, w, w0, 0,
            d_xi, dx, dx + masks, dx + strengths,
        )  # fmt: skip
    else:
        content_back(
            m, tape, norm, b, xi, x, m.width, heads, m.acts, a, line, w, w0, 0, d_xi, dx, dx + strengths
        )  # fmt: skip


@kernel
def backward(m, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi):
    """One step back. d_read[reads …] is dr; d_memory, d_usage and d_address carry on; dξ goes to d_xi by sample."""
    heads, n_p, width = m.reads, m.slots_p, m.width
    before, now = b if previous < 0 else m.batch + previous, m.batch + row
    x, wx = row * sizes.interface + table[0, XI], row * sizes.interface + table[1, XI]
    dx, dwx = b * sizes.interface + table[0, XI], b * sizes.interface + table[1, XI]
    acts, modes = row * m.kept, heads * (width + 2)
    masks, strengths = modes + 3 * heads * m.linked, heads * width

    copy(m.d_address, b * (heads + 1) * n_p, m.scratch, 0, heads * n_p)
    tape, addresses, earlier = version(m, b, t, 1), now * (heads + 1) * n_p, before * (heads + 1) * n_p
    read_back(m, tape, b, heads, m.address, addresses, 0, d_read, reads)
    lap(clock.READ_BACK)
    a = acts + m.strengths
    if m.linked:
        follow_back(m, row, d_xi, dx + modes)
        found = row * heads * n_p
        look_back(m, tape, now, row, b, xi, x, masks, 0, heads, a, m.found, found, d_xi, dx, strengths)
    else:
        look_back(m, tape, now, row, b, xi, x, masks, 0, heads, a, m.address, addresses, d_xi, dx, strengths)
    for r in range(heads):
        d_xi[dx + strengths + r] *= m.acts[acts + r]
    lap(clock.CONTENT_BACK)

    copy(m.d_address, (b * (heads + 1) + heads) * n_p, m.scratch, 0, n_p)
    if m.linked:
        link_back(m, b, t, row, before, earlier)
    source = version(m, b, t, 0)
    write_back(m, b, row, source, now, xi, wx, d_xi, dwx)
    lap(clock.WRITE_BACK)
    a, mask = acts + m.writing, 3 * width + 3
    look_back(m, source, before, row, b, xi, wx, mask, heads, 1, a, m.content, row * n_p, d_xi, dwx, width)
    d_xi[dwx + width] *= m.acts[acts + m.writing + SLOPE]
    lap(clock.CONTENT_BACK)

    fill(m.scratch, 2 * n_p, n_p, np.float32(0.0))
    allocate_back(m, row, now, 3 * n_p, 2 * n_p)
    usage_back(m, b, row, before, 2 * n_p, d_xi, dx)
    if m.linked:
        followed_back(m, b, t)
    lap(clock.USAGE_BACK)


class DNCTape(TapeSide):
    """A DNC's."""

    State, Work = DNCState, DNCWork

    @property
    def counts(self) -> tuple[int, int]:
        return self.config.read_heads, 1

    def work(self, room: Room, batch: int, steps: int, rows: int, slots: int, keeps: int) -> DNCWork:
        n_p, m, reads = padded(slots), self.config.width, self.config.read_heads
        count, strengths = batch + rows, padded(2 * reads)
        linked, masked, erasing = int(self.config.links), int(self.config.masked), int(self.config.erase_freed)
        keep = stretch(steps, 1, 4 * (m + linked * slots) * n_p, keeps)
        writing = strengths + padded(reads) + reads
        kept = writing + SLOPE + padded(m + 1)
        return DNCWork(
            batch,
            slots,
            n_p,
            m,
            reads,
            1,
            keep,
            0 if keeps == STILL else batch,
            strengths,
            writing,
            kept,
            linked,
            masked,
            erasing,
            mask(slots, n_p),
            *tapes(room, batch, steps, 1, m * n_p, keep, keeps),
            room.keep(count * n_p),
            room.keep(count * n_p),
            room.keep(count * (reads + 1) * n_p),
            room.keep(rows * (reads + 1) * n_p),
            room.keep(rows * n_p),
            room.keep(rows * n_p),
            room.keep(rows * n_p),
            room.keep(rows * kept),
            *tapes(room, batch, steps, 1, linked * slots * n_p, keep, keeps),
            room.keep(linked * count * n_p),
            room.keep(linked * rows * reads * n_p),
            room.keep(linked * rows * 2 * reads * n_p),
            room.keep(linked * rows * reads * 3),
            room.use(linked * batch * slots * n_p),
            room.use(linked * batch * n_p),
            room.use(linked * 2 * reads * n_p),
            room.keep(masked * rows * (reads + 1) * 2 * padded(m)),
            room.keep(masked * rows * (reads + 1) * n_p),
            room.keep(erasing * rows * n_p),
            room.use(batch * m * n_p),
            room.use(batch * n_p),
            room.use(batch * (reads + 1) * n_p),
            room.use((reads + 4 + masked * reads) * n_p),
        )

    def leaves(self, work: DNCWork) -> list[Leaf]:
        one, reads, n = np.arange(1), work.reads, work.slots
        found = [
            tape_leaf(work),
            lines_leaf(work.usage, work.d_usage, 1, one),
            lines_leaf(work.address, work.d_address, reads + 1, np.arange(reads)),
            lines_leaf(work.address, work.d_address, reads + 1, one + reads),
        ]
        if work.linked:
            found.append(lines_leaf(work.precedence, work.d_precedence, 1, one))
            found.append(lines_leaf(work.links, work.d_links, n, np.arange(n), ring=1))
        return found

    def addresses(self, work: DNCWork, rows: int) -> tuple[Array, Array]:
        lines = versions(work.address, work.reads + 1, work)[work.batch : work.batch + rows, :, : work.slots]
        return lines[:, :-1], lines[:, -1:]

    def shapes(self, batch: int, slots: int) -> tuple[tuple[int, ...], ...]:
        c, linked = self.config, slots * self.config.links
        read, write = (batch, c.read_heads, slots), (batch, 1, slots)
        return (batch, slots, c.width), (batch, slots), read, write, (batch, linked), (batch, linked, linked)
