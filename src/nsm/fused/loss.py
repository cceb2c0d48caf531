"""Losses of one row of outputs, and their gradients; see nsm.tasks.metrics and nsm.tasks.classification."""

from __future__ import annotations

import math

from nsm.fused.cache import kernel

BINARY, SOFTMAX = range(2)
"""Which one a call asks for."""


@kernel
def binary_cross_entropy(logits, row, targets, target, channels, share, gradient):
    """Σ −ln p(target) over the numbers of a row; `share` times its gradient goes to gradient[row …].

    With targets of 0 and 1, p = σ(±z), and d/dz of −ln σ(±z) is σ(z) − target.
    """
    loss = 0.0
    for c in range(channels):
        z, y = float(logits[row + c]), float(targets[target + c])
        e = math.exp(-abs(z))
        p = 1.0 / (1.0 + e) if z >= 0 else e / (1.0 + e)
        loss += max(z, 0.0) - z * y + math.log1p(e)
        gradient[row + c] = (p - y) * share
    return loss


@kernel
def softmax_cross_entropy(logits, row, targets, target, channels, share, gradient):
    """−ln p(target) of a row with one-hot targets; `share` times its gradient goes to gradient[row …].

    With p = softmax(z), −ln p(y) = ln Σ exp z − z_y, and its derivative for z is p − onehot(y).
    """
    top = logits[row]
    for c in range(channels):
        top = max(top, logits[row + c])
    total, right = 0.0, 0.0
    for c in range(channels):
        z = float(logits[row + c]) - float(top)
        total += math.exp(z)
        right += z * float(targets[target + c])
    for c in range(channels):
        p = math.exp(float(logits[row + c]) - float(top)) / total
        gradient[row + c] = (p - float(targets[target + c])) * share
    return math.log(total) - right
