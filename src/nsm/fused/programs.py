"""The interface networks as a kernel: stored programs under any attention, or one static matrix; see nsm.programs.

All programs of all heads are one product, c·[V_1 … V_P | queries]; the mixing Σ_p w_p (c·V_p) comes after it.
"""

from __future__ import annotations

import math

import numpy as np

from nsm.fused.algebra import accumulate, add_into, copy, fill, multiply_panels
from nsm.fused.cache import kernel
from nsm.fused.clock import MIXING, PROGRAMS, lap
from nsm.fused.controller import normalise, normalise_back
from nsm.fused.functions import exp, sigmoid, softplus
from nsm.fused.lanes import fma, load, splat, spread, store, total
from nsm.fused.layout import DIRECT, GUMBEL, LENGTH, LENGTH_P, QUERY, RAW, STATIC, UNIFORM, XI, padded
from nsm.similarity import EPSILON

# What is kept of a head's attention, per row and head, before the similarities D_p: the strength with its scale, its
# slope and 1/|q|.
STRENGTH, SLOPE, QUERY_INVERSE, SIMILARITY = range(4)


@kernel
def attend(sizes, scales, w, work, h, row, query):
    """w^p of head h: Eqs. 3–4 from the query at raw[query …]. Leaves the weights in `mix`, a softmax in `soft`."""
    p_, k_, stride = sizes.programs, sizes.keys, padded(sizes.programs)
    at, kept = (row * sizes.heads + h) * stride, (row * sizes.heads + h) * (SIMILARITY + p_)
    if sizes.attention == UNIFORM or sizes.attention == STATIC:
        fill(work.mix, at, stride, np.float32(1.0 / p_))
        return
    raw = spread(work.raw, query + k_)
    store(work.scratch, 0, softplus(raw))
    store(work.scratch, 16, sigmoid(raw))
    scale = np.float32(scales.strength)
    strength = scale * work.scratch[0]
    work.kept[kept + STRENGTH], work.kept[kept + SLOPE] = strength, scale * work.scratch[16]
    for k in range(k_):
        q = work.raw[query + k]
        work.query[k] = np.float32(math.tanh(q)) if sizes.bounded else q
    if sizes.attention == DIRECT:
        for p in range(p_):
            work.kept[kept + SIMILARITY + p] = work.query[p]
    else:
        squares = np.float32(EPSILON)
        for k in range(k_):
            squares += work.query[k] * work.query[k]
        inverse = np.float32(1.0) / np.sqrt(squares)
        work.kept[kept + QUERY_INVERSE] = inverse
        for p in range(p_):
            dot, key = np.float32(0.0), (h * p_ + p) * k_
            for k in range(k_):
                dot += work.query[k] * w.keys[key + k]
            work.kept[kept + SIMILARITY + p] = dot * inverse * w.key_inverses[h * p_ + p]

    best = 0
    fill(work.soft, at + stride - 16, 16, np.float32(-np.inf))
    for p in range(p_):
        z = strength * work.kept[kept + SIMILARITY + p]
        if sizes.attention == GUMBEL and work.gumbel.size:
            z += work.gumbel[(row * sizes.heads + h) * p_ + p]
        work.soft[at + p] = z
        if z > work.soft[at + best]:
            best = p
    top = splat(work.soft[at + best])
    sharpness = splat(np.float32(1.0 / scales.temperature if sizes.attention == GUMBEL else 1.0))
    # Zero; NaN if the temperature takes the largest beyond all numbers, which ∞ − ∞ is.
    sums = top * sharpness - top * sharpness
    for i in range(at, at + stride, 16):
        e = exp((load(work.soft, i) - top) * sharpness)
        sums = sums + e
        store(work.soft, i, e)
    share = splat(np.float32(1.0) / total(sums))
    for i in range(at, at + stride, 16):
        weights = load(work.soft, i) * share
        store(work.soft, i, weights)
        # The hard choice takes no number from the softmax, but where that has none, there is no choice.
        store(work.mix, i, weights - weights if sizes.attention == GUMBEL else weights)
    if sizes.attention == GUMBEL:
        work.mix[at + best] += np.float32(1.0)


@kernel
def forward(sizes, scales, table, w, work, first, count):
    """ξ of every head for the `count` samples whose rows begin at `first`, from h_t in `after`."""
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    for row in range(first, first + count):
        copy(w.raw_bias, 0, work.raw, row * q_, q_)
    multiply_panels(work.after, first * d, d, w.raw, sizes.size, work.raw, first * q_, q_, count, sizes.size, q_)
    lap(PROGRAMS)
    for row in range(first, first + count):
        for h in range(sizes.heads):
            attend(sizes, scales, w, work, h, row, row * q_ + table[h, QUERY])
            mix = (row * sizes.heads + h) * padded(sizes.programs)
            source, target, width = row * q_ + table[h, RAW], row * sizes.interface + table[h, XI], table[h, LENGTH_P]
            for i in range(0, width, 16):
                x = spread(work.mix, mix) * load(work.raw, source + i)
                for p in range(1, sizes.programs):
                    x = fma(spread(work.mix, mix + p), load(work.raw, source + p * width + i), x)
                store(work.interface, target + i, x)
            if sizes.interface_norm:
                xi, length = table[h, XI], table[h, LENGTH]
                work.interface_scales[row * sizes.heads + h] = normalise(
                    work.interface, target, work.head_masks[xi:], length, width, work.interface_hats, target
                )
                for i in range(0, width, 16):
                    weight, bias = load(w.interface_norm, xi + i), load(w.interface_norm, sizes.interface + xi + i)
                    store(work.interface, target + i, fma(load(work.interface_hats, target + i), weight, bias))
    lap(MIXING)


@kernel
def attend_back(sizes, scales, w, g, work, h, row, query):
    """From dw^p (in `d_mix`) to the query's and the keys' gradients.

    softmax   dz_p = w_p (dw_p − Σ w dw)                  Gumbel: the softmax's own w, divided by the temperature
    z_p = s D_p   ds = Σ dz_p D_p,  dD_p = s dz_p         D = q·k / (|q| |k|)
    dq = Σ dD_p (k_p/(|q||k_p|) − D_p q/|q|²)             and the same for k_p with q and k_p exchanged
    """
    p_, k_, stride = sizes.programs, sizes.keys, padded(sizes.programs)
    at, kept = (row * sizes.heads + h) * stride, (row * sizes.heads + h) * (SIMILARITY + p_)
    # Σ dz = 0, so ds may count similarities from anywhere: from their mean, what cancels is small.
    inner, middle = np.float32(0.0), np.float32(0.0)
    for p in range(p_):
        inner += work.soft[at + p] * work.d_mix[p]
        middle += work.soft[at + p] * work.kept[kept + SIMILARITY + p]
    sharpness = np.float32(1.0 / scales.temperature if sizes.attention == GUMBEL else 1.0)
    strength, q_inverse = work.kept[kept + STRENGTH], work.kept[kept + QUERY_INVERSE]
    for k in range(k_):
        q = work.raw[query + k]
        work.query[k] = np.float32(math.tanh(q)) if sizes.bounded else q
        work.d_raw[query + k] = 0
    d_strength = np.float32(0.0)
    for p in range(p_):
        dz = work.soft[at + p] * (work.d_mix[p] - inner) * sharpness
        similarity = work.kept[kept + SIMILARITY + p]
        d_strength += dz * (similarity - middle)
        d = dz * strength
        if sizes.attention == DIRECT:
            work.d_raw[query + p] = d
            continue
        key, k_inverse = (h * p_ + p) * k_, w.key_inverses[h * p_ + p]
        across = d * q_inverse * k_inverse
        along_q, along_k = d * similarity * q_inverse * q_inverse, d * similarity * k_inverse * k_inverse
        for k in range(k_):
            q, v = work.query[k], w.keys[key + k]
            work.d_raw[query + k] += across * v - along_q * q
            g.keys[key + k] += across * q - along_k * v
    if sizes.bounded:
        for k in range(k_):
            work.d_raw[query + k] *= np.float32(1.0) - work.query[k] * work.query[k]
    work.d_raw[query + k_] = d_strength * work.kept[kept + SLOPE]


@kernel
def backward(sizes, scales, table, w, g, work, first, count):
    """From dξ (in `d_interface`, by sample) to the programs' gradients, and on to dh, which is added to `d_state`.

    ξ = Σ_p w_p ξ_p with ξ_p = c·V_p:   dξ_p = w_p dξ,   dw_p = dξ·ξ_p,   dc = Σ_p dξ_p V_pᵀ
    """
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    for b in range(count):
        row = first + b
        for h in range(sizes.heads):
            xi, width = table[h, XI], table[h, LENGTH_P]
            source = b * sizes.interface + xi
            if sizes.interface_norm:
                normalise_back(
                    work.d_interface, source, work.interface_hats, row * sizes.interface + xi,
                    work.interface_scales[row * sizes.heads + h], w.interface_norm, xi,
                    g.interface_norm, xi, g.interface_norm, sizes.interface + xi,
                    work.head_masks[xi:], table[h, LENGTH], width,
                )  # fmt: skip
            mix = (row * sizes.heads + h) * padded(sizes.programs)
            for p in range(sizes.programs):
                target = row * q_ + table[h, RAW] + p * width
                share, sums = spread(work.mix, mix + p), splat(np.float32(0.0))
                for i in range(0, width, 16):
                    dx = load(work.d_interface, source + i)
                    sums = fma(dx, load(work.raw, target + i), sums)
                    store(work.d_raw, target + i, share * dx)
                work.d_mix[p] = total(sums)
            if sizes.attention != STATIC and sizes.attention != UNIFORM:
                query = row * q_ + table[h, QUERY]
                for k in range(sizes.keys + 1, (sizes.keys + 16) // 16 * 16):
                    work.d_raw[query + k] = 0
                attend_back(sizes, scales, w, g, work, h, row, query)
    multiply_panels(work.d_raw, first * q_, q_, w.raw_back, q_, work.d_state, 0, d, count, q_, sizes.size_p)


@kernel
def gradients(sizes, g, work, rows):
    """The programs' gradients from all rows at once: dV = Σ cᵀ dξ_p, and the bias row's Σ dξ_p."""
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    accumulate(work.after, 0, d, work.d_raw, 0, q_, g.raw, 0, q_, rows, sizes.size, q_)
    for row in range(rows):
        add_into(work.d_raw, row * q_, g.raw_bias, 0, q_)
