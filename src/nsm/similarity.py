"""Cosine similarity that is safe at zero vectors; data memory and program memory are addressed by it."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-8
"""Inside the square root, which keeps the gradient at a zero vector finite."""


def above_zero(small: float, like: Tensor) -> float:
    """`small`, or the smallest positive number of the dtype."""
    return max(small, torch.finfo(like.dtype).tiny)


def norm(x: Tensor) -> Tensor:
    """√(Σx² + ε) over the last dimension."""
    return torch.sqrt((x * x).sum(dim=-1) + above_zero(EPSILON, x))


def cosine_similarity(a: Tensor, b: Tensor) -> Tensor:
    """a·b / (|a| |b|) over the last dimension, broadcasting the others."""
    return (a * b).sum(dim=-1) / (norm(a) * norm(b))
