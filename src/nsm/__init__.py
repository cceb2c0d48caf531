"""Neural stored-program memory: memory-augmented networks that keep the weights of their own controller in a memory.

import nsm
machine = nsm.NUTM(input_size=10, output_size=8, programs=2)
out, state = machine(x)
trained = nsm.load("runs/copy")
"""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from nsm import optim as optim
    from nsm.controllers import Controller
    from nsm.loading import load
    from nsm.machine import MANN, NUTM, Interface, Machine, MachineConfig, MachineState, Noise, Trace
    from nsm.memories import DNC, LRUA, NTM, Addresses, Head, Memory
    from nsm.programs import ProgramMemory, Programs, StoredProgramLinear, annealing
else:

    def __getattr__(name):
        """Import the model when one of its names is first used: it takes torch, `nsm --help` and its like do not."""
        if name == "optim":
            import nsm.optim

            return nsm.optim
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from nsm import controllers, loading, machine, memories, programs

        for module in (controllers, memories, programs, machine, loading):
            globals().update({known: getattr(module, known) for known in __all__ if hasattr(module, known)})
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__all__})
