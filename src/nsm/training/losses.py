"""A task's loss and its gradient for outputs in arrays: what autograd would give, by one pass where there is one."""

from __future__ import annotations

import numpy as np
import torch

from nsm.fused.loss import binary_cross_entropy, softmax_cross_entropy
from nsm.tasks import Batch, Task
from nsm.tasks.arrays import Floats
from nsm.tasks.classification import Classification

PASSES = {Task.loss: binary_cross_entropy, Classification.loss: softmax_cross_entropy}


def loss_and_gradient(task: Task, logits: Floats, batch: Batch) -> tuple[float, Floats]:
    """`task.loss` of logits (T, B, O), and its gradient (T, B, O)."""
    fused = PASSES.get(type(task).loss)
    if fused is not None:
        gradient = np.empty_like(logits)
        return float(fused(logits, batch.targets, batch.mask, gradient)), gradient
    leaf = torch.from_numpy(logits).requires_grad_()
    loss = task.loss(leaf, batch)
    (found,) = torch.autograd.grad(loss, leaf)
    return loss.item(), found.numpy()
