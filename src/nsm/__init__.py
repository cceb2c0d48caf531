"""Neural stored-program memory: memory-augmented networks that keep the weights of their own controller in a memory.

import nsm
machine = nsm.NUTM(input_size=10, output_size=8, programs=2)
out, state = machine(x)
trained = nsm.load("runs/copy")
"""

from nsm.controllers import Controller
from nsm.loading import load
from nsm.machine import MANN, NUTM, Interface, Machine, MachineConfig, MachineState, Noise, Trace
from nsm.memories import DNC, LRUA, NTM, Addresses, Head, Memory
from nsm.programs import ProgramMemory, Programs, StoredProgramLinear, annealing
from nsm.version import __version__

__all__ = [
    "DNC",
    "LRUA",
    "MANN",
    "NTM",
    "NUTM",
    "Addresses",
    "Controller",
    "Head",
    "Interface",
    "Machine",
    "MachineConfig",
    "MachineState",
    "Memory",
    "Noise",
    "ProgramMemory",
    "Programs",
    "StoredProgramLinear",
    "Trace",
    "__version__",
    "annealing",
    "load",
]
