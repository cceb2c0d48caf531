"""The Differentiable Neural Computer's memory (Graves et al., 2016): allocation, free gates, temporal links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nsm.checks import head_count
from nsm.memories.memory import (
    Addresses,
    Content,
    Head,
    MemoryConfig,
    Place,
    Tape,
    content_address,
    least_used_first,
    placed,
    stay,
)
from nsm.similarity import EPSILON, above_zero

USAGE_EPSILON = 1e-6
"""Usage is lifted to ε + (1 − ε) u, so that the product over used slots keeps a gradient."""


@dataclass(frozen=True)
class DNC(MemoryConfig):
    """A DNC memory: several read heads, one write head."""

    width: int = 64
    read_heads: int = 4
    """R, the number of read heads; there is one write head."""
    links: bool = False
    """Temporal links: reads can follow the order of writing, forwards or backwards. The paper omits them for bAbI."""
    masked: bool = False
    """A mask per key says which numbers of a slot count in content addressing (Csordás & Schmidhuber, 2019)."""
    erase_freed: bool = False
    """Freed slots are also erased, not only marked as unused (same authors)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        head_count("read_heads", self.read_heads)

    @property
    def read_parts(self) -> list[int]:
        """ξ of the reads: keys, strengths, free gates, with links three modes per head, and the masks of the keys."""
        r = self.read_heads
        return [r * self.width, r, r, 3 * r * self.links, r * self.width * self.masked]

    @property
    def write_parts(self) -> list[int]:
        """ξ of the write: key, strength, erase, add, allocation gate, write gate, and the mask of the key."""
        return [self.width, 1, self.width, self.width, 1, 1, self.width * self.masked]

    @property
    def heads(self) -> tuple[Head, ...]:
        return Head("read", "read", sum(self.read_parts)), Head("write", "write", sum(self.write_parts))

    @property
    def read_size(self) -> int:
        return self.read_heads * self.width

    def build(self, generator: torch.Generator | None = None) -> DNCMemory:
        return DNCMemory(self, generator)


class DNCState(NamedTuple):
    memory: Tensor
    """(B, N, M)"""
    usage: Tensor
    """(B, N)"""
    read_addresses: Tensor
    """(B, R, N)"""
    write_address: Tensor
    """(B, 1, N)"""
    precedence: Tensor
    """(B, N): how much each slot was the last one written; (B, 0) without links."""
    links: Tensor
    """(B, N, N): links[i, j] is how much i was written right after j; (B, 0, 0) without links."""


class DNCMemory(Tape):
    """Two control heads. ξ of the reads: keys R·M, strengths R, free gates R, 3 read modes per head, masks R·M.

    ξ of the write: key M, strength, erase M, add M, allocation gate, write gate, mask M. Modes are there with links,
    masks if content addressing is masked.
    """

    def __init__(self, config: DNC, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.config = config
        r, m = config.read_heads, config.width
        self.read_parts, self.write_parts = config.read_parts, config.write_parts
        self.content = Content(
            keys=(*((0, slice(i * m, (i + 1) * m)) for i in range(r)), (1, slice(0, m))),
            strengths=((0, slice(r * m, r * m + r)), (1, slice(m, m + 1))),
            written=(1, slice(2 * m + 1, 3 * m + 1)),
        )

    def initial_state(self, batch: int, slots: int | None = None) -> DNCState:
        memory = self._blank(batch, slots)
        n = memory.shape[1]
        linked = n if self.config.links else 0
        return DNCState(
            memory,
            memory.new_zeros(batch, n),
            memory.new_zeros(batch, self.config.read_heads, n),
            memory.new_zeros(batch, 1, n),
            memory.new_zeros(batch, linked),
            memory.new_zeros(batch, linked, linked),
        )

    def forward(
        self, interfaces: Sequence[Tensor], state: DNCState, place: Place = stay
    ) -> tuple[Tensor, DNCState, Addresses]:
        reading, writing = interfaces
        keys, strengths, free, modes, masks = reading.split(self.read_parts, dim=-1)
        write_key, write_strength, erase, add, *gates, write_mask = writing.split(self.write_parts, dim=-1)
        g_a, g_w = (torch.sigmoid(gate) for gate in gates)

        kept = retention(torch.sigmoid(free), state.read_addresses)
        usage = update_usage(state.usage, state.write_address.squeeze(1), kept)
        content = self._content(write_key, write_mask, state.memory, write_strength).squeeze(1)
        w_write = place("write", 0, g_w * (g_a * allocation(usage) + (1 - g_a) * content))
        column = w_write.unsqueeze(-1)
        memory = state.memory * kept.unsqueeze(-1) if self.config.erase_freed else state.memory
        memory = memory * (1 - column * torch.sigmoid(erase).unsqueeze(1)) + column * add.unsqueeze(1)

        w_read = self._content(keys, masks, memory, strengths)
        precedence, links = state.precedence, state.links
        if self.config.links:
            links = update_links(links, precedence, w_write)
            precedence = (1 - w_write.sum(-1, keepdim=True)) * precedence + w_write
            w_read = follow_links(w_read, links, state.read_addresses, modes)

        w_read = placed(place, "read", w_read)
        read = (w_read @ memory).flatten(1)
        addresses = Addresses(w_read, w_write.unsqueeze(1))
        return read, DNCState(memory, usage, *addresses, precedence, links), addresses

    def _content(self, keys: Tensor, masks: Tensor, memory: Tensor, strengths: Tensor) -> Tensor:
        """w^c of some heads: keys and masks (B, H·M), strengths (B, H) → (B, H, N)."""
        keys, strengths = keys.unflatten(-1, (-1, self.width)), (1 + F.softplus(strengths)).unsqueeze(-1)
        if not self.config.masked:
            return content_address(keys, memory, strengths)
        return masked_address(keys, torch.sigmoid(masks.unflatten(-1, (-1, self.width))), memory, strengths)


def masked_address(key: Tensor, mask: Tensor, memory: Tensor, strength: Tensor) -> Tensor:
    """softmax over slots of β cos(k ⊙ μ, M(i) ⊙ μ). key, mask (B, H, M), memory (B, N, M), strength (B, H, 1)."""
    counts, columns, epsilon = mask * mask, memory.transpose(-1, -2), above_zero(EPSILON, memory)
    lengths = torch.sqrt(counts @ (columns * columns) + epsilon)
    own = torch.sqrt((counts * key * key).sum(-1, keepdim=True) + epsilon)
    return torch.softmax(strength * ((counts * key) @ columns / (own * lengths)), dim=-1)


def retention(free: Tensor, w_read: Tensor) -> Tensor:
    """ψ = Π_r (1 − f_r w_r): what is left of a slot after reads have freed it. (B, R), (B, R, N) → (B, N)."""
    return (1 - free.unsqueeze(-1) * w_read).prod(dim=1)


def update_usage(usage: Tensor, w_write: Tensor, kept: Tensor) -> Tensor:
    """u = (u + w_w − u w_w) ψ: written slots are used, freed ones are not. (B, N) → (B, N)."""
    return (usage + w_write - usage * w_write) * kept


def allocation(usage: Tensor) -> Tensor:
    """a[φ_j] = (1 − u[φ_j]) Π_{i<j} u[φ_i] with φ the slots from least to most used. (B, N) → (B, N).

    The order has no gradient, the product has.
    """
    order = least_used_first(usage)
    usage = USAGE_EPSILON + (1 - USAGE_EPSILON) * usage
    ascending = usage.gather(-1, order)
    used_before = torch.cumprod(torch.cat([torch.ones_like(ascending[:, :1]), ascending[:, :-1]], dim=-1), dim=-1)
    return ((1 - ascending) * used_before).gather(-1, order.argsort(dim=-1))


def update_links(links: Tensor, precedence: Tensor, w_write: Tensor) -> Tensor:
    """L[i,j] = (1 − w[i] − w[j]) L[i,j] + w[i] p[j], no slot follows itself. (B, N, N) → (B, N, N)."""
    i, j = w_write.unsqueeze(-1), w_write.unsqueeze(-2)
    links = (1 - i - j) * links + i * precedence.unsqueeze(-2)
    return links * (1 - torch.eye(links.shape[-1], dtype=links.dtype, device=links.device))


def follow_links(content: Tensor, links: Tensor, previous: Tensor, modes: Tensor) -> Tensor:
    """π₁ Lᵀ w_r + π₂ content + π₃ L w_r per read head. content, previous (B, R, N), modes (B, 3R) → (B, R, N)."""
    backward, by_content, forward = torch.softmax(modes.unflatten(-1, (-1, 3)), dim=-1).split(1, dim=-1)
    behind, ahead = previous @ links, previous @ links.transpose(-1, -2)
    followed: Tensor = backward * behind + by_content * content + forward * ahead
    return followed
