"""Attention to programs (Eqs. 3–4): from a query and a strength to a weight per program; one strategy per mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nsm.similarity import cosine_similarity


def key_value_logits(query: Tensor, strength: Tensor, keys: Tensor) -> Tensor:
    """β D(k, k_i), Eqs. 3–4. query (…, K), strength (…, 1), keys (P, K) → (…, P)."""
    return strength * cosine_similarity(query.unsqueeze(-2), keys)


def direct_logits(query: Tensor, strength: Tensor, keys: Tensor) -> Tensor:
    """β k: the query network puts out the logits itself, without keys. query (…, P), strength (…, 1) → (…, P)."""
    return strength * query


def softmax_weights(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """softmax over programs, Eq. 4. (…, P) → (…, P)."""
    return torch.softmax(logits, dim=-1)


def gumbel_weights(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """One program, chosen by Gumbel-max on the logits; its gradient is that of the softmax at `temperature`.

    Without noise (evaluation) the choice is greedy. logits, noise (…, P) → one-hot (…, P).
    """
    if noise is not None:
        logits = logits + noise
    soft = torch.softmax(logits / temperature, dim=-1)
    # Not F.one_hot, which depends on values and fails under vmap.
    hard = (logits.argmax(dim=-1, keepdim=True) == torch.arange(logits.shape[-1], device=logits.device)).to(soft.dtype)
    return hard + (soft - soft.detach())


def gumbel_probabilities(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """softmax((w + noise) / temperature) of w = softmax(logits): the published code adds its noise to probabilities.

    As probabilities are at most 1, the mixture is nearly uniform at its temperature of 10. (…, P) → (…, P).
    """
    weights = torch.softmax(logits, dim=-1)
    weights = weights if noise is None else weights + noise
    # A program that is forbidden, by a logit of −∞, gets no weight.
    return torch.softmax((weights / temperature).masked_fill(logits == -torch.inf, -torch.inf), dim=-1)


@dataclass(frozen=True)
class Attention:
    """An attention strategy: how logits are computed, and how they become weights."""

    logits: Callable[[Tensor, Tensor, Tensor], Tensor] | None
    weights: Callable[[Tensor, Tensor | None, float], Tensor]
    has_keys: bool
    noisy: bool = False
    """Whether Gumbel noise is drawn in training."""
    noisy_tests: bool = False
    """Whether Gumbel noise is drawn in tests too."""


ATTENTION: dict[str, Attention] = {
    "key-value": Attention(key_value_logits, softmax_weights, has_keys=True),
    "direct": Attention(direct_logits, softmax_weights, has_keys=False),
    "uniform": Attention(None, softmax_weights, has_keys=False),
    "gumbel": Attention(key_value_logits, gumbel_weights, has_keys=True, noisy=True),
    "gumbel-probabilities": Attention(
        key_value_logits, gumbel_probabilities, has_keys=True, noisy=True, noisy_tests=True
    ),
}


def seed_from(weights: Tensor) -> int:
    """A seed derived from initial weights, so that the seed of the weights also decides the noise."""
    if weights.is_meta:
        return 0
    return int.from_bytes(weights.detach().flatten()[:2].to("cpu", torch.float32).numpy().tobytes(), "little") >> 1


def gumbel_noise(*shape: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard Gumbel noise −log E, E exponential, in the dtype and on the device of `like`."""
    exponential = torch.empty(*shape, dtype=like.dtype, device="cpu").exponential_(generator=generator)
    return -exponential.clamp_min(torch.finfo(like.dtype).tiny).log().to(like.device)
