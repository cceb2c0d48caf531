"""Trees of tensors, nested named tuples, as states and traces are: map over their leaves.

Written by hand: for a state of six leaves `torch.utils._pytree`, which is private, takes 2 to 4 times as long; `optree`
takes as long and would be another dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from nsm.checks import UserError

T = TypeVar("T")
"""A tree; mapping keeps its structure."""


def tree_map(function: Callable[..., Any], *trees: T) -> T:
    """The tree of `function(leaf, leaf, …)` over trees of the same shape; None stays None."""
    mapped: T = _map(function, *trees)
    return mapped


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    first = trees[0]
    if first is None:
        return None
    if not isinstance(first, tuple):
        return function(*trees)
    children = [_map(function, *branches) for branches in zip(*trees, strict=True)]
    return type(first)(*children) if hasattr(first, "_fields") else tuple(children)


def tree_leaves(tree: object) -> list[Tensor]:
    """The tensors of a tree, from first to last."""
    leaves: list[Tensor] = []
    tree_map(leaves.append, tree)
    return leaves


def tree_stack(trees: Sequence[T]) -> T:
    """One tree with time first, from a tree per step."""
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def tree_where(running: Tensor, new: T, old: T) -> T:
    """Per sample: `new` while its sequence is running, `old` after it has ended. running (B,)."""
    return tree_map(lambda a, b: torch.where(_along(running, a), a, b), new, old)


def tree_mask(running: Tensor, tree: T) -> T:
    """Zero for samples whose sequence has ended. running (B,)."""
    return tree_map(lambda a: torch.where(_along(running, a), a, torch.zeros_like(a)), tree)


def _along(running: Tensor, leaf: Tensor) -> Tensor:
    return running.view(-1, *[1] * (leaf.dim() - 1))


def check_like(name: str, tree: Any, expected: Any) -> None:
    """Raise a UserError that names the first leaf of `tree` that differs from `expected` in type or shape."""
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
