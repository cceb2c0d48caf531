"""Content addressing through masks, for a DNC; see nsm.memories.dnc. `m` is a `DNCWork`.

    s = σ(μ), a = s², q = a k        D = q·M(i) / (√(q·k + ε) √(Σ_m a M(i)² + ε)),  w = softmax(β D)

What a head lets through differs from head to head, and with it the norms of the tape. `seen` keeps a and then q of
every head of a row, the reads' first, and `lengths` a line of 1/√(Σ_m a M(i)² + ε).
"""

from __future__ import annotations

import math

import numpy as np

from nsm.fused.algebra import copy_block, fill, multiply
from nsm.fused.cache import kernel
from nsm.fused.functions import sigmoid
from nsm.fused.lanes import fma, load, root, splat, spread, store, total
from nsm.fused.layout import padded
from nsm.fused.tape import compare, softmax
from nsm.similarity import EPSILON


@kernel
def masked_content(m, tape, row, xi, x, masks, first, heads, acts, a, line, out, o):
    """`content` of `heads` heads from number `first` on, keys at xi[x …] and masks at xi[masks …], M a head."""
    n_p, width, w_p = m.slots_p, m.width, padded(m.width)
    whole, fours = row * (m.reads + 1) + first, heads // 4 * 4
    seen = whole * 2 * w_p
    for h in range(heads):
        counts, keys = seen + h * 2 * w_p, seen + h * 2 * w_p + w_p
        copy_block(xi, masks + h * width, 0, 1, width, m.seen, counts, 0)
        copy_block(xi, x + h * width, 0, 1, width, m.seen, keys, 0)
        for k in range(0, w_p, 16):
            s = sigmoid(load(m.seen, counts + k))
            store(m.seen, counts + k, s * s)
            store(m.seen, keys + k, s * s * load(m.seen, keys + k))
        _lengths(m, tape, counts, (whole + h) * n_p)
    # In the same order of additions for every slot, as in `content`.
    fill(m.similarity, line, fours * n_p, np.float32(0.0))
    multiply(m.seen, seen + w_p, 2 * w_p, m.memory, tape * width * n_p, n_p, m.similarity, line, n_p, fours, width, n_p)
    for h in range(fours, heads):
        compare(m, tape, m.seen, seen + h * 2 * w_p + w_p, line + h * n_p)
    for h in range(heads):
        squares = EPSILON
        for k in range(width):
            squares += float(m.seen[seen + h * 2 * w_p + w_p + k]) * float(xi[x + h * width + k])
        inverse = np.float32(1.0 / math.sqrt(squares))
        acts[a + heads + h] = inverse
        for i in range(0, n_p, 16):
            d = load(m.similarity, line + h * n_p + i) * splat(inverse) * load(m.lengths, (whole + h) * n_p + i)
            store(m.similarity, line + h * n_p + i, d)
            store(out, o + h * n_p + i, d * spread(acts, a + h))
        softmax(out, o + h * n_p, m.mask, out, o + h * n_p, n_p)


@kernel
def _lengths(m, tape, counts, line):
    """1/√(Σ_m a M(i)² + ε) of every slot, a at seen[counts …]."""
    n_p, i, least, one = m.slots_p, 0, splat(np.float32(EPSILON)), splat(np.float32(1.0))
    while i < n_p:
        p, x0, x1, x2, x3 = tape * m.width * n_p + i, least, least, least, least
        if i + 64 <= n_p:
            for k in range(m.width):
                a = spread(m.seen, counts + k)
                v0, v1, v2, v3 = (
                    load(m.memory, p),
                    load(m.memory, p + 16),
                    load(m.memory, p + 32),
                    load(m.memory, p + 48),
                )
                x0, x1, x2, x3 = fma(a, v0 * v0, x0), fma(a, v1 * v1, x1), fma(a, v2 * v2, x2), fma(a, v3 * v3, x3)
                p += n_p
            store(m.lengths, line + i, one / root(x0)), store(m.lengths, line + i + 16, one / root(x1))
            store(m.lengths, line + i + 32, one / root(x2)), store(m.lengths, line + i + 48, one / root(x3))
            i += 64
        else:
            for k in range(m.width):
                v0 = load(m.memory, p)
                x0 = fma(spread(m.seen, counts + k), v0 * v0, x0)
                p += n_p
            store(m.lengths, line + i, one / root(x0))
            i += 16


@kernel
def masked_content_back(m, tape, row, b, xi, x, masks, first, heads, acts, a, line, w, w0, dw, d_xi, dx, dm, ds):
    """From dw (scratch[dw …]) of addresses that `masked_content` made to their keys, masks, strengths and the tape.

        w = softmax(β D)         dz = w (dw − Σ w dw),  dβ = Σ dz D,  dD = β dz
        D = q·M / (|k| |M|)      with u = dD / (|k| |M|), p = dD D/|M|², l = Σ_i dD D/|k|², all norms masked
                                 dq = Σ_i u M,  dM = Σ_h u q − p a M
                                 dk = a dq − l q
                                 da = k dq − ½ (l k² + Σ_i p M²),  dμ = 2 a (1 − s) da

    dk is added to d_xi[dx …], dμ to d_xi[dm …], dβ to d_xi[ds …]. u takes the place of dw, p the lines after.
    """
    n_p, width, w_p, mine = m.slots_p, m.width, padded(m.width), b * m.width * m.slots_p
    whole, zero = row * (m.reads + 1) + first, splat(np.float32(0.0))
    for h in range(heads):
        beta, k_inverse = splat(acts[a + h]), acts[a + heads + h]
        us, ps, lengths = dw + h * n_p, dw + (heads + h) * n_p, (whole + h) * n_p
        sums, d_beta, along = zero, zero, zero
        for i in range(0, n_p, 16):
            sums = fma(load(w, w0 + h * n_p + i), load(m.scratch, us + i), sums)
        inner = splat(total(sums))
        for i in range(0, n_p, 16):
            dz = load(w, w0 + h * n_p + i) * (load(m.scratch, us + i) - inner)
            d, inverse = load(m.similarity, line + h * n_p + i), load(m.lengths, lengths + i)
            d_beta = fma(dz, d, d_beta)
            dd = dz * beta
            along = fma(dd, d, along)
            store(m.scratch, us + i, dd * inverse * splat(k_inverse))
            store(m.scratch, ps + i, dd * d * inverse * inverse)
        d_xi[ds + h] += total(d_beta)
        lost = total(along) * k_inverse * k_inverse
        counts = (whole + h) * 2 * w_p
        for k in range(width):
            count, q = m.seen[counts + k], m.seen[counts + w_p + k]
            d_q, d_length = zero, zero
            for i in range(0, n_p, 16):
                v, u, p = load(m.memory, (tape * width + k) * n_p + i), load(m.scratch, us + i), load(m.scratch, ps + i)
                d_q, pv = fma(u, v, d_q), p * v
                d_length = fma(pv, v, d_length)
                at = mine + k * n_p + i
                store(m.d_memory, at, fma(u, splat(q), load(m.d_memory, at) - pv * splat(count)))
            key, dq = xi[x + h * width + k], total(d_q)
            da = key * dq - np.float32(0.5) * (lost * key * key + total(d_length))
            d_xi[dx + h * width + k] += count * dq - lost * q
            d_xi[dm + h * width + k] += np.float32(2.0) * count * (np.float32(1.0) - np.float32(math.sqrt(count))) * da
