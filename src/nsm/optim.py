"""RMSprop and Adam for machines on a CPU: `torch.optim`'s interface and numbers, in one pass over all parameters.

A machine has some twenty tensors, most of them small: the overhead of torch's optimisers per tensor adds up to the time
of a forward pass of a whole sequence. State dictionaries, parameter groups, schedulers and closures are torch's own.
"""

from __future__ import annotations

import ctypes
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from nsm.checks import UserError


class _OnePass(Optimizer, ABC):
    """Common part: the state of a parameter, and the call."""

    square: str
    velocity: str

    @abstractmethod
    def _numbers(self, group: dict[str, Any], step: int) -> tuple[int, float, float, float, float, float]:
        """Whether it is Adam, the decay of square and of velocity, ε, and the two corrections."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; `closure`, if given, evaluates the loss again."""
        # Not at the top: it imports the compiler of the kernels.
        from nsm.fused.optimiser import update

        if update.address is None:
            update.compile()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            together: dict[int, list[int]] = {}
            for parameter in moved:
                state = self.state[parameter] or self._begin(parameter)
                state["step"] += 1
                table = together.setdefault(int(state["step"]), [])
                table += (
                    parameter.data_ptr(), _gradient(parameter).data_ptr(),
                    state[self.square].data_ptr(), state[self.velocity].data_ptr(), parameter.numel(),
                )  # fmt: skip
            for step, table in together.items():
                words = (ctypes.c_int64 * len(table))(*table)
                adam, *numbers = self._numbers(group, step)
                rate, decay = float(group["lr"]), float(group["weight_decay"])
                floats = rate, *numbers[:3], decay, *numbers[3:]
                call = struct.pack("qqq7d", ctypes.addressof(words), len(table) // 5, adam, *floats)
                record = ctypes.create_string_buffer(call, len(call))
                update.ctypes(ctypes.addressof(record))
            torch.autograd.graph.increment_version(moved)
        return loss

    def _begin(self, parameter: Tensor) -> dict[str, Any]:
        if parameter.device.type != "cpu" or parameter.dtype != torch.float32 or not parameter.is_contiguous():
            found = f"{parameter.dtype} on {parameter.device.type}"
            raise UserError(
                f"nsm.optim needs contiguous float32 parameters on the CPU, one was {found}; use torch.optim"
            )
        state: dict[str, Any] = self.state[parameter]
        state["step"] = 0
        state[self.square], state[self.velocity] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state


def _gradient(parameter: Tensor) -> Tensor:
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse or gradient.dtype != torch.float32:
        raise UserError("nsm.optim needs dense float32 gradients; use torch.optim")
    if not gradient.is_contiguous():
        parameter.grad = gradient = gradient.contiguous()
    return gradient


class RMSprop(_OnePass):
    """v ← α v + (1−α) g²,  b ← μ b + g / (√v + ε),  p ← p − lr b: as `torch.optim.RMSprop`."""

    square, velocity = "square_avg", "momentum_buffer"

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
    ) -> None:
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum))

    def _numbers(self, group: dict[str, Any], step: int) -> tuple[int, float, float, float, float, float]:
        return 0, group["alpha"], group["momentum"], group["eps"], 1.0, 1.0


class Adam(_OnePass):
    """m ← β₁ m + (1−β₁) g,  v ← β₂ v + (1−β₂) g²,  p ← p − lr (m/c₁) / (√(v/c₂) + ε): as `torch.optim.Adam`."""

    square, velocity = "exp_avg_sq", "exp_avg"

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def _numbers(self, group: dict[str, Any], step: int) -> tuple[int, float, float, float, float, float]:
        beta1, beta2 = group["betas"]
        return 1, beta2, beta1, group["eps"], 1 - beta1**step, 1 - beta2**step
