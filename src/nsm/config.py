"""What decides a machine's shape and how it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from nsm.checks import at_least, choose, finite, positive
from nsm.controllers import Controller
from nsm.memories import DNC, NTM, MemoryConfig
from nsm.programs import Programs


@dataclass(frozen=True)
class Interface:
    """How the interface networks c_t → ξ start, and whether ξ is normalised."""

    gain: float = 1.4
    """Weights start as U(±gain √(6 / fan))."""
    fan: str = "memory"
    """head: fan = n + L, a head's own size (Xavier, the published NTM). memory: fan = P + K + (n+1)L, that of a whole
    program memory, four to six times smaller weights (the published NUTM, and what learns reliably in both)."""
    norm: bool = False
    """Layer norm on each head's ξ, as for question answering."""
    keys: str = "own"
    """written: the weights of every content key start as those of the vector that is written, so that a state finds
    what was written in states like it. own: they start independent of each other, and that has to be learned (LRUA,
    DNC)."""
    sharpness: float = 0.0
    """Added to the strengths of content addressing at the start, before their softplus (DNC)."""

    def __post_init__(self) -> None:
        positive("interface gain", self.gain)
        finite("interface sharpness", self.sharpness)
        choose("interface fan", self.fan, ("head", "memory"))
        choose("interface keys", self.keys, ("own", "written"))

    def bound(self, in_features: int, out_features: int, programs: Programs | None) -> float:
        """The bound of the uniform distribution a head's weights are drawn from."""
        if self.fan == "head":
            fan = in_features + out_features
        else:
            rows, keys = (1, 0) if programs is None else (programs.count, programs.keys)
            fan = rows + keys + (in_features + 1) * out_features
        return self.gain * math.sqrt(6 / fan)


@dataclass(frozen=True)
class MachineConfig:
    """Everything that decides a machine's shape and how it starts; `programs` is None for a MANN."""

    input_size: int
    output_size: int
    controller: Controller = field(default_factory=Controller)
    memory: MemoryConfig | None = field(default_factory=NTM)
    """None for a memory module of the user's own."""
    programs: Programs | None = None
    interface: Interface = field(default_factory=Interface)
    batch_first: bool = False

    def __post_init__(self) -> None:
        at_least("input_size", self.input_size, 1)
        at_least("output_size", self.output_size, 1)

    @property
    def model(self) -> str:
        """What the paper calls it: nutm with stored programs, else ntm, dnc, or mann over any other memory."""
        if self.programs is not None:
            return "nutm"
        return "ntm" if isinstance(self.memory, NTM) else "dnc" if isinstance(self.memory, DNC) else "mann"
