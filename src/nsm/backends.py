"""The fused backend as a machine uses it: when it applies, and a forward pass on it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import Tensor

from nsm.checks import UserError
from nsm.operands import NotCovered
from nsm.state import MachineState, Noise

logger = logging.getLogger("nsm")
_told: set[str] = set()
"""Warnings about the fused backend that have been logged; each is logged once."""


def operands_for(backend: str, operands: Callable[[], list[Tensor]]) -> list[Tensor] | None:
    """The weights for the fused backend, or None for the reference."""
    if backend == "reference":
        return None
    try:
        return operands()
    except NotCovered as reason:
        if backend == "fused":
            raise UserError(f"backend 'fused' doesn't cover {reason}; backend 'reference' does") from None
        if not reason.plain and str(reason) not in _told:
            _told.add(str(reason))
            logger.warning("nsm: the fused backend doesn't cover %s; using the reference, which is slower", reason)
        return None


def fused(
    operator: str,
    description: str,
    weights: list[Tensor],
    x: Tensor,
    state: MachineState,
    lengths: Tensor | None,
    trace: bool | str,
    noise: Noise,
) -> tuple[Tensor, MachineState, list[Tensor]]:
    """All steps in one operator: the outputs, the final state and the traces, in the operator's order."""
    # Not at the top: importing Numba takes half as long as torch, and the reference does not need it.
    from nsm.fused import kernels, operators

    level = {False: 0, True: kernels.WITH_ADDRESSES, "memory": kernels.WITH_TAPES}[trace]
    leaves = [*state.controller, *state.memory, state.read]
    out, final, happened, _ = operators.run(operator, x, leaves, weights, *noise, lengths, description, level)
    controller, memory, split = type(state.controller), type(state.memory), len(state.controller)
    return out, MachineState(controller(*final[:split]), memory(*final[split:-1]), final[-1]), happened
