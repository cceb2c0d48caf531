"""The Neural Turing Machine's memory (Appendix F): content addressing, then interpolation, shift and sharpening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nsm.checks import UserError, at_least, choose, head_count
from nsm.memories.memory import (
    INITIAL_ADDRESS,
    ORDERS,
    Addresses,
    Head,
    MemoryConfig,
    Place,
    Tape,
    content_address,
    first_address,
    stay,
)
from nsm.similarity import above_zero

FARTHEST = 1_024
"""Every possible shift is a number of a head's interface."""
TINY = 1e-16
"""Keeps the logarithm of an empty slot finite when an address is sharpened."""


@dataclass(frozen=True)
class NTM(MemoryConfig):
    """An NTM memory: any number of read and write heads on one tape."""

    read_heads: int = 1
    """R, the number of read heads."""
    write_heads: int = 1
    """W, the number of write heads."""
    shift_range: int = 1
    """A head can move by −shift_range … +shift_range slots per step."""
    order: str = "read-first"
    """read-first as in the published code (a read sees the tape before this step's write), or write-first."""
    initial_address: str = "one-hot"
    """The address of every head before the first step: one-hot (the first slot), zeros (nowhere) or uniform."""

    def __post_init__(self) -> None:
        super().__post_init__()
        head_count("read_heads", self.read_heads)
        head_count("write_heads", self.write_heads)
        if at_least("shift_range", self.shift_range, 0) > FARTHEST:
            raise UserError(f"shift_range must be at most {FARTHEST:,}, was {self.shift_range:,}")
        choose("order", self.order, ORDERS)
        choose("initial_address", self.initial_address, INITIAL_ADDRESS)

    @property
    def shifts(self) -> int:
        """The number of possible shifts."""
        return 2 * self.shift_range + 1

    @property
    def address_size(self) -> int:
        """The size of the part of ξ that moves a head: key M, strength, gate, shifts, sharpening."""
        return self.width + 3 + self.shifts

    @property
    def heads(self) -> tuple[Head, ...]:
        reads = [Head(f"read{i}", "read", self.address_size) for i in range(self.read_heads)]
        writes = [Head(f"write{i}", "write", self.address_size + 2 * self.width) for i in range(self.write_heads)]
        # Pair by pair: with several pairs, the second read head already sees what the first write head wrote.
        pairs = zip_longest(reads, writes) if self.order == "read-first" else zip_longest(writes, reads)
        return tuple(head for pair in pairs for head in pair if head is not None)

    @property
    def read_size(self) -> int:
        return self.read_heads * self.width

    def build(self, generator: torch.Generator | None = None) -> NTMMemory:
        return NTMMemory(self, generator)


class NTMState(NamedTuple):
    memory: Tensor
    """(B, N, M)"""
    read_addresses: Tensor
    """(B, R, N)"""
    write_addresses: Tensor
    """(B, W, N)"""


class NTMMemory(Tape):
    """ξ of a read head: key M, strength, gate, shifts 2·range+1, sharpening; a write head adds erase M and add M."""

    def __init__(self, config: NTM, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.config = config
        self.shifts = config.shifts
        self.address_size = config.address_size

    def initial_state(self, batch: int, slots: int | None = None) -> NTMState:
        memory = self._blank(batch, slots)
        start = self.config.initial_address
        n = memory.shape[1]
        return NTMState(
            memory,
            first_address(start, (batch, self.config.read_heads, n), memory),
            first_address(start, (batch, self.config.write_heads, n), memory),
        )

    def forward(
        self, interfaces: Sequence[Tensor], state: NTMState, place: Place = stay
    ) -> tuple[Tensor, NTMState, Addresses]:
        memory = state.memory
        previous = {"read": iter(state.read_addresses.unbind(1)), "write": iter(state.write_addresses.unbind(1))}
        addresses: dict[str, list[Tensor]] = {"read": [], "write": []}
        reads = []
        for head, interface in zip(self.heads, interfaces, strict=True):
            w = self.address(interface[:, : self.address_size], memory, next(previous[head.kind]))
            w = place(head.kind, len(addresses[head.kind]), w)
            addresses[head.kind].append(w)
            if head.kind == "read":
                reads.append(torch.einsum("bn,bnm->bm", w, memory))
            else:
                memory = write(memory, w, interface[:, self.address_size :])
        visited = Addresses(torch.stack(addresses["read"], 1), torch.stack(addresses["write"], 1))
        return torch.cat(reads, dim=-1), NTMState(memory, *visited), visited

    def address(self, interface: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
        """The next address of a head. interface (B, M + 6), memory (B, N, M), previous address (B, N) → (B, N)."""
        key, strength, gate, shifts, gamma = interface.split([self.width, 1, 1, self.shifts, 1], dim=-1)
        content = content_address(key.unsqueeze(1), memory, F.softplus(strength).unsqueeze(1)).squeeze(1)
        g = torch.sigmoid(gate)
        w = g * content + (1 - g) * previous
        w = shift(w, torch.softmax(shifts, dim=-1))
        return sharpen(w, 1 + F.softplus(gamma))


def shift(w: Tensor, shifts: Tensor) -> Tensor:
    """Circular convolution: shifts[:, j] moves the address by j − range. w (B, N), shifts (B, 2·range+1) → (B, N)."""
    reach = shifts.shape[-1] // 2
    moved = torch.stack([w.roll(offset, dims=-1) for offset in range(-reach, reach + 1)], dim=-1)
    return torch.einsum("bns,bs->bn", moved, shifts)


def sharpen(w: Tensor, gamma: Tensor) -> Tensor:
    """w^γ / Σ w^γ, as a softmax of γ log w: the powers themselves underflow. w (B, N), γ (B, 1) → (B, N)."""
    return torch.softmax(gamma * torch.log(w + above_zero(TINY, w)), dim=-1)


def write(memory: Tensor, w: Tensor, interface: Tensor) -> Tensor:
    """M(i) [1 − w(i) e] + w(i) v. memory (B, N, M), w (B, N), interface (B, 2M): erase, then add → (B, N, M)."""
    erase, add = interface.chunk(2, dim=-1)
    w = w.unsqueeze(-1)
    return memory * (1 - w * torch.sigmoid(erase).unsqueeze(1)) + w * add.unsqueeze(1)
