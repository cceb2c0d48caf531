"""A DNC's temporal links, and the reads that follow them; see nsm.memories.dnc. `m` is a `DNCWork`."""

from __future__ import annotations

import math

import numpy as np

from nsm.fused.algebra import accumulate, copy, fill, multiply
from nsm.fused.cache import kernel
from nsm.fused.lanes import fma, load, splat, spread, store, total
from nsm.fused.tape import gather, version


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
