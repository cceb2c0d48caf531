"""A memory of your own inside a MANN: a stack that is pushed and popped by degrees.

A memory says which control heads it has and how wide their interfaces are, makes an initial state and takes a step.
Everything else (controller, interface networks, stored programs, traces) comes from the machine.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import nsm


class StackState(NamedTuple):
    memory: Tensor  # (B, N, M), the top is slot 0


class Stack(nsm.Memory):
    """Push and pop strengths decide how much of the pushed and of the popped stack is kept."""

    def __init__(self, slots: int, width: int) -> None:
        super().__init__()
        self.slots, self.width, self.read_size = slots, width, width
        self.heads = (nsm.Head("stack", "write", width + 3),)

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


torch.set_num_threads(1)  # tiny tensors: a second thread only gets in the way
torch.manual_seed(0)
machine = nsm.MANN(3, 2, controller=nsm.Controller(size=24), memory=Stack(slots=8, width=4), backend="reference")
optimiser = torch.optim.Adam(machine.parameters(), lr=0.02)

# Reverse four bits: push them, then say them backwards. Channel 2 is on while they are shown.
for step in range(121):
    bits = torch.randint(0, 2, (4, 64)).float()
    x = torch.zeros(8, 64, 3)
    x[:4, :, 0], x[:4, :, 1], x[:4, :, 2] = bits, 1 - bits, 1
    out, _ = machine(x)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(out[4:, :, 0], bits.flip(0))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 40 == 0:
        wrong = ((out[4:, :, 0] > 0).float() != bits.flip(0)).float().sum(0).mean().item()
        print(f"step {step:3}: loss {loss.item():.3f}, {wrong:.2f} of 4 bits wrong")
