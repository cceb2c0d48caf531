"""Interventions: changes to a machine while it runs, to find out what a program, a slot or a head is for.

    out, state, trace = machine.run(x, [ForceProgram("read 1", 1, start=20)])

Steps, slots and programs count from 0, as in the tensors of a trace; heads have the names of `Trace.head_traces`, for
example "read 1". Heads that share a control head, such as a DNC's read heads, share its programs: forcing or forbidding
a program for one of them does so for all. If the state network or the output layer stores programs, these are forced
and forbidden in the same way, under the names "state" and "output".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from nsm.checks import UserError, at_least, choose
from nsm.memories import DNCMemory, LRUAMemory, Memory, NTMMemory
from nsm.memories.memory import Place
from nsm.network import Network
from nsm.state import NO_NOISE, MachineState, Noise

# --- common parts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intervention(ABC):
    """A change to a machine while it runs; checked when it is made, and against the machine when it is run."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "head" and not isinstance(value, str):
                raise UserError(f"head must be the name of a head, such as 'read 1', was {value!r}")
            if name == "by" and (isinstance(value, bool) or not isinstance(value, int)):
                raise UserError(f"by must be an integer, was {value!r}")
            if name == "stop" and value is not None:
                at_least(name, value, vars(self)["start"] + 1)
            if name not in ("head", "by", "stop"):
                at_least(name, value, 0)

    @abstractmethod
    def holds(self, step: int) -> bool:
        """Whether it applies at a step."""


@dataclass(frozen=True, kw_only=True)
class AtOnce(Intervention):
    """Applies at one step."""

    step: int

    def holds(self, step: int) -> bool:
        return step == self.step


@dataclass(frozen=True, kw_only=True)
class Lasting(Intervention):
    """Applies at every step from `start` to before `stop`."""

    start: int = 0
    """The first step."""
    stop: int | None = None
    """The step after the last one; None: it lasts to the end."""

    def holds(self, step: int) -> bool:
        return self.start <= step and (self.stop is None or step < self.stop)


@dataclass(frozen=True)
class OfProgram(Lasting):
    """Limits the programs that a head, the state network or the output layer can use."""

    head: str
    """The name of a head, or "state" or "output"."""
    program: int

    @abstractmethod
    def allows(self, programs: Tensor) -> Tensor:
        """Which of the programs (P,) it may run."""


@dataclass(frozen=True)
class OfTape(AtOnce):
    """Changes the content of the tape before a step. Usage, links and heads stay as they are."""

    @abstractmethod
    def edited(self, tape: Tensor, blank: Tensor) -> Tensor:
        """The tape (B, N, M); `blank` is what it was before the first step."""


@dataclass(frozen=True)
class OfHead(AtOnce):
    """Changes the position of a head at a step. It reads or writes there and continues from there."""

    head: str

    @abstractmethod
    def moved(self, address: Tensor) -> Tensor:
        """The address (B, N) that replaces the one it computed."""


# --- the kinds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForceProgram(OfProgram):
    """A head runs only this program, whatever it attends to."""

    def allows(self, programs: Tensor) -> Tensor:
        return programs == self.program


@dataclass(frozen=True)
class ForbidProgram(OfProgram):
    """A head never runs this program: it attends to the others as if they were the only ones."""

    def allows(self, programs: Tensor) -> Tensor:
        return programs != self.program


@dataclass(frozen=True)
class EraseSlot(OfTape):
    """Before a step, a slot gets its initial content back."""

    slot: int

    def edited(self, tape: Tensor, blank: Tensor) -> Tensor:
        erased = torch.arange(tape.shape[1], device=tape.device) == self.slot
        return torch.where(erased.unsqueeze(-1), blank, tape)


@dataclass(frozen=True)
class SwapSlots(OfTape):
    """Before a step, two slots swap their contents."""

    first: int
    second: int

    def edited(self, tape: Tensor, blank: Tensor) -> Tensor:
        order = torch.arange(tape.shape[1], device=tape.device)
        order[self.first], order[self.second] = self.second, self.first
        return tape[:, order]


@dataclass(frozen=True)
class MoveHead(OfHead):
    """At a step, a head is `by` slots further than it would be (backwards if negative); the tape is a ring."""

    by: int

    def moved(self, address: Tensor) -> Tensor:
        return address.roll(self.by, dims=-1)


@dataclass(frozen=True)
class PlaceHead(OfHead):
    """At a step, a head is on one slot, with its whole weight."""

    slot: int

    def moved(self, address: Tensor) -> Tensor:
        return address.sum(-1, keepdim=True) * (torch.arange(address.shape[-1], device=address.device) == self.slot)


@dataclass(frozen=True)
class SilenceNoise(Lasting):
    """No noise, neither on an LSTM's cell nor in the choice of programs. Evaluation usually has none anyway."""


# --- in a run ---------------------------------------------------------------------------------------------------------


class Where(NamedTuple):
    """The place of a trace's head in its machine: its number within its kind, and the control head that steers it."""

    kind: str
    number: int
    control: int


def heads_of(memory: Memory) -> dict[str, Where]:
    """A memory's heads, by their names in a trace."""
    found = {}
    for kind in ("read", "write"):
        controls = [n for n, head in enumerate(memory.heads) if head.kind == kind]
        if isinstance(memory, DNCMemory) and kind == "read":
            controls *= memory.config.read_heads
        found.update({f"{kind} {k + 1}": Where(kind, k, control) for k, control in enumerate(controls)})
    return found


class Touch(NamedTuple):
    """The interventions of one step, in the form that `Machine._step` needs."""

    active: tuple[Intervention, ...] = ()
    heads: dict[str, Where] = {}  # noqa: RUF012
    choosers: dict[str, int | str] = {}  # noqa: RUF012
    """What runs programs, by name: the number of the control head, or the part of the machine."""
    programs: Tensor = torch.empty(0, dtype=torch.int64)
    """Their numbers (P,)."""
    blank: Tensor = torch.empty(0)
    """The tape before the first step."""

    def before(self, state: MachineState, noise: Noise) -> tuple[MachineState, Noise]:
        """The state and the noise that the step starts with."""
        for act in self.active:
            if isinstance(act, OfTape):
                memory = cast(Any, state.memory)
                state = state._replace(memory=memory._replace(memory=act.edited(memory.memory, self.blank)))
            if isinstance(act, SilenceNoise):
                noise = NO_NOISE
        return state, noise

    def allowed(self, chooser: int | str) -> Tensor | None:
        """Which programs (P,) a control head may run, by its number, or "state" or "output"; None for all."""
        mine = [a for a in self.active if isinstance(a, OfProgram) and self.choosers[a.head] == chooser]
        if not mine:
            return None
        allowed = torch.stack([act.allows(self.programs) for act in mine]).all(dim=0)
        if not allowed.any():
            raise UserError(f"the interventions leave {mine[0].head!r} no program to run")
        return allowed

    @property
    def placing(self) -> tuple[Place, ...]:
        """`place` if a head is to be moved; otherwise empty, so that a custom memory need not have this argument."""
        return (self.place,) if any(isinstance(act, OfHead) for act in self.active) else ()

    def place(self, kind: str, number: int, address: Tensor) -> Tensor:
        """The address (B, N) that replaces the one a head computed."""
        for act in self.active:
            if isinstance(act, OfHead) and self.heads[act.head][:2] == (kind, number):
                address = act.moved(address)
        return address


UNTOUCHED = Touch()


class Course:
    """The interventions of a run of `steps` steps from a state, checked."""

    def __init__(self, acts: Sequence[Intervention], network: Network, state: MachineState, steps: int) -> None:
        self.acts, self.touch = acts, UNTOUCHED
        if not acts:
            return
        programs, memory = network.config.programs, network.memory
        tape = getattr(state.memory, "memory", None)
        slots = tape.shape[1] if isinstance(tape, Tensor) and tape.dim() == 3 else 0
        heads = heads_of(memory)
        self.touch = Touch(
            heads=heads,
            choosers={name: head.control for name, head in heads.items()} | {part: part for part in network._stored},
            programs=torch.arange(0 if programs is None else programs.count, device=network.initial_read.device),
            blank=cast(Any, memory.initial_state(1, slots)).memory if slots else UNTOUCHED.blank,
        )
        needs = {
            OfProgram: (programs is not None, "stored programs"),
            OfTape: (slots > 0, "a tape in its state, `memory` (B, N, M)"),
            OfHead: (isinstance(memory, NTMMemory | LRUAMemory | DNCMemory), "an NTM, LRUA or DNC memory"),
        }
        limits = {"program": len(self.touch.programs), "step": steps, "start": steps}
        limits |= dict.fromkeys(("slot", "first", "second"), slots)
        for act in acts:
            if not isinstance(act, Intervention):
                raise UserError(f"interventions must be ForceProgram, EraseSlot and so on, one was {act!r:.80}")
            name = type(act).__name__
            for kind, (there, what) in needs.items():
                if isinstance(act, kind) and not there:
                    raise UserError(f"{name} needs a machine with {what}")
            for field, value in vars(act).items():
                if field == "head":
                    known = self.touch.choosers if isinstance(act, OfProgram) else self.touch.heads
                    choose(f"{name}.head", value, known)
                elif field in limits and value >= limits[field]:
                    raise UserError(f"{name}.{field} must be at most {limits[field] - 1} in this run, was {value}")

    def at(self, step: int) -> Touch:
        """The interventions at a step."""
        return (
            self.touch._replace(active=tuple(act for act in self.acts if act.holds(step))) if self.acts else UNTOUCHED
        )
