"""A memory of your own: a stack with continuous push and pop strengths, trained by `nsm.train` like any other memory.

A memory defines its control heads and the size of their interfaces, makes an initial state and takes a step. Everything
else (controller, interface networks, stored programs, traces) comes from the machine. A run's files store the memory's
configuration.

Run it with: python examples/custom_memory.py        (about ten seconds)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import nsm


class StackState(NamedTuple):
    memory: Tensor  # (B, N, M), the top is slot 0


class Stack(nsm.Memory):
    """The next stack is a mixture of the pushed, the popped and the unchanged stack, weighted by the strengths."""

    def __init__(self, config: "StackConfig") -> None:
        super().__init__()
        self.slots, self.width, self.heads, self.read_size = config.slots, config.width, config.heads, config.read_size

    def initial_state(self, batch: int, slots: int | None = None) -> StackState:
        return StackState(torch.zeros(batch, slots or self.slots, self.width))

    def forward(self, interfaces: Sequence[Tensor], state: StackState) -> tuple[Tensor, StackState, nsm.Addresses]:
        value, action = interfaces[0].split([self.width, 3], dim=-1)
        push, pop, stay = torch.softmax(action, dim=-1).unsqueeze(-1).split(1, dim=1)
        stack = state.memory
        pushed = torch.cat([torch.tanh(value).unsqueeze(1), stack[:, :-1]], dim=1)
        popped = torch.cat([stack[:, 1:], torch.zeros_like(stack[:, :1])], dim=1)
        stack = push * pushed + pop * popped + stay * stack
        top = torch.zeros(stack.shape[:2]).index_fill(1, torch.tensor([0]), 1.0).unsqueeze(1)
        return stack[:, 0], StackState(stack), nsm.Addresses(top, top)


@dataclass(frozen=True)
class StackConfig(nsm.MemoryConfig):
    slots: int = 8
    width: int = 4

    @property
    def heads(self) -> tuple[nsm.Head, ...]:
        return (nsm.Head("stack", "write", self.width + 3),)

    @property
    def read_size(self) -> int:
        return self.width

    def build(self, generator: torch.Generator | None = None) -> Stack:
        return Stack(self)


class Backwards(nsm.Task):
    """Read four bits, then output them in reverse order; channel 2 is on during the input."""

    def sample(self, random):
        bits = random.integers(0, 2, 4)
        inputs, targets = np.zeros((8, 3)), np.zeros((8, 1))
        inputs[:4] = np.stack([bits, 1 - bits, np.ones(4)], axis=1)
        targets[4:, 0] = bits[::-1]
        return inputs, targets, np.arange(8) >= 4


if __name__ == "__main__":
    torch.set_num_threads(1)  # tiny tensors: a second thread does not help
    machine = nsm.MANN(3, 1, controller=nsm.Controller(size=24), memory=StackConfig(), backend="reference")
    schedule = nsm.Schedule(150, batch_size=64, evaluate_every=50, test_sequences=200)
    optimiser = nsm.Optimiser("adam", learning_rate=0.02)
    options = {"schedule": schedule, "optimiser": optimiser, "backend": "reference"}
    run = nsm.train(Backwards(), machine, out="runs/stack", callbacks=[nsm.ProgressBar()], **options)
    print(run.test())
