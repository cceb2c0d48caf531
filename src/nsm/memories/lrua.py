"""Least Recently Used Access (Santoro et al., 2016): write to the slot just read, or to the one used least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nsm.checks import UserError, at_least, choose, head_count, positive
from nsm.memories.memory import (
    ORDERS,
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


@dataclass(frozen=True)
class LRUA(MemoryConfig):
    """An LRUA memory."""

    width: int = 40
    read_heads: int = 4
    """R, the number of read heads."""
    write_heads: int = 1
    """W, the number of write heads."""
    decay: float = 0.99
    """γ: the decay of a slot's usage per step."""
    strength: float = 1.0
    """β in w_r = softmax(β cos(k, M)). The equations have β = 1: an exact match then gets at most e² times the weight
    of the opposite of the key, and all reads are blurred."""
    least_used: int | None = None
    """The number of slots that count as least used; None: the number of read heads."""
    order: str = "write-first"
    """write-first (r_t reads M_t, as in the equations) or read-first (r_t reads M_{t−1})."""

    def __post_init__(self) -> None:
        super().__post_init__()
        head_count("read_heads", self.read_heads)
        head_count("write_heads", self.write_heads)
        choose("order", self.order, ORDERS)
        positive("strength", self.strength)
        if not 0 <= self.decay < 1:
            raise UserError(f"decay must be at least 0 and below 1, was {self.decay!r}")
        if self.least_used is not None:
            at_least("least_used", self.least_used, 1)

    @property
    def heads(self) -> tuple[Head, ...]:
        return (
            *(Head(f"read{i}", "read", self.width) for i in range(self.read_heads)),
            *(Head(f"write{i}", "write", self.width + 1) for i in range(self.write_heads)),
        )

    @property
    def read_size(self) -> int:
        return self.read_heads * self.width

    def build(self, generator: torch.Generator | None = None) -> LRUAMemory:
        return LRUAMemory(self, generator)


class LRUAState(NamedTuple):
    memory: Tensor
    """(B, N, M)"""
    usage: Tensor
    """(B, N), w_u"""
    read_addresses: Tensor
    """(B, R, N), w_r"""


class LRUAMemory(Tape):
    """ξ of a read head: key M; of a write head: key M, gate α."""

    def __init__(self, config: LRUA, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.config = config
        self.least_used = config.read_heads if config.least_used is None else config.least_used
        key = slice(0, config.width)
        self.content = Content(
            keys=tuple((head, key) for head in range(config.read_heads)), written=(config.read_heads, key)
        )

    def initial_state(self, batch: int, slots: int | None = None) -> LRUAState:
        memory = self._blank(batch, slots)
        n = memory.shape[1]
        return LRUAState(memory, memory.new_zeros(batch, n), memory.new_zeros(batch, self.config.read_heads, n))

    def forward(
        self, interfaces: Sequence[Tensor], state: LRUAState, place: Place = stay
    ) -> tuple[Tensor, LRUAState, Addresses]:
        keys = torch.stack(list(interfaces[: self.config.read_heads]), dim=1)
        writes = torch.stack(list(interfaces[self.config.read_heads :]), dim=1)
        add, alpha = writes.split([self.width, 1], dim=-1)

        least = least_used(state.usage, self.least_used)
        gate = torch.sigmoid(alpha)
        w_write = gate * state.read_addresses.mean(dim=1, keepdim=True) + (1 - gate) * least.sum(1).unsqueeze(1)
        w_write = placed(place, "write", w_write)
        memory = state.memory * (1 - least[:, 0]).unsqueeze(-1) + w_write.transpose(1, 2) @ add

        seen = memory if self.config.order == "write-first" else state.memory
        w_read = placed(place, "read", content_address(keys, seen, self.config.strength))
        read = (w_read @ seen).flatten(1)
        usage = self.config.decay * state.usage + w_read.sum(1) + w_write.sum(1)
        return read, LRUAState(memory, usage, w_read), Addresses(w_read, w_write)


def least_used(usage: Tensor, count: int) -> Tensor:
    """The `count` least used slots, one-hot, in rising order, ties by position. usage (B, N) → (B, count, N)."""
    # Before anything is written all slots tie: by position, the machine fills the tape in order.
    order = least_used_first(usage)[:, :count]
    return torch.nn.functional.one_hot(order, usage.shape[-1]).to(usage.dtype)
