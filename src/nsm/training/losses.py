"""A task's loss and its gradient: computed by the kernels if they have it, else by autograd."""

from __future__ import annotations

import torch

from nsm.fused.loss import BINARY, SOFTMAX
from nsm.tasks import Batch, Task
from nsm.tasks.arrays import Floats
from nsm.tasks.classification import Classification

KNOWN = {Task.loss: BINARY, Classification.loss: SOFTMAX}


def known(task: Task) -> int | None:
    """The kernels' loss for a task, None if they have none."""
    return KNOWN.get(type(task).loss)


def counted(task: Task, batch: Batch) -> int:
    """The number of steps, or of outputs, over which such a loss is a mean."""
    steps = int((batch.mask > 0).sum())
    return max(1, steps * (batch.targets.shape[2] if known(task) == BINARY else 1))


def loss_and_gradient(task: Task, logits: Floats, batch: Batch) -> tuple[float, Floats]:
    """`task.loss` of logits (T, B, O), and its gradient (T, B, O)."""
    leaf = torch.from_numpy(logits).requires_grad_()
    loss = task.loss(leaf, batch)
    (found,) = torch.autograd.grad(loss, leaf)
    return loss.item(), found.numpy()
