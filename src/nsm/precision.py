"""Which precision autocast wants: products in its own, softmaxes in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on where x is, and decides its precision: that of float64 it leaves alone."""
    kind = x.device.type
    casting = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return casting and x.is_floating_point() and x.dtype != torch.float64


def for_product(x: Tensor) -> Tensor:
    """x as a matrix product takes it: under autocast in its precision, else as it is."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if autocasts(x) else x


def for_softmax(x: Tensor) -> Tensor:
    """x as a softmax takes it: under autocast in float32, else as it is."""
    return x.float() if autocasts(x) else x
