"""Clip and update as one pass over the flat parameters; see nsm.training.optimiser for the equations."""

from __future__ import annotations

import numpy as np

from nsm.fused.cache import compiled
from nsm.fused.lanes import fma, load, maximum, minimum, root, splat, store, total


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
