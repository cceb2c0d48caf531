"""States and traces are named tuples of tensors, nested: walk them leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nsm.checks import UserError


def apply(function: Callable[..., Any], *trees: Any) -> Any:
    """The tree of `function(leaf, leaf, …)` over trees of the same shape; None stays None."""
    first = trees[0]
    if first is None:
        return None
    if not isinstance(first, tuple):
        return function(*trees)
    children = [apply(function, *branches) for branches in zip(*trees, strict=True)]
    return type(first)(*children) if hasattr(first, "_fields") else tuple(children)


def _along(running: Tensor, leaf: Tensor) -> Tensor:
    return running.view(-1, *[1] * (leaf.dim() - 1))


def select(running: Tensor, new: Any, old: Any) -> Any:
    """Per sample: `new` where it is still running, `old` where its sequence has ended. running (B,)."""
    return apply(lambda a, b: torch.where(_along(running, a), a, b), new, old)


def scale(tree: Any, running: Tensor) -> Any:
    """Zero for samples whose sequence has ended. running (B,)."""
    return apply(lambda a: torch.where(_along(running, a), a, torch.zeros_like(a)), tree)


def stack(trees: Sequence[Any]) -> Any:
    """One tree with time in front from a tree per step."""
    return apply(lambda *leaves: torch.stack(leaves), *trees)


def check_like(name: str, tree: Any, expected: Any) -> None:
    """Raise a ValueError that names the first leaf of `tree` which is not like the one of `expected`."""
    if isinstance(expected, Tensor):
        if not isinstance(tree, Tensor):
            raise UserError(f"{name} must be a tensor of shape {tuple(expected.shape)}, was {type(tree).__name__}")
        if tree.shape != expected.shape:
            raise UserError(f"{name} must have shape {tuple(expected.shape)} here, had {tuple(tree.shape)}")
        if tree.dtype != expected.dtype:
            raise UserError(f"{name} must be {expected.dtype} like the weights, was {tree.dtype}")
        return
    if type(tree) is not type(expected):
        raise UserError(f"{name} must be a {type(expected).__name__} for this machine, was {type(tree).__name__}")
    for field, branch, wanted in zip(expected._fields, tree, expected, strict=True):
        check_like(f"{name}.{field}", branch, wanted)
