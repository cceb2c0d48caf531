"""Training iterations in PyTorch: with a machine on either backend, and with the reference's steps compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nsm.bench.equality import Answer, gradients
from nsm.bench.work import OPTIMISER, Work
from nsm.machine import MachineState, Noise
from nsm.pytree import tree_mask, tree_where


class Torch:
    """A training iteration as a user would write it, on either backend."""

    def __init__(self, work: Work, backend: str) -> None:
        self.work, self.machine = work, work.machine(backend)
        self.optimiser = torch.optim.RMSprop(
            self.machine.parameters(),
            lr=OPTIMISER.learning_rate,
            alpha=OPTIMISER.alpha,
            eps=OPTIMISER.epsilon,
            momentum=OPTIMISER.momentum,
            foreach=True,
        )

    def forward(self) -> Tensor:
        out: Tensor = self.machine(self.work.x, lengths=self.work.lengths)[0]
        return out

    def answer(self) -> Answer:
        self.optimiser.zero_grad(set_to_none=True)
        out = self.forward()
        self.work.loss(out).backward()
        return Answer(out.detach().numpy(), gradients(self.machine))

    def iterate(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.work.loss(self.forward()).backward()
        self.optimiser.step()


class Compiled(Torch):
    """The reference's step, forward and backward compiled by inductor as one graph; Python loops over time.

    Compiling the whole loop as one graph would take minutes for each length.
    """

    def __init__(self, work: Work) -> None:
        super().__init__(work, "reference")
        # Reset the cache: graphs of earlier shapes count towards the recompilation limit.
        torch._dynamo.reset()
        options: dict[str, Any] = {"fullgraph": True, "dynamic": False, "options": {"cpp_wrapper": True}}
        self.step = torch.compile(self._step, **options)
        self.last_step = torch.compile(self._last_step, **options)

    def _step(self, x: Tensor, state: MachineState) -> tuple[Tensor, MachineState]:
        y, after, _ = self.machine._step(x, state, Noise())
        return y, after

    def _last_step(self, x: Tensor, state: MachineState, running: Tensor) -> tuple[Tensor, MachineState]:
        """A step after the end of some sequences."""
        y, after = self._step(x, state)
        kept: MachineState = tree_where(running, after, state)
        return tree_mask(running, y), kept

    def forward(self) -> Tensor:
        x, lengths = self.work.x, self.work.lengths
        state, outputs = self.machine.initial_state(x.shape[1]), []
        shortest = len(x) if lengths is None else int(lengths.min())
        for t in range(len(x)):
            if lengths is None or t < shortest:
                y, state = self.step(x[t], state)
            else:
                y, state = self.last_step(x[t], state, t < lengths)
            outputs.append(y)
        return torch.stack(outputs)
