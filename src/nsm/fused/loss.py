"""Binary cross-entropy and its gradient in one pass; see nsm.tasks.metrics."""

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
