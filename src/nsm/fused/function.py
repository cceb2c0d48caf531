"""The kernels behind `machine(x)`: one call forward, one call back, for the whole sequence."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from nsm import nested
from nsm.checks import UserError
from nsm.fused.engine import TAPES, Engine, Run
from nsm.fused.segments import Segments
from nsm.machine import MANN, NUTM, Machine, MachineState, Noise, Trace

_engines: WeakKeyDictionary[Machine, Engine] = WeakKeyDictionary()


def unsupported(machine: Machine, x: Tensor, noise: Noise | None = None) -> str | None:
    """Why the kernels can't run this machine on this input, or None if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile"
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
    if noise is not None and any(drawn is not None and drawn.requires_grad for drawn in noise):
        return "noise with a gradient"
    return _changed(machine)


def _changed(machine: Machine) -> str | None:
    """What is other than it was made, or has hooks: kernels read weights by name, and call no module."""
    kind = type(machine)
    if kind._step is not Machine._step or kind._interface not in (MANN._interface, NUTM._interface):
        return f"the steps of a {kind.__name__}"
    modules, parameters = dict(machine.named_modules()), dict(machine.named_parameters())
    for name, made in machine.made_of.modules.items():
        if name not in modules or type(modules[name]) is not made:
            return f"a changed {name}"
        if _hooked(modules[name]):
            return f"hooks on {name}"
    for name, shape in machine.made_of.parameters.items():
        if name not in parameters or parameters[name].shape != shape:
            return f"a changed {name}"
    return None


def _hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


def engine(machine: Machine) -> Engine:
    """The machine's engine, made once and kept beside it."""
    if machine not in _engines:
        _engines[machine] = Engine(machine)
    return _engines[machine]


def forward(
    machine: Machine, x: Tensor, state: MachineState, lengths: list[int], trace: bool | str, noise: Noise
) -> tuple[Tensor, MachineState, Trace | None]:
    """As the reference: x (T, B, I) → out (T, B, O), final state, and a trace (without gradients) if asked for."""
    parameters = dict(machine.named_parameters())
    flat = torch.cat([parameters[name].reshape(-1) for name in machine.made_of.parameters]).to(x.dtype)
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
        if torch.is_grad_enabled():  # create_graph=True: what comes out would pass for a constant
            raise UserError("the fused back end has no second derivatives; backend 'reference' has")
        run: Run | Segments = ctx.run
        arrays = iter([d.contiguous().numpy() for d in d_ends])
        d_final = nested.apply(lambda _: next(arrays), ctx.like)
        flat = np.zeros(run.engine.size, np.float32)
        run.backward(d_out.contiguous().numpy(), d_final, flat)
        leaves: list[Tensor] = []
        nested.apply(lambda array: leaves.append(torch.from_numpy(array)), run.initial_gradient())
        d_x = torch.from_numpy(run.input_gradient()) if ctx.needs_input_grad[7] else None
        return None, None, None, None, None, None, torch.from_numpy(flat), d_x, *leaves
