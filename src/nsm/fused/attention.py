"""Which stored programs run, and their mix: for every network that chooses, a head's interface, the state network and
the output layer; see nsm.attention and nsm.programs.

A network that chooses is known by its number: the heads' come first, then those of the state network and the output
layer if their weights are stored. What its programs put out lies side by side in a row, the query after that.
"""

from __future__ import annotations

import math

import numpy as np

from nsm.fused.algebra import fill
from nsm.fused.cache import kernel
from nsm.fused.functions import exp, sigmoid, softplus
from nsm.fused.lanes import fma, load, splat, spread, store, total
from nsm.fused.layout import DIRECT, GUMBEL, GUMBEL_PROBABILITIES, STATIC, UNIFORM, padded
from nsm.similarity import EPSILON

# What is kept of a choice, per row, before the similarities D_p: the strength with its scale, its slope and 1/|q|.
STRENGTH, SLOPE, QUERY_INVERSE, SIMILARITY = range(4)


@kernel
def mixed(sizes, scales, w, work, choice, row, raw, each, width, query, out, to):
    """Σ_p w_p each_p of `width` numbers, from raw[each …], by the query at raw[query …], to out[to …]."""
    attend(sizes, scales, w, work, choice, row, raw, query)
    mix = (row * sizes.choices + choice) * padded(sizes.programs)
    for i in range(0, width, 16):
        x = spread(work.mix, mix) * load(raw, each + i)
        for p in range(1, sizes.programs):
            x = fma(spread(work.mix, mix + p), load(raw, each + p * width + i), x)
        store(out, to + i, x)


@kernel
def mixed_back(sizes, scales, w, g, work, choice, row, raw, d_raw, each, width, query, d_out, d0):
    """From the gradient of the mix, at d_out[d0 …], to those of what was mixed and of the query:

    x = Σ_p w_p x_p     dx_p = w_p dx,   dw_p = dx·x_p
    """
    mix = (row * sizes.choices + choice) * padded(sizes.programs)
    for p in range(sizes.programs):
        place = each + p * width
        share, sums = spread(work.mix, mix + p), splat(np.float32(0.0))
        for i in range(0, width, 16):
            dx = load(d_out, d0 + i)
            sums = fma(dx, load(raw, place + i), sums)
            store(d_raw, place + i, share * dx)
        work.d_mix[p] = total(sums)
    if sizes.attention != STATIC and sizes.attention != UNIFORM:
        for k in range(sizes.keys + 1, padded(sizes.keys + 1)):
            d_raw[query + k] = 0
        attend_back(sizes, scales, w, g, work, choice, row, raw, d_raw, query)


@kernel
def attend(sizes, scales, w, work, choice, row, raw, query):
    """w^p of a choice: Eqs. 3–4 from the query at raw[query …]. Leaves the weights in `mix`, a softmax in `soft`."""
    p_, k_, stride = sizes.programs, sizes.keys, padded(sizes.programs)
    at, kept = (row * sizes.choices + choice) * stride, (row * sizes.choices + choice) * (SIMILARITY + p_)
    if sizes.attention == UNIFORM or sizes.attention == STATIC:
        fill(work.mix, at, stride, np.float32(1.0 / p_))
        return
    asked = spread(raw, query + k_)
    store(work.scratch, 0, softplus(asked))
    store(work.scratch, 16, sigmoid(asked))
    scale = np.float32(scales.strength)
    strength = scale * work.scratch[0]
    work.kept[kept + STRENGTH], work.kept[kept + SLOPE] = strength, scale * work.scratch[16]
    for k in range(k_):
        q = raw[query + k]
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
            dot, key = np.float32(0.0), (choice * p_ + p) * k_
            for k in range(k_):
                dot += work.query[k] * w.keys[key + k]
            work.kept[kept + SIMILARITY + p] = dot * inverse * w.key_inverses[choice * p_ + p]

    fill(work.soft, at + stride - 16, 16, np.float32(-np.inf))
    for p in range(p_):
        work.soft[at + p] = strength * work.kept[kept + SIMILARITY + p]
    if sizes.attention == GUMBEL_PROBABILITIES:
        softmax(work.soft, at, stride, largest(work.soft, at, p_), np.float32(1.0), work.probabilities, at)
        for p in range(p_):  # the padding stays at −∞
            work.soft[at + p] = work.probabilities[at + p]
    if sizes.attention >= GUMBEL and work.gumbel.size:
        for p in range(p_):
            work.soft[at + p] += work.gumbel[(row * sizes.choices + choice) * p_ + p]
    best = largest(work.soft, at, p_)
    softmax(work.soft, at, stride, best, sharpness(sizes, scales), work.soft, at)
    for i in range(at, at + stride, 16):
        weights = load(work.soft, i)
        # The hard choice takes no number from the softmax, but where that has none, there is no choice.
        store(work.mix, i, weights - weights if sizes.attention == GUMBEL else weights)
    if sizes.attention == GUMBEL:
        work.mix[at + best] += np.float32(1.0)


@kernel
def sharpness(sizes, scales):
    """What logits are multiplied by: 1/τ where there is a temperature."""
    return np.float32(1.0 / scales.temperature if sizes.attention >= GUMBEL else 1.0)


@kernel
def largest(values, at, count):
    """Which of `count` values is the largest, the first of equals."""
    best = 0
    for p in range(1, count):
        if values[at + p] > values[at + best]:
            best = p
    return best


@kernel
def softmax(values, at, stride, best, sharpness, out, to):
    """softmax(values · sharpness), where the largest of the values is number `best` and the padding is −∞."""
    top, sharp = splat(values[at + best]), splat(sharpness)
    # Zero; NaN if the temperature takes the largest beyond all numbers, which ∞ − ∞ is.
    sums = top * sharp - top * sharp
    for i in range(0, stride, 16):
        e = exp((load(values, at + i) - top) * sharp)
        sums = sums + e
        store(out, to + i, e)
    share = splat(np.float32(1.0) / total(sums))
    for i in range(to, to + stride, 16):
        store(out, i, load(out, i) * share)


@kernel
def attend_back(sizes, scales, w, g, work, choice, row, raw, d_raw, query):
    """From dw^p (in `d_mix`) to the query's and the keys' gradients.

    softmax   dz_p = w_p (dw_p − Σ w dw)                  Gumbel: the softmax's own w, divided by the temperature;
                                                          on probabilities: that is dw_p of another softmax
    z_p = s D_p   ds = Σ dz_p D_p,  dD_p = s dz_p         D = q·k / (|q| |k|)
    dq = Σ dD_p (k_p/(|q||k_p|) − D_p q/|q|²)             and the same for k_p with q and k_p exchanged
    """
    p_, k_, stride = sizes.programs, sizes.keys, padded(sizes.programs)
    at, kept = (row * sizes.choices + choice) * stride, (row * sizes.choices + choice) * (SIMILARITY + p_)
    weights, sharp = work.soft, sharpness(sizes, scales)
    if sizes.attention == GUMBEL_PROBABILITIES:
        inner = np.float32(0.0)
        for p in range(p_):
            inner += work.soft[at + p] * work.d_mix[p]
        for p in range(p_):
            work.d_mix[p] = work.soft[at + p] * (work.d_mix[p] - inner) * sharp
        weights, sharp = work.probabilities, np.float32(1.0)
    # Σ dz = 0, so ds may count similarities from anywhere: from their mean, what cancels is small.
    inner, middle = np.float32(0.0), np.float32(0.0)
    for p in range(p_):
        inner += weights[at + p] * work.d_mix[p]
        middle += weights[at + p] * work.kept[kept + SIMILARITY + p]
    strength, q_inverse = work.kept[kept + STRENGTH], work.kept[kept + QUERY_INVERSE]
    for k in range(k_):
        q = raw[query + k]
        work.query[k] = np.float32(math.tanh(q)) if sizes.bounded else q
        d_raw[query + k] = 0
    d_strength = np.float32(0.0)
    for p in range(p_):
        dz = weights[at + p] * (work.d_mix[p] - inner) * sharp
        similarity = work.kept[kept + SIMILARITY + p]
        d_strength += dz * (similarity - middle)
        d = dz * strength
        if sizes.attention == DIRECT:
            d_raw[query + p] = d
            continue
        key, k_inverse = (choice * p_ + p) * k_, w.key_inverses[choice * p_ + p]
        across = d * q_inverse * k_inverse
        along_q, along_k = d * similarity * q_inverse * q_inverse, d * similarity * k_inverse * k_inverse
        for k in range(k_):
            q, v = work.query[k], w.keys[key + k]
            d_raw[query + k] += across * v - along_q * q
            g.keys[key + k] += across * q - along_k * v
    if sizes.bounded:
        for k in range(k_):
            d_raw[query + k] *= np.float32(1.0) - work.query[k] * work.query[k]
    d_raw[query + k_] = d_strength * work.kept[kept + SLOPE]
