"""Data memories: `memory(ξ, M)` of Eq. 2 and Algorithm 1, state in, state out."""

from nsm.memories.dnc import DNC, DNCMemory, DNCState
from nsm.memories.lrua import LRUA, LRUAMemory, LRUAState
from nsm.memories.memory import Addresses, Head, Memory, MemoryConfig
from nsm.memories.ntm import NTM, NTMMemory, NTMState

MEMORIES: dict[str, type[MemoryConfig]] = {"ntm": NTM, "lrua": LRUA, "dnc": DNC}

__all__ = [
    "DNC",
    "LRUA",
    "MEMORIES",
    "NTM",
    "Addresses",
    "DNCMemory",
    "DNCState",
    "Head",
    "LRUAMemory",
    "LRUAState",
    "Memory",
    "MemoryConfig",
    "NTMMemory",
    "NTMState",
]
