"""The DNC's memory as a kernel, one sample and step at a time, without temporal links; see nsm.memories.dnc."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsm.fused.algebra import copy, fill
from nsm.fused.buffers import Buffers
from nsm.fused.cache import kernel
from nsm.fused.functions import sigmoid, softplus
from nsm.fused.lanes import choose_smaller, fma, load, numbers, splat, spread, store, total
from nsm.fused.layout import XI, Array, padded, place_lines, place_tapes
from nsm.fused.tape import (
    content,
    content_back,
    final_tapes,
    gather,
    norms,
    read_back,
    tapes,
    traced_tapes,
    version,
    versions,
)
from nsm.memories.dnc import USAGE_EPSILON, DNCMemory, DNCState

LIFT, SCALE = np.float32(USAGE_EPSILON), np.float32(1 - USAGE_EPSILON)
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
    kept_tapes: int
    strengths: int
    writing: int
    kept: int
    mask: Array
    """(N padded): 1 on slots, 0 on padding"""
    memory: Array
    """(kept and ring, B, M, N padded)"""
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
    order: Array
    """(rows, N padded) integers: φ, the slots from least to most used"""
    product: Array
    """(rows, N padded): per slot the product of the usages of all that are used less"""
    acts: Array
    """(rows, kept)"""
    d_memory: Array
    """(B, M, N padded): the gradient handed from step to step"""
    d_usage: Array
    """(B, N padded)"""
    d_address: Array
    """(B, R + 1, N padded)"""
    scratch: Array
    """(R + 4, N padded)"""


@kernel
def start(m):
    """What depends on the initial state alone."""
    for b in range(m.batch):
        norms(m, b, b)


@kernel
def ranks(values, v, out, o, n_p):
    """Per slot, how many slots come before it: those that hold less, and of those that hold the same the ones before.

    N² comparisons, but sixteen at a time and none to mispredict.
    """
    one, zero = splat(np.float32(1.0)), splat(np.float32(0.0))
    for i in range(0, n_p, 16):
        x, r0, r1, r2, r3 = load(values, v + i), zero, zero, zero, zero
        for j in range(v, v + i, 4):
            r0 = choose_smaller(x, spread(values, j), r0, r0 + one)
            r1 = choose_smaller(x, spread(values, j + 1), r1, r1 + one)
            r2 = choose_smaller(x, spread(values, j + 2), r2, r2 + one)
            r3 = choose_smaller(x, spread(values, j + 3), r3, r3 + one)
        for j in range(16):
            y = spread(values, v + i + j)
            equal = choose_smaller(splat(np.float32(j)), numbers(), choose_smaller(x, y, zero, one), zero)
            r0 = r0 + choose_smaller(y, x, one, equal)
        for j in range(v + i + 16, v + n_p, 4):
            r0 = choose_smaller(spread(values, j), x, r0 + one, r0)
            r1 = choose_smaller(spread(values, j + 1), x, r1 + one, r1)
            r2 = choose_smaller(spread(values, j + 2), x, r2 + one, r2)
            r3 = choose_smaller(spread(values, j + 3), x, r3 + one, r3)
        store(out, o + i, (r0 + r1) + (r2 + r3))


@kernel
def allocate(m, row, now):
    """φ and the products Π_{i<j} u[φ_i] of the allocation, from the usage lifted to u = ε + (1 − ε) usage."""
    n, n_p, line = m.slots, m.slots_p, row * m.slots_p
    lifted, rank = 0, n_p
    for i in range(0, n_p, 16):
        # What is no slot comes after all that are.
        u = fma(load(m.usage, now * n_p + i), splat(SCALE), splat(LIFT))
        store(
            m.scratch, lifted + i, choose_smaller(splat(np.float32(0.5)), load(m.mask, i), u, splat(np.float32(1e30)))
        )
    ranks(m.scratch, lifted, m.scratch, rank, n_p)
    for i in range(n):  # so that a NaN, which has no rank, leaves no place empty
        m.order[line + i] = i
    for i in range(n):
        m.order[line + min(int(m.scratch[rank + i]), n - 1)] = i
    fill(m.product, line + n_p - 16, 16, np.float32(0.0))
    product = np.float32(1.0)
    for j in range(n):
        i = m.order[line + j]
        m.product[line + i] = product
        product *= m.scratch[lifted + i]


@kernel
def allocate_back(m, row, now, da, du):
    """From da (scratch[da …]) of the allocation to the usage: du (scratch[du …]).

    a_j = (1 − u_j) P_j,  P_j = Π_{i<j} u_i,  u = ε + (1 − ε) usage      in the order φ, which has no gradient

    u_j is in a_j, and as a factor in every later P_k: da_k/du_j = (1 − u_k) P_j Π_{j<i<k} u_i.
    With Q_j = Σ_{k>j} da_k (1 − u_k) Π_{j<i<k} u_i     du_j = P_j (Q_j − da_j)
    and from the last slot down, without a division     Q_{j−1} = da_j (1 − u_j) + u_j Q_j
    """
    line = row * m.slots_p
    q = np.float32(0.0)
    for j in range(m.slots - 1, -1, -1):
        i = m.order[line + j]
        u, d = m.usage[now * m.slots_p + i], m.scratch[da + i]
        m.scratch[du + i] = m.product[line + i] * (q - d) * SCALE
        q = d * (SCALE * (np.float32(1.0) - u)) + (u * SCALE + LIFT) * q


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

    # u = (u' + w' − u' w') Π_r (1 − f_r w_r'), of the addresses before.
    for i in range(0, n_p, 16):
        u, w = load(m.usage, before * n_p + i), load(m.address, earlier + heads * n_p + i)
        u = fma(w, one - u, u)
        for r in range(heads):
            u = u * fma(-load(m.address, earlier + r * n_p + i), spread(m.acts, free + r), one)
        store(m.usage, now * n_p + i, u)
    allocate(m, row, now)

    # w = g_w (g_a a + (1 − g_a) c)
    similarity = row * (heads + 1) * n_p
    content(m, source, before, xi, wx, 0, 1, m.acts, mine, similarity + heads * n_p, m.content, line)
    g_a, g_w = m.acts[mine + ALLOCATE], m.acts[mine + WRITE]
    by_allocation, by_content = splat(g_w * g_a), splat(g_w * (np.float32(1.0) - g_a))
    address = addresses + heads * n_p
    for i in range(0, n_p, 16):
        a = splat(SCALE) * (one - load(m.usage, now * n_p + i)) * load(m.product, line + i)
        store(m.address, address + i, fma(by_allocation, a, by_content * load(m.content, line + i)))
    write(m, row, xi, wx, source, tape)
    norms(m, tape, now)

    content(m, tape, now, xi, x, width, heads, m.acts, acts + m.strengths, similarity, m.address, addresses)
    for k in range(heads * width):
        after[reads + k] = np.float32(0.0)
    gather(m.address, addresses, n_p, m.memory, tape * width * n_p, n_p, after, reads, width, heads, width, n_p)


@kernel
def write(m, row, xi, wx, source, target):
    """M = M' + w (v − M' e), from tape `source` to tape `target`; the interface of the write is at xi[wx …]."""
    n_p, width = m.slots_p, m.width
    address = ((m.batch + row) * (m.reads + 1) + m.reads) * n_p
    add, erase = wx + 2 * width + 1, row * m.kept + m.writing + ERASE
    # Row by row, so that a new version of the tape is written from its first byte to its last.
    for k in range(width):
        v, e, old, new = spread(xi, add + k), spread(m.acts, erase + k), source * width + k, target * width + k
        for i in range(0, n_p, 16):
            x = load(m.memory, old * n_p + i)
            store(m.memory, new * n_p + i, fma(load(m.address, address + i), v - x * e, x))


@kernel
def rewrite(m, sizes, table, t, b, row, xi):
    """What the step wrote once more, unless it was kept."""
    if (t + 1) % m.keep != 0:
        wx = row * sizes.interface + table[1, XI]
        write(m, row, xi, wx, version(m, b, t, 0), version(m, b, t, 1))


@kernel
def write_back(m, b, row, tape, now, xi, wx, d_xi, dx):
    """From dM and the address' own dw (scratch[0 …]) to what was erased and added, the gates, content and allocation.

        M = M' + w (v − M' e)             dw += Σ_m dM (v − M' e),  dM' = dM (1 − w e)
                                          dv = Σ_i dM w,  de = −Σ_i dM M' w
        w = g_w (g_a a + (1 − g_a) c)     da = g_w g_a dw,  dc = g_w (1 − g_a) dw
                                          dg_w = Σ dw (g_a a + (1 − g_a) c),  dg_a = g_w Σ dw (a − c)

    dc takes the place of dw, da goes to the fourth line.
    """
    n_p, width, line = m.slots_p, m.width, row * m.slots_p
    address, mine, acts = (now * (m.reads + 1) + m.reads) * n_p, b * width * n_p, row * m.kept + m.writing
    zero, one = splat(np.float32(0.0)), splat(np.float32(1.0))
    for k in range(width):
        e, v, d_erase, d_add = m.acts[acts + ERASE + k], xi[wx + 2 * width + 1 + k], zero, zero
        for i in range(0, n_p, 16):
            place, w = mine + k * n_p + i, load(m.address, address + i)
            d, old = load(m.d_memory, place), load(m.memory, (tape * width + k) * n_p + i)
            store(m.scratch, i, fma(d, splat(v) - old * splat(e), load(m.scratch, i)))
            dw = d * w
            d_add, d_erase = d_add + dw, fma(dw, old, d_erase)
            store(m.d_memory, place, d - dw * splat(e))
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
def usage_back(m, b, row, before, du, d_xi, dx):
    """From du (d_usage, and from the allocation scratch[du …]) to the free gates, the usage and the addresses before.

        u = s ψ,  s = u' + w' − u' w'     ds = du ψ,  dψ = du s,  du' = ds (1 − w'),  dw' = ds (1 − u')
        ψ = Π_r (1 − f_r w_r')            df_r = −Σ t_r w_r',  dw_r' = −f_r t_r   with t_r = dψ Π_{q≠r} (1 − f_q w_q')

    The product without r is the one of the heads before r, a line each in scratch behind du, times that of those after.
    """
    n_p, heads, free = m.slots_p, m.reads, row * m.kept + m.reads
    earlier, carry, lines = before * (heads + 1) * n_p, b * (heads + 1) * n_p, du + n_p
    one = splat(np.float32(1.0))
    for i in range(0, n_p, 16):
        d = load(m.d_usage, b * n_p + i) + load(m.scratch, du + i)
        u, w = load(m.usage, before * n_p + i), load(m.address, earlier + heads * n_p + i)
        product = one
        for r in range(heads):
            store(m.scratch, lines + r * n_p + i, product)
            product = product * fma(-load(m.address, earlier + r * n_p + i), spread(m.acts, free + r), one)
        ds = d * product
        store(m.d_usage, b * n_p + i, ds * (one - w))
        store(m.d_address, carry + heads * n_p + i, ds * (one - u))
        product = d * fma(w, one - u, u)
        for r in range(heads - 1, -1, -1):
            f, w = spread(m.acts, free + r), load(m.address, earlier + r * n_p + i)
            t = product * load(m.scratch, lines + r * n_p + i)
            product = product * fma(-w, f, one)
            store(m.d_address, carry + r * n_p + i, -f * t)
            store(m.scratch, lines + r * n_p + i, t * w)
    for r in range(heads):
        f, sums = m.acts[free + r], splat(np.float32(0.0))
        for i in range(0, n_p, 16):
            sums = sums + load(m.scratch, lines + r * n_p + i)
        d_xi[dx + heads * (m.width + 1) + r] = -total(sums) * f * (np.float32(1.0) - f)


@kernel
def backward(m, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi):
    """One step back. d_read[reads …] is dr; d_memory, d_usage and d_address carry on; dξ goes to d_xi by sample."""
    heads, n_p, width = m.reads, m.slots_p, m.width
    before, now = b if previous < 0 else m.batch + previous, m.batch + row
    x, wx = row * sizes.interface + table[0, XI], row * sizes.interface + table[1, XI]
    dx, dwx = b * sizes.interface + table[0, XI], b * sizes.interface + table[1, XI]
    acts, similarity = row * m.kept, row * (heads + 1) * n_p
    strengths = heads * width

    copy(m.d_address, b * (heads + 1) * n_p, m.scratch, 0, heads * n_p)
    read_back(
        m, version(m, b, t, 1), now, b, xi, x, width, heads, m.acts, acts + m.strengths, similarity,
        m.address, now * (heads + 1) * n_p, 0, d_read, reads, d_xi, dx, dx + strengths,
    )  # fmt: skip
    for r in range(heads):
        d_xi[dx + strengths + r] *= m.acts[acts + r]

    copy(m.d_address, (b * (heads + 1) + heads) * n_p, m.scratch, 0, n_p)
    source = version(m, b, t, 0)
    write_back(m, b, row, source, now, xi, wx, d_xi, dwx)
    content_back(
        m, source, before, b, xi, wx, 0, 1, m.acts, acts + m.writing, similarity + heads * n_p,
        m.content, row * n_p, 0, d_xi, dwx, dwx + width,
    )  # fmt: skip
    d_xi[dwx + width] *= m.acts[acts + m.writing + SLOPE]

    fill(m.scratch, 2 * n_p, n_p, np.float32(0.0))
    allocate_back(m, row, now, 3 * n_p, 2 * n_p)
    usage_back(m, b, row, before, 2 * n_p, d_xi, dx)


class DNCTape:
    """The Python side of the kernel: buffers for a chunk, states in and out."""

    def __init__(self, memory: DNCMemory) -> None:
        if memory.config.links:
            raise ValueError("temporal links have no kernel")
        self.config = memory.config

    def work(self, buffers: Buffers, batch: int, steps: int, rows: int, slots: int, whole: bool) -> DNCWork:
        n_p, m, reads = padded(slots), self.config.width, self.config.read_heads
        count, strengths = batch + rows, padded(2 * reads)
        keep, kept_tapes, held = tapes(steps, 1, 4 * m * n_p, whole)
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
            kept_tapes,
            strengths,
            writing,
            kept,
            buffers.mask(slots, n_p),
            buffers.take("memory", held * batch * m * n_p),
            buffers.take("inverse", count * n_p),
            buffers.take("usage", count * n_p),
            buffers.take("address", count * (reads + 1) * n_p),
            buffers.take("similarity", rows * (reads + 1) * n_p),
            buffers.take("content", rows * n_p),
            buffers.take("order", rows * n_p).view(np.int32),
            buffers.take("product", rows * n_p),
            buffers.take("acts", rows * kept),
            buffers.take("d_memory", batch * m * n_p),
            buffers.take("d_usage", batch * n_p),
            buffers.take("d_address", batch * (reads + 1) * n_p),
            buffers.take("scratch", (reads + 4) * n_p),
        )

    def load(self, work: DNCWork, state: DNCState) -> None:
        """The initial state of the chunk's samples, (B, …) arrays, into the first versions."""
        self._place((work.memory, work.usage, work.address), work, state)

    def _place(self, arrays: tuple[Array, ...], work: DNCWork, state: DNCState) -> None:
        memory, usage, address = arrays
        place_tapes(state.memory, work.slots_p, memory)
        place_lines(state.usage.reshape(work.batch, 1, -1), np.arange(1), 1, work.slots_p, usage)
        reads = work.reads
        place_lines(state.read_addresses, np.arange(reads), reads + 1, work.slots_p, address)
        place_lines(state.write_address, np.array([reads]), reads + 1, work.slots_p, address)

    def _rest(self, usage: Array, address: Array, work: DNCWork, which: Any) -> tuple[Array, ...]:
        """All of a state but the tape."""
        lines = versions(address, work.reads + 1, work)[which, :, : work.slots]
        return (
            versions(usage, 1, work)[which, 0, : work.slots].copy(),
            np.ascontiguousarray(lines[:, :-1]),
            np.ascontiguousarray(lines[:, -1:]),
            np.zeros((work.batch, 0), np.float32),
            np.zeros((work.batch, 0, 0), np.float32),
        )

    def final(self, work: DNCWork, last: Array, lengths: Array) -> DNCState:
        """The state after each sample's `last` row, on the way there: on the way back the ring is used again."""
        return DNCState(final_tapes(work, lengths), *self._rest(work.usage, work.address, work, work.batch + last))

    def load_gradient(self, work: DNCWork, d_final: DNCState | None) -> None:
        """The gradient of the final state, where the backward pass begins."""
        arrays = (work.d_memory, work.d_usage, work.d_address)
        if d_final is not None:
            self._place(arrays, work, d_final)
            return
        for array in arrays:
            array[:] = 0

    def gradient(self, work: DNCWork) -> DNCState:
        """The gradient of the initial state, where the backward pass ended."""
        first = slice(work.batch)
        tapes = versions(work.d_memory, work.width, work)[first, :, : work.slots].transpose(0, 2, 1)
        return DNCState(np.ascontiguousarray(tapes), *self._rest(work.d_usage, work.d_address, work, first))

    def trace(self, work: DNCWork, steps: Array, owners: Array) -> tuple[Array, Array, Array]:
        """Per row of a pass that kept the whole: read addresses (R, N), the write address (1, N), the tape (N, M)."""
        after, n = slice(work.batch, work.batch + len(steps)), work.slots
        lines = versions(work.address, work.reads + 1, work)[after, :, :n]
        return lines[:, :-1], lines[:, -1:], traced_tapes(work, steps, owners)
