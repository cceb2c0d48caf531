"""Neural stored-program memory: memory-augmented networks that keep the weights of their own controller in a memory.

import nsm
machine = nsm.NUTM(input_size=10, output_size=8, programs=2)
out, state = machine(x)
run = nsm.train("copy", out="runs/copy")
print(run.test(length=240, slots=512))
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
    "Batch",
    "Callback",
    "Classification",
    "Controller",
    "DatasetTask",
    "EraseSlot",
    "Experiment",
    "ForbidProgram",
    "ForceProgram",
    "Head",
    "Interface",
    "Intervention",
    "Machine",
    "MachineConfig",
    "MachineState",
    "Measure",
    "Memory",
    "MemoryConfig",
    "MoveHead",
    "Noise",
    "Optimiser",
    "Outcome",
    "Page",
    "PlaceHead",
    "ProgramMemory",
    "Programs",
    "ProgressBar",
    "Repertoire",
    "Result",
    "Run",
    "Schedule",
    "SilenceNoise",
    "StoredModule",
    "StoredProgramLinear",
    "SwapSlots",
    "Task",
    "TensorBoard",
    "Trace",
    "UserError",
    "WeightsAndBiases",
    "__version__",
    "annealing",
    "load",
    "open",
    "optim",
    "recipes",
    "stored",
    "train",
    "view",
]

if TYPE_CHECKING:
    from nsm import optim
    from nsm.api import open, train, view
    from nsm.bar import ProgressBar
    from nsm.checks import UserError
    from nsm.controllers import Controller
    from nsm.experiments import recipes
    from nsm.interventions import (
        EraseSlot,
        ForbidProgram,
        ForceProgram,
        Intervention,
        MoveHead,
        PlaceHead,
        SilenceNoise,
        SwapSlots,
    )
    from nsm.loading import load
    from nsm.machine import MANN, NUTM, Interface, Machine, MachineConfig, MachineState, Noise, Repertoire, Trace
    from nsm.memories import DNC, LRUA, NTM, Addresses, Head, Memory, MemoryConfig
    from nsm.programs import ProgramMemory, Programs, StoredProgramLinear, annealing
    from nsm.reports.viewer import Page
    from nsm.run import Run
    from nsm.stored_modules import StoredModule, stored
    from nsm.tasks import Batch, Classification, DatasetTask, Measure, Task
    from nsm.training.callbacks import Callback, TensorBoard, WeightsAndBiases
    from nsm.training.experiment import Experiment, Optimiser, Schedule
    from nsm.training.result import Outcome, Result
else:
    # Names are imported on first use: `nsm --help` does not load torch, and a model does not load the training code.
    _WHERE = {
        "nsm": "optim",
        "nsm.api": "open train view",
        "nsm.bar": "ProgressBar",
        "nsm.checks": "UserError",
        "nsm.controllers": "Controller",
        "nsm.experiments": "recipes",
        "nsm.interventions": "EraseSlot ForbidProgram ForceProgram Intervention MoveHead PlaceHead SilenceNoise "
        "SwapSlots",
        "nsm.loading": "load",
        "nsm.machine": "MANN NUTM Interface Machine MachineConfig MachineState Noise Repertoire Trace",
        "nsm.memories": "DNC LRUA NTM Addresses Head Memory MemoryConfig",
        "nsm.programs": "ProgramMemory Programs StoredProgramLinear annealing",
        "nsm.reports.viewer": "Page",
        "nsm.run": "Run",
        "nsm.stored_modules": "StoredModule stored",
        "nsm.tasks": "Batch Classification DatasetTask Measure Task",
        "nsm.training.callbacks": "Callback TensorBoard WeightsAndBiases",
        "nsm.training.experiment": "Experiment Optimiser Schedule",
        "nsm.training.result": "Outcome Result",
    }
    _MODULES = {name: module for module, names in _WHERE.items() for name in names.split()}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = _MODULES[name]
        whole = name in ("optim", "recipes")
        found = import_module(f"{module}.{name}") if whole else getattr(import_module(module), name)
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
