"""Clip and update as one pass over the flat parameters; see nsm.training.optimiser for the equations."""

from __future__ import annotations

import numpy as np

from nsm.fused.cache import compiled
from nsm.fused.lanes import fma, load, maximum, minimum, root, splat, store, total


@compiled
def squares(x):
    """Σ x², infinite or not a number if any of them is. Sizes are padded to 16."""
    sums = splat(np.float32(0.0))
    for i in range(0, x.size, 16):
        v = load(x, i)
        sums = fma(v, v, sums)
    return total(sums)


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
