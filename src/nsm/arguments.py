"""Checks of the arguments of a machine's forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from nsm.checks import UserError
from nsm.config import MachineConfig
from nsm.pytree import check_like
from nsm.state import MachineState, Noise

Lengths = Tensor | Sequence[int] | npt.NDArray[np.integer[Any]]
"""The length of each sequence of a batch."""
FORMS = 64
"""Maximum number of state forms that a machine caches, one for each batch size and number of slots."""
Forms = dict[tuple[int | None, int | None], Any]
"""The form of a state, by batch size and number of slots."""


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The precision of autocast on the device of x, if it is enabled."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def check_input(x: object, size: int, dtype: torch.dtype, *shapes: tuple[str, ...]) -> None:
    """x must have one of the shapes, whose last axis I is `size`, and the precision of the weights."""
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
        raise UserError(f"x must have shape {wanted}, was {tuple(x.shape)}{_remedy(x, size, shapes[-1])}")
    if x.dtype != dtype and (autocast_dtype(x) is None or not x.is_floating_point()):
        raise UserError(f"x must be {dtype} like the weights, was {x.dtype}")


def _remedy(x: Tensor, size: int, axes: tuple[str, ...]) -> str:
    """What to do about x: for a missing dimension a call that adds it."""
    if 0 in x.shape:
        return "; no dimension may be 0"
    if x.dim() != len(axes) - 1 or x.shape[-1:] != (size,):
        return ""
    name, axis = ("batch", axes.index("B")) if "B" in axes else ("time", axes.index("T"))
    return f"; add a {name} dimension with x.unsqueeze({axis})"


def check_lengths(lengths: Lengths | None, steps: int, batch: int) -> Tensor | None:
    """(B,) on the CPU, or None."""
    if lengths is None:
        return None
    if torch.compiler.is_compiling() and isinstance(lengths, Tensor):
        return lengths.to("cpu", torch.int64)  # unknown until they are computed: the operator checks them
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
    """Check the noise of a pass of `shape`, such as (T, B), for a machine with `heads` control heads."""
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
    """A state must have the form of an initial one; `forms` caches these, unless it is None."""
    if not isinstance(state, MachineState):
        raise UserError(f"state must be a MachineState, as from initial_state(), was {type(state).__name__}")
    tape = getattr(state.memory, "memory", None)
    slots = tape.shape[-2] if isinstance(tape, Tensor) and tape.dim() == (2 if batch is None else 3) else None
    if forms is None:
        check_like("state", state, initial(batch, slots))
        return
    # Cached: otherwise a machine that runs step by step would make an initial state at every step.
    known = forms.get((batch, slots))
    if known is None:
        known = _form(initial(batch, slots))
        if len(forms) < FORMS:
            forms[batch, slots] = known
    if _form(state) != known or any(leaf.dtype != dtype for leaf in (*state.controller, *state.memory, state.read)):
        check_like("state", state, initial(batch, slots))


def _form(state: MachineState) -> Any:
    """The types of a state's tuples, and the shapes of its tensors or the types of what is in their place."""
    leaves = *state.controller, *state.memory, state.read
    return type(state.controller), type(state.memory), [getattr(leaf, "shape", type(leaf)) for leaf in leaves]


def repacked(x: PackedSequence, out: Tensor, lengths: Tensor) -> PackedSequence:
    """out (T, B, O) packed in the order of x."""
    if x.sorted_indices is not None:
        out, lengths = out[:, x.sorted_indices], lengths[x.sorted_indices.cpu()]
    return x._replace(data=pack_padded_sequence(out, lengths).data)
