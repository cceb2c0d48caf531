"""Precision under autocast: products in its own, softmaxes in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def autocasts(x: Tensor) -> bool:
    """Whether autocast decides the precision of x; it leaves float64 alone."""
    kind = x.device.type
    casting = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return casting and x.is_floating_point() and x.dtype != torch.float64


def for_product(x: Tensor) -> Tensor:
    """x for a matrix product: under autocast in its precision, else unchanged."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if autocasts(x) else x


def for_softmax(x: Tensor) -> Tensor:
    """x for a softmax: under autocast in float32, else unchanged."""
    return x.float() if autocasts(x) else x
