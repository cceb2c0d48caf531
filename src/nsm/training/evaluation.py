"""Evaluation of a machine: any task, any length, any size of tape, on sequences fixed by a seed."""

from __future__ import annotations

from typing import Any

import torch

from nsm.checks import UserError
from nsm.machine import Machine
from nsm.pytree import tree_map
from nsm.tasks import Sums, Task

VALIDATION, TEST = 1, 2
"""Streams of random numbers; training draws from stream 0."""
FILLING = 4
"""Batches that fill an empty persistent memory before the first one that counts."""


@torch.no_grad()
def evaluate(
    machine: Machine,
    task: Task,
    sequences: int,
    seed: int = 0,
    stream: int = TEST,
    slots: int | None = None,
    persistent: bool = False,
    memory: Any = None,
    tight: bool = False,
) -> Sums:
    """The machine's figures on `sequences` sequences of a task.

    `slots` is the size of the tape, by default the machine's own; `tight` takes the smallest one that each batch fits
    on. `persistent` memory is kept from batch to batch. It starts as `memory`, the state that training left, repeated
    for as many sequences as there are, because its value depends on its history; without one, a few batches that don't
    count fill an empty memory.
    """
    if persistent and machine.config.repertoire is not None:
        raise UserError("a repertoire has no persistent memory: each of its programs has a tape of its own")
    training, device = machine.training, machine.initial_read.device
    machine.eval()
    total: Sums | None = None
    filling = FILLING if persistent and memory is None else 0
    generator = torch.Generator().manual_seed(seed)
    try:
        for number, batch in enumerate(task.examination(seed, stream, sequences, filling)):
            size = batch.mask.shape[1]
            if tight:
                slots = min(task.min_slots(batch), machine.memory.slots)
            state = machine.initial_state(size, slots)
            if memory is not None:
                state = state._replace(memory=tree_map(lambda leaf, size=size: _repeated(leaf, size), memory))
            x = torch.from_numpy(batch.inputs).to(device)
            noise = machine.draw_noise(*batch.mask.shape, generator=generator) if machine.noisy_tests else None
            logits, final = machine(x, state, noise=noise, lengths=batch.lengths.tolist())
            memory = final.memory if persistent else None
            if number >= filling:
                metrics = task.metrics(logits, batch)
                total = metrics if total is None else total + metrics
    finally:
        machine.train(training)
    assert total is not None
    return total


def _repeated(leaf: torch.Tensor, size: int) -> torch.Tensor:
    """The samples of a batch, repeated or cut to `size`."""
    return leaf[torch.arange(size, device=leaf.device) % leaf.shape[0]]
