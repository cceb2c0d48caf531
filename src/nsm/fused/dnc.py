"""The DNC's memory as a kernel, one sample and step at a time, with or without temporal links; see nsm.memories.dnc."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nsm.fused import clock
from nsm.fused.algebra import accumulate, copy, fill, multiply
from nsm.fused.cache import kernel
from nsm.fused.clock import lap
from nsm.fused.functions import sigmoid, softplus
from nsm.fused.lanes import choose_smaller, fma, load, numbers, rounded, splat, spread, store, total
from nsm.fused.layout import XI, Array, Order, mask, padded
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
from nsm.memories.dnc import USAGE_EPSILON, DNCState
from nsm.memories.memory import RESOLUTION

LIFT, SCALE = np.float32(USAGE_EPSILON), np.float32(1 - USAGE_EPSILON)
STEPS = np.float32(1 / RESOLUTION)
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
    """φ and the products Π_{i<j} u[φ_i] of the allocation, from the usage lifted to u = ε + (1 − ε) usage.

    φ is that of the usage rounded to its resolution.
    """
    n, n_p, line = m.slots, m.slots_p, row * m.slots_p
    lifted, rank, step = 0, n_p, 2 * n_p
    for i in range(0, n_p, 16):
        u = load(m.usage, now * n_p + i)
        store(m.scratch, lifted + i, fma(u, splat(SCALE), splat(LIFT)))
        # What is no number comes after all that are, and what is no slot after all that are.
        whole, most, last = rounded(u * splat(STEPS)), splat(np.float32(1e30)), splat(np.float32(np.inf))
        whole = choose_smaller(whole, most, whole, most)
        store(m.scratch, step + i, choose_smaller(splat(np.float32(0.5)), load(m.mask, i), whole, last))
    ranks(m.scratch, step, m.scratch, rank, n_p)
    for i in range(n):
        m.order[line + int(m.scratch[rank + i])] = i
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
    lap(clock.ACTIVATE)

    # u = (u' + w' − u' w') Π_r (1 − f_r w_r'), of the addresses before.
    for i in range(0, n_p, 16):
        u, w = load(m.usage, before * n_p + i), load(m.address, earlier + heads * n_p + i)
        u = fma(w, one - u, u)
        for r in range(heads):
            u = u * fma(-load(m.address, earlier + r * n_p + i), spread(m.acts, free + r), one)
        store(m.usage, now * n_p + i, u)
    allocate(m, row, now)
    lap(clock.USAGE)

    # w = g_w (g_a a + (1 − g_a) c)
    similarity = row * (heads + 1) * n_p
    content(m, source, before, xi, wx, 0, 1, m.acts, mine, similarity + heads * n_p, m.content, line)
    lap(clock.CONTENT)
    g_a, g_w = m.acts[mine + ALLOCATE], m.acts[mine + WRITE]
    by_allocation, by_content = splat(g_w * g_a), splat(g_w * (np.float32(1.0) - g_a))
    address = addresses + heads * n_p
    for i in range(0, n_p, 16):
        a = splat(SCALE) * (one - load(m.usage, now * n_p + i)) * load(m.product, line + i)
        store(m.address, address + i, fma(by_allocation, a, by_content * load(m.content, line + i)))
    lap(clock.ADDRESS)
    write(m, row, xi, wx, source, tape)
    norms(m, tape, now)
    lap(clock.WRITE)

    if m.linked:
        link(m, b, t, row, before)
        content(m, tape, now, xi, x, width, heads, m.acts, acts + m.strengths, similarity, m.found, line * heads)
        follow(m, b, t, row, xi, x + heads * (width + 2), earlier, addresses)
    else:
        content(m, tape, now, xi, x, width, heads, m.acts, acts + m.strengths, similarity, m.address, addresses)
    lap(clock.CONTENT)
    for k in range(heads * width):
        after[reads + k] = np.float32(0.0)
    gather(m.address, addresses, n_p, m.memory, tape * width * n_p, n_p, after, reads, width, heads, width, n_p)
    lap(clock.READ)


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
def rewrite(m, sizes, table, t, b, row, previous, xi):
    """What the step wrote once more, and how that changed the links."""
    write(m, row, xi, row * sizes.interface + table[1, XI], version(m, b, t, 0), version(m, b, t, 1))
    if m.linked:
        size = m.slots * m.slots_p
        if t % m.keep == 0:
            copy(m.kept_links, (t // m.keep * m.batch + b) * size, m.links, version(m, b, t, 0) * size, size)
        before = b if previous < 0 else m.batch + previous
        relink(m, version(m, b, t, 0) * size, version(m, b, t, 1) * size, row, before)


# --- temporal links ---------------------------------------------------------------------------------------------------


@kernel
def link(m, b, t, row, before):
    """L[i,j] = (1 − w[i] − w[j]) L'[i,j] + w[i] p'[j], and no slot follows itself;  p = (1 − Σ w) p' + w."""
    n_p, size, now = m.slots_p, m.slots * m.slots_p, m.batch + row
    address = (now * (m.reads + 1) + m.reads) * n_p
    old, new = version(m, b, t, 0) * size, version(m, b, t, 1) * size
    if t % m.keep == 0:
        if t > 0:
            copy(m.links, (m.keep * m.batch + b) * size, m.links, old, size)
        if m.kept_links.size:
            copy(m.links, old, m.kept_links, (t // m.keep * m.batch + b) * size, size)
    relink(m, old, new, row, before)
    sums = splat(np.float32(0.0))
    for i in range(0, n_p, 16):
        sums = sums + load(m.address, address + i)
    left = splat(np.float32(1.0) - total(sums))
    for i in range(0, n_p, 16):
        last = load(m.precedence, before * n_p + i)
        store(m.precedence, now * n_p + i, fma(left, last, load(m.address, address + i)))


@kernel
def relink(m, old, new, row, before):
    """The links alone, from links[old …] to links[new …]; p' is line `before` of the precedence."""
    n_p, address, last = m.slots_p, ((m.batch + row) * (m.reads + 1) + m.reads) * m.slots_p, before * m.slots_p
    for i in range(m.slots):
        w = spread(m.address, address + i)
        left = splat(np.float32(1.0)) - w
        for j in range(0, n_p, 16):
            kept = (left - load(m.address, address + j)) * load(m.links, old + i * n_p + j)
            store(m.links, new + i * n_p + j, fma(w, load(m.precedence, last + j), kept))
        m.links[new + i * n_p + i] *= np.float32(0.0)  # as the reference does: what is no number stays none


@kernel
def follow(m, b, t, row, xi, raw, earlier, addresses):
    """w_r = π₁ Lᵀ w_r' + π₂ c_r + π₃ L w_r',  π = softmax of three modes at xi[raw …], w_r' at address[earlier …]."""
    heads, n_p = m.reads, m.slots_p
    links = version(m, b, t, 1) * m.slots * n_p
    behind, found = row * 2 * heads * n_p, row * heads * n_p
    ahead = behind + heads * n_p
    fill(m.followed, behind, 2 * heads * n_p, np.float32(0.0))
    multiply(m.address, earlier, n_p, m.links, links, n_p, m.followed, behind, n_p, heads, m.slots, n_p)
    gather(m.address, earlier, n_p, m.links, links, n_p, m.followed, ahead, n_p, heads, m.slots, n_p)
    for r in range(heads):
        mode, from_ = (row * heads + r) * 3, raw + 3 * r
        top = max(xi[from_], xi[from_ + 1], xi[from_ + 2])
        e0, e1, e2 = math.exp(xi[from_] - top), math.exp(xi[from_ + 1] - top), math.exp(xi[from_ + 2] - top)
        share = 1.0 / (e0 + e1 + e2)
        m.modes[mode], m.modes[mode + 1], m.modes[mode + 2] = e0 * share, e1 * share, e2 * share
        for i in range(r * n_p, (r + 1) * n_p, 16):
            w = spread(m.modes, mode) * load(m.followed, behind + i)
            w = fma(spread(m.modes, mode + 1), load(m.found, found + i), w)
            store(m.address, addresses + i, fma(spread(m.modes, mode + 2), load(m.followed, ahead + i), w))


@kernel
def follow_back(m, row, d_xi, dx):
    """From dw_r (scratch, a line a head) to the modes, to `d_followed`, and to content, which takes the place of dw_r.

    w = π₁ behind + π₂ c + π₃ ahead     dπ_k = π_k (s_k − Σ π s) with s the sums of dw times each;  d behind = π₁ dw …
    """
    heads, n_p = m.reads, m.slots_p
    behind, found = row * 2 * heads * n_p, row * heads * n_p
    ahead, zero = behind + heads * n_p, splat(np.float32(0.0))
    for r in range(heads):
        mode = (row * heads + r) * 3
        s0, s1, s2 = zero, zero, zero
        for i in range(r * n_p, (r + 1) * n_p, 16):
            dw = load(m.scratch, i)
            s0 = fma(dw, load(m.followed, behind + i), s0)
            s1 = fma(dw, load(m.found, found + i), s1)
            s2 = fma(dw, load(m.followed, ahead + i), s2)
            store(m.d_followed, i, spread(m.modes, mode) * dw)
            store(m.scratch, i, spread(m.modes, mode + 1) * dw)
            store(m.d_followed, heads * n_p + i, spread(m.modes, mode + 2) * dw)
        d0, d1, d2 = total(s0), total(s1), total(s2)
        inner = m.modes[mode] * d0 + m.modes[mode + 1] * d1 + m.modes[mode + 2] * d2
        d_xi[dx + 3 * r] = m.modes[mode] * (d0 - inner)
        d_xi[dx + 3 * r + 1] = m.modes[mode + 1] * (d1 - inner)
        d_xi[dx + 3 * r + 2] = m.modes[mode + 2] * (d2 - inner)


@kernel
def link_back(m, b, t, row, before, earlier):
    """From what followed the links, and the dL and dp that come from the step after, to the write (scratch[0 …]) and to
    dL' and dp'.

        behind_r = Lᵀ w_r',  ahead_r = L w_r'     dL[i,j] += Σ_r w_r'[i] d behind_r[j] + d ahead_r[i] w_r'[j]
        p = (1 − Σ w) p' + w                      dw += dp − Σ dp p',  dp' = (1 − Σ w) dp
        L = (1 − w[i] − w[j]) L' + w[i] p'[j]     dw[i] += Σ_j dL (p'[j] − L'),  dw[j] −= Σ_i dL L'
                                                  dp'[j] += Σ_i dL w[i],  dL' = (1 − w[i] − w[j]) dL
    """
    heads, n_p, size = m.reads, m.slots_p, m.slots * m.slots_p
    address, last, mine = ((m.batch + row) * (heads + 1) + heads) * n_p, before * n_p, b * n_p
    old, links, one = version(m, b, t, 0) * size, b * size, splat(np.float32(1.0))
    accumulate(m.address, earlier, n_p, m.d_followed, 0, n_p, m.d_links, links, n_p, heads, m.slots, n_p)
    accumulate(m.d_followed, heads * n_p, n_p, m.address, earlier, n_p, m.d_links, links, n_p, heads, m.slots, n_p)
    sums, along = splat(np.float32(0.0)), splat(np.float32(0.0))
    for i in range(0, n_p, 16):
        sums = sums + load(m.address, address + i)
        along = fma(load(m.d_precedence, mine + i), load(m.precedence, last + i), along)
    left, inner = one - splat(total(sums)), splat(total(along))
    for i in range(0, n_p, 16):
        dp = load(m.d_precedence, mine + i)
        store(m.scratch, i, load(m.scratch, i) + (dp - inner) * load(m.mask, i))
        store(m.d_precedence, mine + i, left * dp)
    for i in range(m.slots):
        place, w = links + i * n_p, spread(m.address, address + i)
        m.d_links[place + i] = np.float32(0.0)
        sums = splat(np.float32(0.0))
        for j in range(0, n_p, 16):
            d, was = load(m.d_links, place + j), load(m.links, old + i * n_p + j)
            sums = fma(d, load(m.precedence, last + j) - was, sums)
            store(m.scratch, j, fma(-d, was, load(m.scratch, j)))
            store(m.d_precedence, mine + j, fma(d, w, load(m.d_precedence, mine + j)))
            store(m.d_links, place + j, (one - w - load(m.address, address + j)) * d)
        m.scratch[i] += total(sums)


@kernel
def followed_back(m, b, t):
    """What followed the links goes back to the addresses before:  dw_r' += L d behind_r + Lᵀ d ahead_r."""
    heads, n_p, carry = m.reads, m.slots_p, b * (m.reads + 1) * m.slots_p
    links = version(m, b, t, 1) * m.slots * n_p
    gather(m.d_followed, 0, n_p, m.links, links, n_p, m.d_address, carry, n_p, heads, m.slots, n_p)
    multiply(m.d_followed, heads * n_p, n_p, m.links, links, n_p, m.d_address, carry, n_p, heads, m.slots, n_p)


# --- and back ---------------------------------------------------------------------------------------------------------


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
    tape, addresses, earlier = version(m, b, t, 1), now * (heads + 1) * n_p, before * (heads + 1) * n_p
    read_back(m, tape, b, heads, m.address, addresses, 0, d_read, reads)
    lap(clock.READ_BACK)
    if m.linked:
        follow_back(m, row, d_xi, dx + heads * (width + 2))
        content_back(
            m, tape, now, b, xi, x, width, heads, m.acts, acts + m.strengths, similarity,
            m.found, row * heads * n_p, 0, d_xi, dx, dx + strengths,
        )  # fmt: skip
    else:
        content_back(
            m, tape, now, b, xi, x, width, heads, m.acts, acts + m.strengths, similarity,
            m.address, addresses, 0, d_xi, dx, dx + strengths,
        )  # fmt: skip
    for r in range(heads):
        d_xi[dx + strengths + r] *= m.acts[acts + r]
    lap(clock.CONTENT_BACK)

    copy(m.d_address, (b * (heads + 1) + heads) * n_p, m.scratch, 0, n_p)
    if m.linked:
        link_back(m, b, t, row, before, earlier)
    source = version(m, b, t, 0)
    write_back(m, b, row, source, now, xi, wx, d_xi, dwx)
    lap(clock.WRITE_BACK)
    content_back(
        m, source, before, b, xi, wx, 0, 1, m.acts, acts + m.writing, similarity + heads * n_p,
        m.content, row * n_p, 0, d_xi, dwx, dwx + width,
    )  # fmt: skip
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
        linked = int(self.config.links)
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
            room.use(batch * m * n_p),
            room.use(batch * n_p),
            room.use(batch * (reads + 1) * n_p),
            room.use((reads + 4) * n_p),
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
