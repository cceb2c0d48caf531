"""RMSprop and Adam on one flat buffer, gradients clipped by value.

All parameters of a machine become views of one tensor, and their gradients of another: an update is one pass over
both, in a kernel on the CPU, in a few torch operations elsewhere.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nsm.fused import optimiser as kernels
from nsm.fused.layout import padded
from nsm.training.experiment import Optimiser


def flatten(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Move a module's parameters and gradients into one flat tensor each, padded with zeros to a multiple of 16."""
    parameters = list(module.parameters())
    size = padded(sum(parameter.numel() for parameter in parameters))
    flat, gradient = parameters[0].new_zeros(size), parameters[0].new_zeros(size)
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        flat[start:end] = parameter.detach().reshape(-1)
        parameter.data = flat[start:end].view_as(parameter)
        parameter.grad = gradient[start:end].view_as(parameter)
        start = end
    return flat, gradient


class FlatOptimiser:
    """Updates a flat parameter buffer from its gradient; its state is two buffers and a count."""

    def __init__(self, config: Optimiser, flat: Tensor, gradient: Tensor) -> None:
        self.config, self.flat, self.gradient = config, flat, gradient
        self.square = torch.zeros_like(flat)
        self.velocity = torch.zeros_like(flat)
        self.updates = 0
        self._kernel = flat.device.type == "cpu" and flat.dtype == torch.float32
        self._arrays = [t.numpy() for t in (flat, gradient, self.square, self.velocity)] if self._kernel else []

    def step(self, rate: float) -> None:
        c = self.config
        self.updates += 1
        correction1, correction2 = 1 - c.momentum**self.updates, 1 - c.beta2**self.updates
        if self._kernel:
            if c.kind == "rmsprop":
                kernels.rmsprop(*self._arrays, rate, c.alpha, c.momentum, c.epsilon, c.clip)
            else:
                kernels.adam(*self._arrays, rate, c.momentum, c.beta2, c.epsilon, c.clip, correction1, correction2)
            return
        g = self.gradient.clamp(-c.clip, c.clip)
        if c.kind == "rmsprop":
            self.square.mul_(c.alpha).addcmul_(g, g, value=1 - c.alpha)
            self.velocity.mul_(c.momentum).addcdiv_(g, self.square.sqrt().add_(c.epsilon))
            self.flat.add_(self.velocity, alpha=-rate)
        else:
            self.velocity.mul_(c.momentum).add_(g, alpha=1 - c.momentum)
            self.square.mul_(c.beta2).addcmul_(g, g, value=1 - c.beta2)
            self.flat.addcdiv_(
                self.velocity, (self.square / correction2).sqrt_().add_(c.epsilon), value=-rate / correction1
            )

    def state(self) -> dict[str, Tensor]:
        return {"square": self.square, "velocity": self.velocity, "updates": torch.tensor([self.updates], device="cpu")}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.square.copy_(state["square"])
        self.velocity.copy_(state["velocity"])
        self.updates = int(state["updates"])
