"""The interface networks as a kernel: stored programs under any attention, or one static matrix; see nsm.programs.

All programs of all heads are one product, c·[V_1 … V_P | queries]; the mixing Σ_p w_p (c·V_p) comes after it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from nsm.fused.algebra import accumulate, add_into, copy, multiply
from nsm.fused.controller import normalise, normalise_back
from nsm.fused.functions import sigmoid_scalar, softplus_scalar
from nsm.fused.lanes import fma, load, splat, store, total
from nsm.fused.layout import DIRECT, GUMBEL, LENGTH, LENGTH_P, QUERY, RAW, STATIC, UNIFORM, XI
from nsm.similarity import EPSILON


@njit(nogil=True)
def attend(sizes, scales, w, work, h, row, query):
    """w^p of head h: Eqs. 3–4 from the query at raw[query …]. Leaves the weights in `mix`, a softmax in `soft`."""
    p_, k_ = sizes.programs, sizes.keys
    at = (row * sizes.heads + h) * p_
    if sizes.attention == UNIFORM or sizes.attention == STATIC:
        for p in range(p_):
            work.mix[at + p] = np.float32(1.0) / np.float32(p_)
        return
    strength = np.float32(scales.strength) * softplus_scalar(work.raw[query + k_])
    for p in range(p_):
        if sizes.attention == DIRECT:
            q = work.raw[query + p]
            work.soft[at + p] = strength * (np.float32(math.tanh(q)) if sizes.bounded else q)
        else:
            similarity, _ = cosine(sizes, w, work, h, p, query)
            work.soft[at + p] = strength * similarity
    best = 0
    for p in range(p_):
        if sizes.attention == GUMBEL and work.gumbel.size:
            work.soft[at + p] += work.gumbel[at + p]
        if work.soft[at + p] > work.soft[at + best]:
            best = p
    top = work.soft[at + best]
    temperature = scales.temperature if sizes.attention == GUMBEL else 1.0
    whole = 0.0
    for p in range(p_):
        work.soft[at + p] = math.exp(float(work.soft[at + p] - top) / temperature)
        whole += work.soft[at + p]
    for p in range(p_):
        work.soft[at + p] /= whole
        work.mix[at + p] = work.soft[at + p]
        if sizes.attention == GUMBEL:
            work.mix[at + p] = 1.0 if p == best else 0.0


@njit(nogil=True)
def cosine(sizes, w, work, h, p, query):
    """D(q, k_p) of Eq. 3, and 1/|q|."""
    dot, qq, kk = 0.0, 0.0, 0.0
    key = (h * sizes.programs + p) * sizes.keys
    for k in range(sizes.keys):
        q = float(work.raw[query + k])
        if sizes.bounded:
            q = math.tanh(q)
        v = float(w.keys[key + k])
        dot += q * v
        qq += q * q
        kk += v * v
    inverse = 1.0 / math.sqrt(qq + EPSILON)
    return np.float32(dot * inverse / math.sqrt(kk + EPSILON)), inverse


@njit(nogil=True)
def forward(sizes, scales, table, w, work, first, count):
    """ξ of every head for the `count` samples whose rows begin at `first`, from h_t in `after`."""
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    for row in range(first, first + count):
        copy(w.raw_bias, 0, work.raw, row * q_, q_)
    multiply(work.after, first * d, d, w.raw, 0, q_, work.raw, first * q_, q_, count, sizes.size, q_)
    for row in range(first, first + count):
        for h in range(sizes.heads):
            attend(sizes, scales, w, work, h, row, row * q_ + table[h, QUERY])
            mix = (row * sizes.heads + h) * sizes.programs
            source, target, width = row * q_ + table[h, RAW], row * sizes.interface + table[h, XI], table[h, LENGTH_P]
            for i in range(0, width, 16):
                x = splat(work.mix[mix]) * load(work.raw, source + i)
                for p in range(1, sizes.programs):
                    x = fma(splat(work.mix[mix + p]), load(work.raw, source + p * width + i), x)
                store(work.interface, target + i, x)
            if sizes.interface_norm:
                xi, length = table[h, XI], table[h, LENGTH]
                work.interface_scales[row * sizes.heads + h] = normalise(
                    work.interface, target, work.head_masks[xi:], length, width, work.interface_hats, target
                )
                for i in range(0, width, 16):
                    weight, bias = load(w.interface_norm, xi + i), load(w.interface_norm, sizes.interface + xi + i)
                    store(work.interface, target + i, fma(load(work.interface_hats, target + i), weight, bias))


@njit(nogil=True)
def attend_back(sizes, scales, w, g, work, h, row, query):
    """From dw^p (in `d_mix`) to the query's and the keys' gradients.

    softmax   dz_p = w_p (dw_p − Σ w dw)                  Gumbel: the softmax's own w, divided by the temperature
    z_p = s D_p   ds = Σ dz_p D_p,  dD_p = s dz_p         D = q·k / (|q| |k|)
    dq = Σ dD_p (k_p/(|q||k_p|) − D_p q/|q|²)             and the same for k_p with q and k_p exchanged
    """
    p_, k_ = sizes.programs, sizes.keys
    at = (row * sizes.heads + h) * p_
    inner = 0.0
    for p in range(p_):
        inner += work.soft[at + p] * work.d_mix[p]
    sharpness = 1.0 / scales.temperature if sizes.attention == GUMBEL else 1.0
    raw = work.raw[query + k_]
    strength = float(scales.strength) * float(softplus_scalar(raw))
    d_strength = 0.0
    for k in range(k_):
        work.d_raw[query + k] = 0
    for p in range(p_):
        dz = work.soft[at + p] * (work.d_mix[p] - inner) * sharpness
        if sizes.attention == DIRECT:
            q = float(work.raw[query + p])
            if sizes.bounded:
                q = math.tanh(q)
            d_strength += dz * q
            work.d_raw[query + p] = dz * strength
            continue
        similarity, q_inverse = cosine(sizes, w, work, h, p, query)
        d_strength += dz * similarity
        ds = dz * strength
        key, kk = (h * p_ + p) * k_, EPSILON
        for k in range(k_):
            kk += float(w.keys[key + k]) ** 2
        k_inverse = 1.0 / math.sqrt(kk)
        for k in range(k_):
            q, v = float(work.raw[query + k]), float(w.keys[key + k])
            if sizes.bounded:
                q = math.tanh(q)
            work.d_raw[query + k] += ds * (v * q_inverse * k_inverse - similarity * q * q_inverse * q_inverse)
            g.keys[key + k] += ds * (q * q_inverse * k_inverse - similarity * v * k_inverse * k_inverse)
    if sizes.bounded:
        for k in range(k_):
            work.d_raw[query + k] *= 1.0 - math.tanh(float(work.raw[query + k])) ** 2
    work.d_raw[query + k_] = d_strength * float(scales.strength) * float(sigmoid_scalar(raw))


@njit(nogil=True)
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
            mix = (row * sizes.heads + h) * sizes.programs
            for p in range(sizes.programs):
                target = row * q_ + table[h, RAW] + p * width
                share, sums = splat(work.mix[mix + p]), splat(np.float32(0.0))
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
    multiply(work.d_raw, first * q_, q_, w.raw_back, 0, sizes.size_p, work.d_state, 0, d, count, q_, sizes.size_p)


@njit(nogil=True)
def gradients(sizes, g, work, rows):
    """The programs' gradients from all rows at once: dV = Σ cᵀ dξ_p, and the bias row's Σ dξ_p."""
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    accumulate(work.after, 0, d, work.d_raw, 0, q_, g.raw, 0, q_, rows, sizes.size, q_)
    for row in range(rows):
        add_into(work.d_raw, row * q_, g.raw_bias, 0, q_)
