"""The contract between a machine and its data memory: control heads, state in, state out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Never

import torch
from torch import Tensor, nn

from nsm.checks import at_least, choose
from nsm.similarity import norm
from nsm.tree import OneOf

INITIAL_MEMORY = ("constant", "random")
INITIAL_ADDRESS = ("one-hot", "zeros", "uniform")
ORDERS = ("read-first", "write-first")
CONSTANT = 1e-6
"""The content of a blank slot with a constant initial memory."""
RESOLUTION = 2**-10
"""Usage is compared in steps of this size. Usages that should be equal differ by rounding, which depends on the
processor and the backend and must not decide which slot comes first."""
LONGER = 0x6C6F6E676572
"""The seed of slots beyond a random tape's configured size; if a user chose the same, they would repeat the tape."""


class Head(NamedTuple):
    """A control head: one interface vector ξ of `size` numbers per step, from one interface network."""

    name: str
    kind: str
    size: int


class Content(NamedTuple):
    """Which parts of its interfaces a memory uses for content addressing: control heads and slices of their ξ."""

    keys: tuple[tuple[int, slice], ...]
    written: tuple[int, slice]
    """The vector that is added to the tape, as wide as each key."""
    strengths: tuple[tuple[int, slice], ...] = ()


class Addresses(NamedTuple):
    """The read and write addresses of a step: read (B, R, N), write (B, W, N)."""

    read: Tensor
    write: Tensor


Place = Callable[[str, int, Tensor], Tensor]
"""Replaces the address of a head: its kind, its number within the kind, and the address (B, N) → (B, N)."""


def stay(kind: str, number: int, address: Tensor) -> Tensor:
    """Leave every address as it is."""
    return address


@dataclass(frozen=True)
class MemoryConfig(OneOf, ABC):
    """What every data memory has: N slots of width M, and the initial content of the tape."""

    slots: int = 128
    """N, the number of slots."""
    width: int = 20
    """M, the width of a slot."""
    initial_memory: str = "constant"
    """constant (every slot 1e-6) or random (fixed, U(±1/√(N+M)), as in the published code)."""

    def __post_init__(self) -> None:
        at_least("slots", self.slots, 1)
        at_least("width", self.width, 1)
        choose("initial_memory", self.initial_memory, INITIAL_MEMORY)

    @property
    @abstractmethod
    def heads(self) -> tuple[Head, ...]:
        """The control heads, in order."""

    @property
    @abstractmethod
    def read_size(self) -> int:
        """The size of what a step reads, over all heads."""

    @abstractmethod
    def build(self, generator: torch.Generator | None = None) -> Memory:
        """The memory this describes."""


class Memory(nn.Module, ABC):
    """memory(ξ, M): from one interface vector per control head and a state to what was read and the next state.

    A memory of your own sets `heads`, `read_size`, `slots` and implements `initial_state` and `forward`. A state is any
    named tuple of tensors with the batch first; the module itself has no state.
    """

    heads: tuple[Head, ...]
    read_size: int
    slots: int
    content: Content | None = None
    """None if unknown, or without content addressing."""

    @abstractmethod
    def initial_state(self, batch: int, slots: int | None = None) -> tuple[Tensor, ...]:
        """The state before the first step, on a tape of `slots` slots (None: as configured)."""

    # `Never`: each memory takes only its own state. A subclass may declare any type; this method can't be called.
    @abstractmethod
    def forward(self, interfaces: Sequence[Tensor], state: Never) -> tuple[Tensor, tuple[Tensor, ...], Addresses]:
        """One step. interfaces: (B, size) per head → read (B, read_size), next state, addresses."""


class Tape(Memory):
    """A memory matrix of N slots with a fixed initial content: what NTM, LRUA and DNC share."""

    initial_memory: Tensor

    def __init__(self, config: MemoryConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.slots = config.slots
        self.width = config.width
        self.heads = config.heads
        self.read_size = config.read_size
        self.bound = 1 / math.sqrt(config.slots + config.width) if config.initial_memory == "random" else 0.0
        memory = torch.full((config.slots, config.width), CONSTANT)
        if self.bound:
            memory.uniform_(-self.bound, self.bound, generator=generator)
        self.register_buffer("initial_memory", memory)

    def _blank(self, batch: int, slots: int | None) -> Tensor:
        """The tape before the first step, (batch, slots, width).

        A shorter tape has the first slots; a longer one continues the same way, random content from a fixed seed.
        """
        wanted = self.slots if slots is None else at_least("slots", slots, 1)
        memory = self.initial_memory[:wanted]
        if wanted > self.slots:
            more = torch.full((wanted - self.slots, self.width), CONSTANT, device="cpu")
            if self.bound:
                more.uniform_(-self.bound, self.bound, generator=torch.Generator().manual_seed(LONGER))
            memory = torch.cat([memory, more.to(memory)])
        # A copy: what is written into a state must not reach the buffer.
        return memory.expand(batch, -1, -1).clone(memory_format=torch.contiguous_format)


def placed(place: Place, kind: str, addresses: Tensor) -> Tensor:
    """All heads of a kind where they are to be. (B, H, N) → (B, H, N)."""
    if place is stay:
        return addresses
    return torch.stack([place(kind, k, address) for k, address in enumerate(addresses.unbind(1))], dim=1)


def first_address(kind: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An address before the first step: all on the first slot, nowhere, or everywhere. shape (…, N)."""
    address = like.new_zeros(shape)
    if kind == "one-hot":
        address[..., 0] = 1
    elif kind == "uniform":
        address.fill_(1 / shape[-1])
    return address


def least_used_first(usage: Tensor) -> Tensor:
    """φ, the slots from least to most used, ties by position; it has no gradient. usage (B, N) → (B, N) integers.

    Usages are equal if they round to the same multiple of the resolution (half to even).
    """
    return torch.argsort(torch.round(usage.detach() / RESOLUTION), dim=-1, stable=True)


def content_address(key: Tensor, memory: Tensor, strength: Tensor | float) -> Tensor:
    """softmax over slots of β cos(k, M(i)). key (B, H, M), memory (B, N, M), strength (B, H, 1) → (B, H, N)."""
    similarity = key @ memory.transpose(-1, -2) / (norm(key).unsqueeze(-1) * norm(memory).unsqueeze(-2))
    return torch.softmax(strength * similarity, dim=-1)
