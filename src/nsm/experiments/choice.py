"""The arguments of every recipe: a model, a preset, a seed.

Command-line options are made from them, so modules that need torch are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from nsm.checks import UserError, at_least, choose
from nsm.names import PRESETS

if TYPE_CHECKING:
    from nsm.controllers import Controller
    from nsm.machine import Interface, MachineConfig
    from nsm.memories import NTM, MemoryConfig
    from nsm.programs import Programs
    from nsm.training.experiment import Experiment

Model = Literal["nutm", "ntm", "mann", "dnc"]
MemoryName = Literal["ntm", "lrua", "dnc"]
Preset = Literal["default", "paper", "authors"]
MODELS: dict[str, str | None] = {"nutm": None, "ntm": "ntm", "mann": "lrua", "dnc": "dnc"}
"""The memory of a model with a static interface; stored programs work with any."""


@dataclass(frozen=True)
class Choice:
    """The arguments of a recipe."""

    model: Model = "nutm"
    """nutm: stored programs on the task's memory. With a static interface: ntm, mann (on LRUA) or dnc."""
    preset: Preset = "default"
    """default: what learns reliably. paper: the paper's settings. authors: settings of the published code."""
    memory: MemoryName | None = None
    """ntm, lrua or dnc, in place of the paper's memory for the task."""
    programs: int | None = None
    """P, stored programs per head; 0: a static interface."""
    seed: int = 0
    """Random seed for weights, data and noise."""

    def __post_init__(self) -> None:
        choose("model", self.model, MODELS)
        choose("preset", self.preset, PRESETS)
        if self.programs is not None:
            at_least("programs", self.programs, 0)
        if self.memory is not None:
            choose("memory", self.memory, get_args(MemoryName))
        if self.model != "nutm" and (self.memory, self.programs) != (None, None):
            raise UserError(
                f"model {self.model!r} is a memory and no programs: leave out memory and programs, or model"
            )

    @property
    def defaults(self) -> bool:
        """Whether the preset is default."""
        return self.preset == "default"

    def stored(self, usual: int) -> int:
        """P, by default `usual`; 0 for a static interface."""
        return 0 if self.model != "nutm" else usual if self.programs is None else self.programs

    def machine(
        self,
        inputs: int,
        outputs: int,
        controller: Controller,
        memory: MemoryConfig,
        programs: Programs | None,
        interface: Interface | None = None,
    ) -> MachineConfig:
        """A machine with the chosen memory, or else this one, initialised as in the preset."""
        from nsm.machine import Interface, MachineConfig
        from nsm.memories import MEMORIES

        wanted = self.memory or MODELS[self.model]
        if wanted is not None and type(memory) is not MEMORIES[wanted]:
            memory = MEMORIES[wanted](slots=memory.slots, width=memory.width)
        machine = MachineConfig(inputs, outputs, controller, memory, programs, interface or Interface())
        if self.defaults:
            return machine
        return as_in_the_paper(machine) if self.preset == "paper" else as_the_authors(machine)


def as_in_the_paper(machine: MachineConfig) -> MachineConfig:
    """The paper's equations, with the initial interface weights of the published code.

    The paper does not say how the tape starts; only a constant tape with heads on the first slot reproduces its
    findings (docs/results/length-generalisation.md).
    """
    return replace(machine, interface=replace(machine.interface, fan="memory" if machine.programs else "head"))


def as_the_authors(machine: MachineConfig) -> MachineConfig:
    """The same with the published code's random tape, heads nowhere, and its deviations from the equations: tanh on
    keys, β/K, and l_p averaged."""
    from nsm.memories import DNC, LRUA, NTM

    machine = as_in_the_paper(machine)
    if isinstance(machine.memory, NTM):
        machine = replace(machine, memory=random_tape(machine.memory))
    elif isinstance(machine.memory, LRUA | DNC):
        machine = replace(machine, memory=replace(machine.memory, initial_memory="random"))
    if machine.programs is None:
        return machine
    scale = 1 / machine.programs.keys
    return replace(machine, programs=replace(machine.programs, bounded_keys=True, strength_scale=scale, loss="mean"))


def random_tape(memory: NTM) -> NTM:
    """A tape whose slots differ at the start, and heads nowhere."""
    return replace(memory, initial_memory="random", initial_address="zeros")


@dataclass(frozen=True)
class Recipe:
    """A function from a choice to a complete experiment; called with the fields of the choice."""

    make: Callable[..., Experiment]

    def __call__(
        self,
        model: Model = "nutm",
        preset: Preset = "default",
        memory: MemoryName | None = None,
        programs: int | None = None,
        seed: int = 0,
        **own: Any,
    ) -> Experiment:
        return self.make(Choice(model, preset, memory, programs, seed), **own)

    @property
    def name(self) -> str:
        return self.make.__name__.replace("_", "-")

    @property
    def own(self) -> list[tuple[str, Any, str, Any]]:
        """The recipe's further arguments: name, type, help, default."""
        function = self.make.func if isinstance(self.make, partial) else self.make
        hints, fixed = get_type_hints(function, include_extras=True), getattr(self.make, "keywords", {})
        found = []
        for parameter in list(signature(function).parameters.values())[1:]:
            kind, words = get_args(hints[parameter.name])[:2]
            found.append((parameter.name, kind, words, fixed.get(parameter.name, parameter.default)))
        return found

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.make.__doc__ or ""
