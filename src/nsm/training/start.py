"""A trained machine that a run starts from, in place of random weights."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm import pretrained
from nsm.checks import UserError
from nsm.machine import Machine, MachineConfig
from nsm.training.run import RunDirectory

TAPE = "memory.initial_memory"
"""The initial content of the tape, (N, M)."""


class Start(NamedTuple):
    """The weights that a run starts from. Optimiser and persistent memory start fresh."""

    path: Path
    machine: MachineConfig
    tensors: dict[str, Tensor]

    @property
    def digest(self) -> str:
        """What a run's configuration says of it: the same weights, wherever they are, make the same run."""
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        return hashlib.sha256(save_tensors(tensors)).hexdigest()

    def put_into(self, machine: Machine) -> None:
        """Load these weights into a machine, which must have the same shape but for the number of slots."""
        wanted, tensors = machine.state_dict(), dict(self.tensors)
        if TAPE in wanted and TAPE in tensors and tensors[TAPE].shape[1:] == wanted[TAPE].shape[1:]:
            # No weight depends on it: a shorter tape has the first slots, a longer one continues with this run's own.
            slots = min(len(tensors[TAPE]), len(wanted[TAPE]))
            tensors[TAPE] = torch.cat([tensors[TAPE][:slots].to(wanted[TAPE]), wanted[TAPE][slots:]])
        for name in sorted(tensors.keys() | wanted.keys()):
            there, here = (tuple(t[name].shape) if name in t else "missing" for t in (tensors, wanted))
            if there != here:
                mistake = f"the machine of {self.path} has another shape than this run's"
                raise UserError(f"{mistake}: {name} is {there} there and {here} here")
        machine.load_state_dict(tensors)


def read(path: Path) -> Start:
    """The best machine of a run, or one saved by `save_pretrained`."""
    if (path / pretrained.TENSORS).is_file():
        machine = Machine.from_pretrained(path)
        return Start(path, replace(machine.config, batch_first=False), machine.state_dict())
    run = RunDirectory(path)
    return Start(path, run.experiment.machine, run.checkpoint("best").model)


def start_of(machine: Machine) -> Start:
    """A machine in this process."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in machine.state_dict().items()}
    return Start(Path("the machine given"), replace(machine.config, batch_first=False), tensors)
