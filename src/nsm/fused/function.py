"""The kernels behind `machine(x)`: one call forward, one call back, for the whole sequence."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from nsm import nested
from nsm.fused.engine import TAPES, Engine, Run
from nsm.fused.segments import Segments
from nsm.machine import Machine, MachineState, Noise, Trace

_engines: WeakKeyDictionary[Machine, Engine] = WeakKeyDictionary()


def unsupported(machine: Machine, x: Tensor) -> str | None:
    """Why the kernels can't run this machine on this input, or None if they can."""
    if x.device.type != "cpu":
        return f"tensors on {x.device.type}"
    if x.dtype != torch.float32:
        return f"{x.dtype}"
    if machine.config.controller.kind not in ("lstm", "feed-forward"):
        return f"a {machine.config.controller.kind} controller"
    if type(machine.memory) not in TAPES:
        return f"a {type(machine.memory).__name__}"
    if getattr(machine.config.memory, "links", False):
        return "temporal links"
    return None


def engine(machine: Machine) -> Engine:
    """The machine's engine, made once and kept beside it."""
    if machine not in _engines:
        _engines[machine] = Engine(machine)
    return _engines[machine]


def forward(
    machine: Machine, x: Tensor, state: MachineState, lengths: list[int], trace: bool | str, noise: Noise
) -> tuple[Tensor, MachineState, Trace | None]:
    """As the reference: x (T, B, I) → out (T, B, O), final state, and a trace (without gradients) if asked for."""
    flat = torch.cat([parameter.reshape(-1) for parameter in machine.parameters()]).to(x.dtype)
    leaves: list[Tensor] = []
    nested.apply(leaves.append, state)
    happened: list[Trace] = []
    out, *ends = _Sequence.apply(engine(machine), state, lengths, trace, noise, happened, flat, x, *leaves)
    rest = iter(ends)
    return out, nested.apply(lambda _: next(rest), state), happened[0] if happened else None


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernels: Engine,
        like: MachineState,
        lengths: list[int],
        trace: bool | str,
        noise: Noise,
        happened: list[Trace],
        flat: Tensor,
        x: Tensor,
        *leaves: Tensor,
    ) -> tuple[Tensor, ...]:
        arrays = iter([np.ascontiguousarray(leaf.numpy()) for leaf in leaves])
        state = nested.apply(lambda _: next(arrays), like)
        drawn = Noise(*(None if n is None else n.contiguous().numpy() for n in noise))
        run = kernels.run(
            flat.numpy(), x.contiguous().numpy(), lengths, state, drawn, ctx.needs_input_grad[7], bool(trace)
        )
        if isinstance(run, Run) and trace:
            happened.append(nested.apply(torch.from_numpy, run.trace(trace == "memory")))
        ends: list[Tensor] = []
        nested.apply(lambda array: ends.append(torch.from_numpy(np.ascontiguousarray(array))), run.final())
        ctx.run, ctx.like = run, like
        return torch.from_numpy(run.outputs()), *ends

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, *d_ends: Tensor) -> tuple[Any, ...]:
        run: Run | Segments = ctx.run
        arrays = iter([d.contiguous().numpy() for d in d_ends])
        d_final = nested.apply(lambda _: next(arrays), ctx.like)
        flat = np.zeros(run.engine.size, np.float32)
        run.backward(d_out.contiguous().numpy(), d_final, flat)
        leaves: list[Tensor] = []
        nested.apply(lambda array: leaves.append(torch.from_numpy(array)), run.initial_gradient())
        d_x = torch.from_numpy(run.input_gradient()) if ctx.needs_input_grad[7] else None
        return None, None, None, None, None, None, torch.from_numpy(flat), d_x, *leaves
