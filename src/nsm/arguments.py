"""The arguments of a machine's forward pass, checked: one clear sentence for what can't be computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nsm.checks import UserError
from nsm.config import MachineConfig
from nsm.pytree import check_like
from nsm.state import MachineState, Noise

Lengths = Tensor | Sequence[int] | npt.NDArray[np.integer[Any]]
"""How long each sequence of a batch is."""
FORMS = 64
"""How many forms of states a machine remembers: one for each batch size and number of slots."""
Forms = dict[tuple[int | None, int | None], Any]
"""What states have to be like, by batch size and number of slots."""


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The precision that autocast wants on the device of x, if it is on."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def check_input(x: object, size: int, dtype: torch.dtype, *shapes: tuple[str, ...]) -> None:
    """x is to have one of the shapes, whose last axis I has `size` numbers, and the precision of the weights."""
    if (
        isinstance(x, Tensor)
        and any(x.dim() == len(axes) for axes in shapes)
        and x.shape[-1] == size
        and 0 not in x.shape
        and x.dtype == dtype
    ):
        return
    wanted = " or ".join(f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in shapes).replace("I", str(size))
    if not isinstance(x, Tensor):
        raise UserError(f"x must be a tensor of shape {wanted}, was {type(x).__name__}")
    if x.dim() not in map(len, shapes) or x.shape[-1] != size or 0 in x.shape:
        raise UserError(f"x must have shape {wanted}, none of it 0, was {tuple(x.shape)}")
    if x.dtype != dtype and (autocast_dtype(x) is None or not x.is_floating_point()):
        raise UserError(f"x must be {dtype} like the weights, was {x.dtype}")


def check_lengths(lengths: Lengths | None, steps: int, batch: int) -> Tensor | None:
    """(B,) on the CPU, or None."""
    if lengths is None:
        return None
    if torch.compiler.is_compiling() and isinstance(lengths, Tensor):
        return lengths.to("cpu", torch.int64)  # what they are is only known when they come: the operator looks then
    try:
        ends = lengths.tolist() if hasattr(lengths, "tolist") else list(lengths)
        ends = [end.item() if isinstance(end, np.generic) else end for end in ends]
    except TypeError:
        raise UserError(f"lengths must have one entry per sequence, {batch}, was {lengths!r}") from None
    if len(ends) != batch:
        raise UserError(f"lengths must have one entry per sequence, {batch}, had {len(ends)}")
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int) or not 1 <= end <= steps:
            raise UserError(f"lengths must be integers from 1 to T = {steps}, one was {end!r}")
    return torch.tensor(ends, device="cpu")


def check_noise(noise: Noise, shape: tuple[int, ...], config: MachineConfig, heads: int) -> None:
    """The noise of a pass of `shape`, (T, B) and so on, of a machine with so many control heads."""
    programs = config.programs.count if config.programs else 0
    expected = ((*shape, config.controller.size), (*shape, heads, programs))
    for name, drawn, size in zip(Noise._fields, noise, expected, strict=True):
        if drawn is not None and drawn.shape != size:
            raise UserError(f"noise.{name} must have shape {size}, was {tuple(drawn.shape)}")
    if noise.cell is not None and config.controller.kind != "lstm":
        raise UserError(f"noise.cell needs an lstm controller, was {config.controller.kind!r}")


def check_state(
    state: object,
    batch: int | None,
    dtype: torch.dtype,
    initial: Callable[[int | None, int | None], MachineState],
    forms: Forms | None,
) -> None:
    """A state is to be like an initial one; `forms` are those already seen, None if none is to be remembered."""
    if not isinstance(state, MachineState):
        raise UserError(f"state must be a MachineState, as initial_state() makes it, was {type(state).__name__}")
    tape = getattr(state.memory, "memory", None)
    slots = tape.shape[-2] if isinstance(tape, Tensor) and tape.dim() == (2 if batch is None else 3) else None
    if forms is None:
        check_like("state", state, initial(batch, slots))
        return
    # What a state has to be like does not change: a machine that is run step by step is not to make one every time.
    known = forms.get((batch, slots))
    if known is None:
        known = _form(initial(batch, slots))
        if len(forms) < FORMS:
            forms[batch, slots] = known
    if _form(state) != known or any(leaf.dtype != dtype for leaf in (*state.controller, *state.memory, state.read)):
        check_like("state", state, initial(batch, slots))


def _form(state: MachineState) -> Any:
    """What a state consists of: types of tuples, and shapes of tensors or whatever else is in their place."""
    leaves = *state.controller, *state.memory, state.read
    return type(state.controller), type(state.memory), [getattr(leaf, "shape", type(leaf)) for leaf in leaves]
