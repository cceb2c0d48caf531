"""How a program is attended to (Eqs. 3–4): from a query and a strength to a weight per program, one strategy a mode."""

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
    """β k: the query network names the programs itself, no key is matched. query (…, P), strength (…, 1) → (…, P)."""
    return strength * query


def softmax_weights(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """softmax over programs, Eq. 4. (…, P) → (…, P)."""
    return torch.softmax(logits, dim=-1)


def gumbel_weights(logits: Tensor, noise: Tensor | None, temperature: float) -> Tensor:
    """One program, chosen by Gumbel-max on the logits; the gradient is that of the softmax at `temperature`.

    Without noise (evaluation) the choice is greedy. logits, noise (…, P) → one-hot (…, P).
    """
    if noise is not None:
        logits = logits + noise
    soft = torch.softmax(logits / temperature, dim=-1)
    # Not F.one_hot: it looks at the numbers, which vmap can't have.
    hard = (logits.argmax(dim=-1, keepdim=True) == torch.arange(logits.shape[-1], device=logits.device)).to(soft.dtype)
    return hard + (soft - soft.detach())


@dataclass(frozen=True)
class Attention:
    """An attention strategy: how logits come about, and how they become weights."""

    logits: Callable[[Tensor, Tensor, Tensor], Tensor] | None
    weights: Callable[[Tensor, Tensor | None, float], Tensor]
    has_keys: bool
    noisy: bool = False


ATTENTION: dict[str, Attention] = {
    "key-value": Attention(key_value_logits, softmax_weights, has_keys=True),
    "direct": Attention(direct_logits, softmax_weights, has_keys=False),
    "uniform": Attention(None, softmax_weights, has_keys=False),
    "gumbel": Attention(key_value_logits, gumbel_weights, has_keys=True, noisy=True),
}


def seed_from(weights: Tensor) -> int:
    """A seed that follows from weights just drawn: whoever has others has other noise, and their seed decides both."""
    if weights.is_meta:
        return 0
    return int.from_bytes(weights.detach().flatten()[:2].to("cpu", torch.float32).numpy().tobytes(), "little") >> 1


def gumbel_noise(*shape: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard Gumbel noise −log E, E exponential, in the dtype and on the device of `like`."""
    exponential = torch.empty(*shape, dtype=like.dtype, device="cpu").exponential_(generator=generator)
    return -exponential.clamp_min(torch.finfo(like.dtype).tiny).log().to(like.device)
