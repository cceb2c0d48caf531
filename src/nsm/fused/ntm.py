"""The NTM's memory as a kernel, one sample and step at a time; see nsm.memories.ntm.

A tape is stored as (M, N): the slots lie along the lanes, so that every operation on an address is a run of lanes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nsm.fused import clock
from nsm.fused.algebra import copy, dots, fill, multiply
from nsm.fused.cache import kernel
from nsm.fused.clock import lap
from nsm.fused.functions import exp, log, sigmoid, softplus
from nsm.fused.lanes import fma, load, splat, spread, store, total
from nsm.fused.layout import XI, Array, Words, mask, padded
from nsm.fused.tape import (
    STILL,
    Leaf,
    TapeSide,
    lines_leaf,
    norms,
    softmax,
    stretch,
    tape_leaf,
    tapes,
    version,
    versions,
)
from nsm.fused.workspace import Room
from nsm.memories.ntm import NTM, TINY, NTMState
from nsm.similarity import EPSILON

READ, WRITE = 0, 1
# What is kept of a head's activated interface, per row and head: β, g, γ, 1/|k|, dβ/dξ, dγ/dξ, then the shifts.
STRENGTH, GATE, GAMMA, KEY_INVERSE, STRENGTH_SLOPE, GAMMA_SLOPE, SHIFTS = range(7)


class NTMWork(NamedTuple):
    """Sizes and buffers of an NTM tape for a chunk."""

    batch: int
    slots: int
    slots_p: int
    width: int
    writes: int
    keep: int
    """steps in the ring"""
    apart: int
    """versions of all samples' tapes from one write to the next: B, or 0 where each is written in place"""
    shifts: int
    kept: int
    heads: Words
    """(heads, 3): kind, number among its kind, writes before it"""
    mask: Array
    """(N padded): 1 on slots, 0 on padding"""
    memory: Array
    """(the ring, B, M, N padded): before the first step of a stretch, then after every write"""
    kept_tapes: Array
    """(stretches, B, M, N padded): before the first step of each, or empty if there is but one"""
    inverse: Array
    """(B + rows·writes, N padded): 1/|M(i)| of every version: B initial ones, then one per row and write"""
    address: Array
    """(B + rows, heads, N padded)"""
    similarity: Array
    """(rows, heads, N padded): D"""
    content: Array
    """(rows, heads, N padded): w^c"""
    shifted: Array
    """(rows, heads, N padded): w̃"""
    acts: Array
    """(rows, heads, kept)"""
    erase: Array
    """(rows, writes, M padded): the activated erase vectors"""
    d_memory: Array
    """(B, M, N padded): the gradient handed from step to step"""
    d_address: Array
    """(B, heads, N padded)"""
    scratch: Array
    """(4, N padded + 2·(shifts + 16)), then two vectors of an interface's numbers"""


@kernel
def start(m):
    """What depends on the initial state alone."""
    for b in range(m.batch):
        norms(m, b, b)


@kernel
def address(m, xi, x, tape, norm, before, now, at):
    """A head's new address, from its interface at xi[x …], a tape with its norms, and its address `before`."""
    n, n_p, width, acts = m.slots, m.slots_p, m.width, at * m.kept
    squares = float(EPSILON)
    for k in range(width):
        squares += float(xi[x + k]) ** 2
    k_inverse = np.float32(1.0 / math.sqrt(squares))
    # Strength, gate, shifts and sharpening lie side by side in ξ: one vector does for all of them.
    # Its last lanes are whatever lies beyond, so it has a place of its own, which no line of slots ever reads.
    raw, values = x + width, 4 * (n_p + 2 * (m.shifts + 16))
    slopes = values + padded(m.shifts + 3)
    for i in range(0, m.shifts + 3, 16):
        v = load(xi, raw + i)
        store(m.scratch, values + i, softplus(v))
        store(m.scratch, slopes + i, sigmoid(v))
    beta, gamma = m.scratch[values], np.float32(1.0) + m.scratch[values + m.shifts + 2]
    g = m.scratch[slopes + 1]
    m.acts[acts + STRENGTH], m.acts[acts + GATE] = beta, g
    # The slope of softplus is the sigmoid.
    m.acts[acts + STRENGTH_SLOPE], m.acts[acts + GAMMA_SLOPE] = m.scratch[slopes], m.scratch[slopes + m.shifts + 2]
    m.acts[acts + GAMMA], m.acts[acts + KEY_INVERSE] = gamma, k_inverse
    top, whole = xi[raw + 2], np.float32(0.0)
    for s in range(m.shifts):
        top = max(top, xi[raw + 2 + s])
    for i in range(0, m.shifts, 16):
        store(m.scratch, values + i, exp(load(xi, raw + 2 + i) - splat(top)))
    for s in range(m.shifts):
        whole += m.scratch[values + s]
    for s in range(m.shifts):
        m.acts[acts + SHIFTS + s] = m.scratch[values + s] / whole

    lap(clock.ACTIVATE)
    # Content: softmax of β D.
    line = at * n_p
    fill(m.similarity, line, n_p, np.float32(0.0))
    multiply(xi, x, 0, m.memory, tape * width * n_p, n_p, m.similarity, line, n_p, 1, width, n_p)
    for i in range(0, n_p, 16):
        d = load(m.similarity, line + i) * splat(k_inverse) * load(m.inverse, norm * n_p + i)
        store(m.similarity, line + i, d)
        store(m.scratch, i, d * splat(beta))
    lap(clock.CONTENT)
    softmax(m.scratch, 0, m.mask, m.content, line, n_p)

    # Interpolation, into a buffer with a margin on both sides that closes the circle.
    reach = m.shifts // 2
    for i in range(0, n_p, 16):
        kept = splat(np.float32(1.0) - g) * load(m.address, before * n_p + i)
        store(m.scratch, reach + i, fma(splat(g), load(m.content, line + i), kept))
    for i in range(reach):
        m.scratch[reach - 1 - i] = m.scratch[reach + (n - 1 - i) % n]
        m.scratch[reach + n + i] = m.scratch[reach + i % n]
    # Shift: w̃(i) = Σ_s s w^g(i − (s − reach)).
    logs = n_p + 2 * (m.shifts + 16)
    for i in range(0, n_p, 16):
        w = splat(np.float32(0.0))
        for s in range(m.shifts):
            w = fma(spread(m.acts, acts + SHIFTS + s), load(m.scratch, 2 * reach - s + i), w)
        w = w * load(m.mask, i)
        store(m.shifted, line + i, w)
        store(m.scratch, logs + i, splat(gamma) * log(w + splat(np.float32(TINY))))
    softmax(m.scratch, logs, m.mask, m.address, now * n_p, n_p)
    lap(clock.ADDRESS)


@kernel
def forward(m, sizes, table, t, b, row, previous, xi, after, reads):
    """One step of one sample: its heads in order, each on the tape as the ones before left it. Reads go to `after`."""
    heads, n_p, width = sizes.heads, m.slots_p, m.width
    norm = b if previous < 0 else m.batch + (previous + 1) * m.writes - 1
    for h in range(heads):
        x, at, mine = row * sizes.interface + table[h, XI], row * heads + h, m.heads[3 * h + 1]
        before = (b if previous < 0 else m.batch + previous) * heads + h
        now = (m.batch + row) * heads + h
        tape = version(m, b, t, m.heads[3 * h + 2])
        address(m, xi, x, tape, norm, before, now, at)
        if m.heads[3 * h] == READ:
            target = reads + mine * width
            for k in range(width):
                after[target + k] = 0
            dots(m.address, now * n_p, m.memory, tape * width * n_p, n_p, after, target, width, n_p)
            lap(clock.READ)
            continue
        erase, kept = x + width + 3 + m.shifts, (row * m.writes + mine) * padded(width)
        for k in range(0, width, 16):
            store(m.erase, kept + k, sigmoid(load(xi, erase + k)))
        norm = m.batch + row * m.writes + mine
        write(m, xi, erase + width, kept, now, tape, version(m, b, t, mine + 1))
        norms(m, version(m, b, t, mine + 1), norm)
        lap(clock.WRITE)


@kernel
def write(m, xi, add, erase, address, source, target):
    """M = M' + w (v − M' e), from tape `source` to tape `target`."""
    n_p, width = m.slots_p, m.width
    # Row by row, so that a new version of the tape is written from its first byte to its last.
    for k in range(width):
        old, new = (source * width + k) * n_p, (target * width + k) * n_p
        e, v = spread(m.erase, erase + k), spread(xi, add + k)
        for i in range(0, n_p, 16):
            x = load(m.memory, old + i)
            store(m.memory, new + i, fma(load(m.address, address * n_p + i), v - x * e, x))


@kernel
def rewrite(m, sizes, table, t, b, row, previous, xi):
    """What the step's heads wrote once more."""
    for h in range(sizes.heads):
        mine = m.heads[3 * h + 1]
        if m.heads[3 * h] == WRITE:
            add = row * sizes.interface + table[h, XI] + 2 * m.width + 3 + m.shifts
            erase, address = (row * m.writes + mine) * padded(m.width), (m.batch + row) * sizes.heads + h
            write(m, xi, add, erase, address, version(m, b, t, mine), version(m, b, t, mine + 1))


@kernel
def address_back(m, xi, x, tape, norm, before, now, at, b, h, heads, dw, d_xi, dx):
    """From dw (scratch[dw …]) of a head's address to its interface, the tape and the address before.

    w = softmax(γ l), l = log(w̃ + tiny)      dz = w (dw − Σ w dw),  dγ = Σ dz l,  dw̃ = γ dz / (w̃ + tiny)
    w̃(i) = Σ_s s_s w^g(i − s)                ds_s = Σ dw̃(i) w^g(i − s),  dw^g(i) = Σ_s s_s dw̃(i + s)
    w^g = g w^c + (1 − g) w'                 dg = Σ dw^g (w^c − w'),  dw^c = g dw^g,  dw' = (1 − g) dw^g
    w^c = softmax(β D)                       dz = w^c (dw^c − Σ w^c dw^c),  dβ = Σ dz D,  dD = β dz
    D = k·M / (|k| |M|)                      dk = Σ_i dD (M/(|k||M|) − D k/|k|²)
                                             dM = dD (k/(|k||M|) − D M/|M|²)
    """
    n, n_p, width, acts, line = m.slots, m.slots_p, m.width, at * m.kept, at * m.slots_p
    beta, g, gamma, k_inverse = m.acts[acts], m.acts[acts + GATE], m.acts[acts + GAMMA], m.acts[acts + KEY_INVERSE]
    reach, stride = m.shifts // 2, n_p + 2 * (m.shifts + 16)
    zero, tiny = splat(np.float32(0.0)), splat(np.float32(TINY))

    sums = zero
    for i in range(0, n_p, 16):
        sums = fma(load(m.address, now * n_p + i), load(m.scratch, dw + i), sums)
    inner, sums = splat(total(sums)), zero
    # dw̃ goes to the second line of scratch, with a margin that closes the circle.
    wide = stride + reach
    for i in range(0, n_p, 16):
        w = load(m.shifted, line + i) + tiny
        dz = load(m.address, now * n_p + i) * (load(m.scratch, dw + i) - inner) * load(m.mask, i)
        sums = fma(dz, log(w), sums)
        store(m.scratch, wide + i, splat(gamma) * dz / w)
    d_gamma = total(sums)
    for i in range(reach):
        m.scratch[wide - 1 - i] = m.scratch[wide + (n - 1 - i) % n]
        m.scratch[wide + n + i] = m.scratch[wide + i % n]
    # w^g once more, to the third line.
    gated = 2 * stride + reach
    for i in range(0, n_p, 16):
        kept = splat(np.float32(1.0) - g) * load(m.address, before * n_p + i)
        store(m.scratch, gated + i, fma(splat(g), load(m.content, line + i), kept))
    for i in range(reach):
        m.scratch[gated - 1 - i] = m.scratch[gated + (n - 1 - i) % n]
        m.scratch[gated + n + i] = m.scratch[gated + i % n]

    # Shifts: ds, then through their softmax.
    place, inner_s = dx + width + 2, 0.0
    for s in range(m.shifts):
        sums = zero
        for i in range(0, n_p, 16):
            moved = load(m.scratch, gated + reach - s + i) * load(m.mask, i)
            sums = fma(load(m.scratch, wide + i) * load(m.mask, i), moved, sums)
        d_xi[place + s] = total(sums)
        inner_s += d_xi[place + s] * m.acts[acts + SHIFTS + s]
    for s in range(m.shifts):
        d_xi[place + s] = m.acts[acts + SHIFTS + s] * (d_xi[place + s] - inner_s)

    # dw^g, split between content and the address before; dw^c stays in the first line.
    d_gate, inner_c = zero, zero
    carry = (b * heads + h) * n_p
    for i in range(0, n_p, 16):
        d = zero
        for s in range(m.shifts):
            d = fma(spread(m.acts, acts + SHIFTS + s), load(m.scratch, wide + s - reach + i), d)
        d = d * load(m.mask, i)
        c = load(m.content, line + i)
        d_gate = fma(d, c - load(m.address, before * n_p + i), d_gate)
        store(m.d_address, carry + i, splat(np.float32(1.0) - g) * d)
        d = splat(g) * d
        inner_c = fma(c, d, inner_c)
        store(m.scratch, i, d)
    d_xi[dx + width + 1] = total(d_gate) * g * (np.float32(1.0) - g)
    d_xi[dx + width + 2 + m.shifts] = d_gamma * m.acts[acts + GAMMA_SLOPE]

    lap(clock.ADDRESS_BACK)
    inner, d_beta, along = splat(total(inner_c)), zero, zero
    for i in range(0, n_p, 16):
        dz = load(m.content, line + i) * (load(m.scratch, i) - inner)
        d = load(m.similarity, line + i)
        inverse = load(m.inverse, norm * n_p + i)
        d_beta = fma(dz, d, d_beta)
        dd = dz * splat(beta)
        along = fma(dd, d, along)
        store(m.scratch, i, dd * inverse * splat(k_inverse))
        store(m.scratch, wide + i, dd * d * inverse * inverse)
    d_xi[dx + width] = total(d_beta) * m.acts[acts + STRENGTH_SLOPE]
    lost = total(along) * k_inverse * k_inverse
    for k in range(width):
        key, sums = spread(xi, x + k), zero
        source, target = (tape * width + k) * n_p, (b * width + k) * n_p
        for i in range(0, n_p, 16):
            value, u = load(m.memory, source + i), load(m.scratch, i)
            sums = fma(u, value, sums)
            grown = fma(key, u, load(m.d_memory, target + i))
            store(m.d_memory, target + i, grown - value * load(m.scratch, wide + i))
        d_xi[dx + k] = total(sums) - xi[x + k] * lost
    lap(clock.CONTENT_BACK)


@kernel
def backward(m, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi):
    """The heads in reverse. d_read[reads …] is dr; d_memory and d_address carry on; dξ goes to d_xi by sample."""
    heads, n_p, width = sizes.heads, m.slots_p, m.width
    mine = b * width * n_p
    base = b if previous < 0 else m.batch + (previous + 1) * m.writes - 1
    dw = 3 * (n_p + 2 * (m.shifts + 16))
    zero = splat(np.float32(0.0))
    for h in range(heads - 1, -1, -1):
        x, at = row * sizes.interface + table[h, XI], row * heads + h
        dx = b * sizes.interface + table[h, XI]
        before = (b if previous < 0 else m.batch + previous) * heads + h
        now = (m.batch + row) * heads + h
        earlier = m.heads[3 * h + 2]
        norm = base if earlier == 0 else m.batch + row * m.writes + earlier - 1
        tape = version(m, b, t, earlier)
        copy(m.d_address, (b * heads + h) * n_p, m.scratch, dw, n_p)
        if m.heads[3 * h] == READ:
            # r = Σ w(i) M(i):  dw(i) = dr·M(i),  dM(i) = w(i) dr
            source = reads + m.heads[3 * h + 1] * width
            multiply(d_read, source, 0, m.memory, tape * width * n_p, n_p, m.scratch, dw, n_p, 1, width, n_p)
            for k in range(width):
                dr = spread(d_read, source + k)
                for i in range(0, n_p, 16):
                    place = mine + k * n_p + i
                    store(m.d_memory, place, fma(dr, load(m.address, now * n_p + i), load(m.d_memory, place)))
            lap(clock.READ_BACK)
        else:
            # M' = M + w (v − M e):  dw = Σ_m dM' (v − M e),  dv = Σ_i dM' w,  de = −Σ_i dM' M w,  dM = dM' (1 − w e)
            erase = width + 3 + m.shifts
            kept = (row * m.writes + m.heads[3 * h + 1]) * padded(width)
            for k in range(width):
                e, v = m.erase[kept + k], xi[x + erase + width + k]
                d_erase, d_add = zero, zero
                for i in range(0, n_p, 16):
                    place = mine + k * n_p + i
                    d, w = load(m.d_memory, place), load(m.address, now * n_p + i)
                    old = load(m.memory, (tape * width + k) * n_p + i)
                    store(m.scratch, dw + i, fma(d, splat(v) - old * splat(e), load(m.scratch, dw + i)))
                    dw_ = d * w
                    d_add, d_erase = d_add + dw_, fma(dw_, old, d_erase)
                    store(m.d_memory, place, d - dw_ * splat(e))
                d_xi[dx + erase + k] = -total(d_erase) * e * (np.float32(1.0) - e)
                d_xi[dx + erase + width + k] = total(d_add)
            lap(clock.WRITE_BACK)
        address_back(m, xi, x, tape, norm, before, now, at, b, h, heads, dw, d_xi, dx)


class NTMTape(TapeSide):
    """An NTM's."""

    State, Work = NTMState, NTMWork

    def __init__(self, config: NTM) -> None:
        super().__init__(config)
        counts = [0, 0]
        rows = []
        for head in config.heads:
            kind = READ if head.kind == "read" else WRITE
            rows.append((kind, counts[kind], counts[WRITE]))
            counts[kind] += 1
        self.heads = np.array(rows, np.int64)
        self.order = [np.flatnonzero(self.heads[:, 0] == kind) for kind in (READ, WRITE)]

    def work(self, room: Room, batch: int, steps: int, rows: int, slots: int, keeps: int) -> NTMWork:
        n_p, m, heads = padded(slots), self.config.width, len(self.heads)
        shifts, writes = 2 * self.config.shift_range + 1, self.config.write_heads
        keep = stretch(steps, writes, 4 * m * n_p, keeps)
        kept = SHIFTS + shifts
        return NTMWork(
            batch,
            slots,
            n_p,
            m,
            writes,
            keep,
            0 if keeps == STILL else batch,
            shifts,
            kept,
            self.heads.reshape(-1),
            mask(slots, n_p),
            *tapes(room, batch, steps, writes, m * n_p, keep, keeps),
            room.keep((batch + rows * writes) * n_p),
            room.keep((batch + rows) * heads * n_p),
            room.keep(rows * heads * n_p),
            room.keep(rows * heads * n_p),
            room.keep(rows * heads * n_p),
            room.keep(rows * heads * kept),
            room.keep(rows * writes * padded(m)),
            room.use(batch * m * n_p),
            room.use(batch * heads * n_p),
            room.use(4 * (n_p + 2 * (shifts + 16)) + 2 * padded(shifts + 3)),
        )

    def leaves(self, work: NTMWork) -> list[Leaf]:
        heads = len(self.heads)
        return [tape_leaf(work), *(lines_leaf(work.address, work.d_address, heads, lines) for lines in self.order)]

    def addresses(self, work: NTMWork, rows: int) -> tuple[Array, Array]:
        lines = versions(work.address, len(self.heads), work)[work.batch : work.batch + rows, :, : work.slots]
        return lines[:, self.order[0]], lines[:, self.order[1]]

    def shapes(self, batch: int, slots: int) -> tuple[tuple[int, ...], ...]:
        c = self.config
        return (batch, slots, c.width), (batch, c.read_heads, slots), (batch, c.write_heads, slots)
