"""How good a machine is: any task, any length, any size of tape, on sequences fixed by a seed."""

from __future__ import annotations

import torch

from nsm.machine import Machine
from nsm.tasks import Sums, Task

HELD_OUT, TEST = 1, 2
"""Streams of the generators: training draws from stream 0."""


@torch.no_grad()
def evaluate(
    machine: Machine, task: Task, sequences: int, seed: int = 0, stream: int = TEST, slots: int | None = None
) -> Sums:
    """The machine's figures on `sequences` sequences of a task; `slots` is the tape's size if not the machine's own."""
    training, device = machine.training, machine.initial_read.device
    machine.eval()
    total: Sums | None = None
    try:
        for batch in task.examination(seed, stream, sequences):
            state = machine.initial_state(batch.mask.shape[1], slots)
            x = torch.from_numpy(batch.inputs).to(device)
            logits, _ = machine(x, state, lengths=batch.lengths.tolist())
            metrics = task.metrics(logits, batch)
            total = metrics if total is None else total + metrics
    finally:
        machine.train(training)
    assert total is not None
    return total
