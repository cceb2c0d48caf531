"""Which slots of a DNC are used, and which are next to be: the allocation; see nsm.memories.dnc. `m` is a `DNCWork`."""

from __future__ import annotations

import numpy as np

from nsm.fused.algebra import fill
from nsm.fused.cache import kernel
from nsm.fused.lanes import choose_smaller, fma, load, numbers, rounded, splat, spread, store, total
from nsm.memories.dnc import USAGE_EPSILON
from nsm.memories.memory import RESOLUTION

LIFT, SCALE = np.float32(USAGE_EPSILON), np.float32(1 - USAGE_EPSILON)
STEPS = np.float32(1 / RESOLUTION)


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
def usage_back(m, b, row, before, du, d_xi, dx):
    """From du (d_usage, and from the allocation scratch[du …]) to the free gates, the usage and the addresses before.

        u = s ψ,  s = u' + w' − u' w'     ds = du ψ,  dψ = du s,  du' = ds (1 − w'),  dw' = ds (1 − u')
        ψ = Π_r (1 − f_r w_r')            df_r = −Σ t_r w_r',  dw_r' = −f_r t_r   with t_r = dψ Π_{q≠r} (1 − f_q w_q')

    The product without r is the one of the heads before r, a line each in scratch behind du, times that of those after.
    Where what is freed is erased, dψ begins with what `write_back` left in the line behind those.
    """
    n_p, heads, free = m.slots_p, m.reads, row * m.kept + m.reads
    earlier, carry, lines = before * (heads + 1) * n_p, b * (heads + 1) * n_p, du + n_p
    freed = lines + heads * n_p
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
        if m.erasing:
            product = product + load(m.scratch, freed + i)
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
