"""Clip and update as one pass over the flat parameters; see nsm.training.optimiser for the equations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nsm.fused.cache import compiled, entry
from nsm.fused.lanes import fma, load, maximum, minimum, root, splat, store, total
from nsm.fused.records import floats_at, rows_at, unfold


@compiled
def squares(x):
    """Σ x², infinite or not a number if any of them is. Sizes are padded to 16."""
    zero, whole = splat(np.float32(0.0)), x.size // 64 * 64
    a, b, c, d = zero, zero, zero, zero
    for i in range(0, whole, 64):
        v0, v1, v2, v3 = load(x, i), load(x, i + 16), load(x, i + 32), load(x, i + 48)
        a, b, c, d = fma(v0, v0, a), fma(v1, v1, b), fma(v2, v2, c), fma(v3, v3, d)
    for i in range(whole, x.size, 16):
        v = load(x, i)
        a = fma(v, v, a)
    return total((a + b) + (c + d))


@compiled
def rmsprop(p, g, square, velocity, rate, alpha, momentum, epsilon, clip):
    """v ← α v + (1−α) g²,  b ← μ b + g / (√v + ε),  p ← p − rate b,  g clipped to ±clip. Sizes are padded to 16."""
    bound, a, mu = splat(np.float32(clip)), splat(np.float32(alpha)), splat(np.float32(momentum))
    rest, eps, step = splat(np.float32(1.0 - alpha)), splat(np.float32(epsilon)), splat(np.float32(-rate))
    for i in range(0, p.size, 16):
        x = maximum(minimum(load(g, i), bound), -bound)
        v = fma(a, load(square, i), rest * x * x)
        b = fma(mu, load(velocity, i), x / (root(v) + eps))
        store(square, i, v)
        store(velocity, i, b)
        store(p, i, fma(step, b, load(p, i)))


@compiled
def adam(p, g, square, velocity, rate, beta1, beta2, epsilon, clip, correction1, correction2):
    """m ← β₁ m + (1−β₁) g,  v ← β₂ v + (1−β₂) g²,  p ← p − rate (m/c₁) / (√(v/c₂) + ε), with c = 1 − β^t."""
    bound, b1, b2 = splat(np.float32(clip)), splat(np.float32(beta1)), splat(np.float32(beta2))
    rest1, rest2, eps = splat(np.float32(1.0 - beta1)), splat(np.float32(1.0 - beta2)), splat(np.float32(epsilon))
    step, inverse2 = splat(np.float32(-rate / correction1)), splat(np.float32(1.0 / correction2))
    for i in range(0, p.size, 16):
        x = maximum(minimum(load(g, i), bound), -bound)
        m = fma(b1, load(velocity, i), rest1 * x)
        v = fma(b2, load(square, i), rest2 * x * x)
        store(velocity, i, m)
        store(square, i, v)
        store(p, i, fma(step, m / (root(v * inverse2) + eps), load(p, i)))


# --- for tensors of their own -----------------------------------------------------------------------------------------


class Update(NamedTuple):
    """An update of several tensors: their addresses, what is remembered of each, and the numbers that are the same for
    all of them."""

    tensors: int
    """the address of the table: parameter, gradient, square, velocity, size"""
    tensor_count: int
    adam: int
    """1 for Adam, 0 for RMSprop"""
    rate: float
    keep_square: float
    """α, or β₂"""
    keep_velocity: float
    """μ, or β₁"""
    epsilon: float
    decay: float
    """of the weights, added to their gradients"""
    correction1: float
    correction2: float


tensors_at = rows_at(5)


@entry
def update(address):
    """The equations of `rmsprop` and `adam`, tensor by tensor."""
    call = unfold(Update, address)
    table = tensors_at(call.tensors)
    for row in range(call.tensor_count):
        p, g = floats_at(table[row, 0]), floats_at(table[row, 1])
        square, velocity, size = floats_at(table[row, 2]), floats_at(table[row, 3]), table[row, 4]
        whole = size // 16 * 16
        keep, rest = splat(np.float32(call.keep_square)), splat(np.float32(1.0 - call.keep_square))
        mu, share = splat(np.float32(call.keep_velocity)), splat(np.float32(1.0 - call.keep_velocity))
        eps, decay = splat(np.float32(call.epsilon)), splat(np.float32(call.decay))
        step, inverse2 = splat(np.float32(-call.rate / call.correction1)), splat(np.float32(1.0 / call.correction2))
        for i in range(0, whole, 16):
            w = load(p, i)
            x = fma(decay, w, load(g, i))
            v = fma(keep, load(square, i), rest * x * x)
            store(square, i, v)
            if call.adam:
                m = fma(mu, load(velocity, i), share * x)
                store(velocity, i, m)
                store(p, i, fma(step, m / (root(v * inverse2) + eps), w))
            else:
                m = fma(mu, load(velocity, i), x / (root(v) + eps))
                store(velocity, i, m)
                store(p, i, fma(step, m, w))
        for i in range(whole, size):
            x = call.decay * p[i] + g[i]
            v = call.keep_square * square[i] + (1.0 - call.keep_square) * x * x
            square[i] = v
            if call.adam:
                m = call.keep_velocity * velocity[i] + (1.0 - call.keep_velocity) * x
                velocity[i] = m
                p[i] -= call.rate / call.correction1 * m / (math.sqrt(v / call.correction2) + call.epsilon)
            else:
                m = call.keep_velocity * velocity[i] + x / (math.sqrt(v) + call.epsilon)
                velocity[i] = m
                p[i] -= call.rate * m
