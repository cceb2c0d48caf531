"""Neural stored-program memory: memory-augmented networks that keep the weights of their own controller in a memory.

from nsm import NUTM
machine = NUTM(input_size=10, output_size=8, programs=2)
out, state = machine(x)
"""

from nsm.controllers import Controller
from nsm.machine import MANN, NUTM, Interface, Machine, MachineConfig, MachineState, Noise, Trace
from nsm.memories import DNC, LRUA, NTM, Addresses, Head, Memory
from nsm.programs import ProgramMemory, Programs, StoredProgramLinear, annealing

__version__ = "0.1.0"

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
    "annealing",
]
