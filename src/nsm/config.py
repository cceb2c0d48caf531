"""The configuration of a machine: its shape and its initialisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from nsm.checks import UserError, at_least, choose, finite, positive
from nsm.controllers import Controller
from nsm.memories import DNC, NTM, MemoryConfig
from nsm.programs import Programs


@dataclass(frozen=True)
class Interface:
    """Initialisation of the interface networks c_t → ξ, and normalisation of ξ."""

    gain: float = 1.4
    """Weights are initialised from U(±gain √(6 / fan))."""
    fan: str = "memory"
    """head: fan = n + L (Xavier, published NTM). memory: fan = P + K + (n+1)L, smaller weights (published NUTM)."""
    norm: bool = False
    """Layer norm on each head's ξ, as for question answering."""
    keys: str = "own"
    """own, or written: content keys start with the written vector's weights, so similar states match (LRUA, DNC)."""
    sharpness: float = 0.0
    """Initial bias of the strengths of content addressing, before their softplus (DNC)."""

    def __post_init__(self) -> None:
        positive("interface gain", self.gain)
        finite("interface sharpness", self.sharpness)
        choose("interface fan", self.fan, ("head", "memory"))
        choose("interface keys", self.keys, ("own", "written"))

    def bound(self, in_features: int, out_features: int, programs: Programs | None) -> float:
        """The bound of the uniform distribution of a head's initial weights."""
        if self.fan == "head":
            fan = in_features + out_features
        else:
            rows, keys = (1, 0) if programs is None else (programs.count, programs.keys)
            fan = rows + keys + (in_features + 1) * out_features
        return self.gain * math.sqrt(6 / fan)


MOST_PROGRAMS = 64
"""Machines in a repertoire: all of them are built, whatever a file asks for."""


@dataclass(frozen=True)
class Repertoire:
    """Complete machines as stored programs, claimed one after another: see nsm.repertoire."""

    count: int = 6
    """Number of programs. Once all are claimed, the last one learns whatever is new."""
    rare: float = 0.005
    """A sequence is new to a program if something in it has a lower probability than this for the program."""
    patience: int = 10
    """A program is claimed once batches that are new to all programs outnumber the others by this many."""
    youth: int = 200
    """Batches that a program learns from before anything can be new to it: it has to see first what is usual."""
    labels: bool = False
    """Task labels choose the program that learns, and the one whose accuracy is measured after each phase: a ceiling
    for what is learned without them. Elsewhere inputs are routed as without labels."""

    def __post_init__(self) -> None:
        for name in ("count", "patience", "youth"):
            at_least(f"repertoire {name}", getattr(self, name), 1)
        if self.count > MOST_PROGRAMS:
            raise UserError(f"repertoire count must be at most {MOST_PROGRAMS}, was {self.count:,}")
        if not 0 < self.rare < 1:
            raise UserError(f"repertoire rare must be between 0 and 1, was {self.rare!r}")


@dataclass(frozen=True)
class MachineConfig:
    """Everything that determines a machine's shape and its initialisation; `programs` is None for a MANN."""

    input_size: int
    output_size: int
    controller: Controller = field(default_factory=Controller)
    memory: MemoryConfig | None = field(default_factory=NTM)
    """None for a memory module of your own."""
    programs: Programs | None = None
    interface: Interface = field(default_factory=Interface)
    batch_first: bool = False
    repertoire: Repertoire | None = None
    """Several such machines, each of which learns what is new to those before it; None for a single machine."""

    def __post_init__(self) -> None:
        at_least("input_size", self.input_size, 1)
        at_least("output_size", self.output_size, 1)

    @property
    def model(self) -> str:
        """The paper's name: nutm with stored programs, else ntm, dnc, or mann with any other memory."""
        if self.programs is not None:
            return "nutm"
        return "ntm" if isinstance(self.memory, NTM) else "dnc" if isinstance(self.memory, DNC) else "mann"
