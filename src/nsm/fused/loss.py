"""Losses and their gradients in one pass; see nsm.tasks.metrics and nsm.tasks.classification."""

from __future__ import annotations

import math

from nsm.fused.cache import compiled


@compiled
def binary_cross_entropy(logits, targets, mask, gradient):
    """Mean −ln p(target) over masked steps and all channels, and its gradient. logits, targets (T, B, O), mask (T, B).

    With targets of 0 and 1, p = σ(±z), and d/dz of −ln σ(±z) is σ(z) − target.
    """
    steps, batch, channels = logits.shape
    count = 0
    for t in range(steps):
        for b in range(batch):
            if mask[t, b] > 0:
                count += channels
    share, loss = 1.0 / max(count, 1), 0.0
    for t in range(steps):
        for b in range(batch):
            for c in range(channels):
                if mask[t, b] > 0:
                    z, target = float(logits[t, b, c]), float(targets[t, b, c])
                    e = math.exp(-abs(z))
                    p = 1.0 / (1.0 + e) if z >= 0 else e / (1.0 + e)
                    loss += max(z, 0.0) - z * target + math.log1p(e)
                    gradient[t, b, c] = (p - target) * share
                else:
                    gradient[t, b, c] = 0
    return loss * share


@compiled
def softmax_cross_entropy(logits, targets, mask, gradient):
    """Mean −ln p(target) over masked steps, and its gradient. logits, one-hot targets (T, B, O), mask (T, B).

    With p = softmax(z), −ln p(y) = ln Σ exp z − z_y, and its derivative for z is p − onehot(y).
    """
    steps, batch, channels = logits.shape
    count = 0
    for t in range(steps):
        for b in range(batch):
            if mask[t, b] > 0:
                count += 1
    share, loss = 1.0 / max(count, 1), 0.0
    for t in range(steps):
        for b in range(batch):
            if mask[t, b] > 0:
                top = logits[t, b, 0]
                for c in range(channels):
                    top = max(top, logits[t, b, c])
                total, right = 0.0, 0.0
                for c in range(channels):
                    z = float(logits[t, b, c]) - float(top)
                    total += math.exp(z)
                    right += z * float(targets[t, b, c])
                loss += math.log(total) - right
                for c in range(channels):
                    p = math.exp(float(logits[t, b, c]) - float(top)) / total
                    gradient[t, b, c] = (p - float(targets[t, b, c])) * share
            else:
                for c in range(channels):
                    gradient[t, b, c] = 0
    return loss * share
