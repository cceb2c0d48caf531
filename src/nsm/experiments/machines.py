"""The machines of the paper's appendix: every hyper-parameter table as configurations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nsm.checks import at_least, choose
from nsm.controllers import Controller
from nsm.experiments.models import MODELS
from nsm.machine import Interface, MachineConfig
from nsm.memories import DNC, LRUA, NTM
from nsm.programs import Programs

BABI_WORDS = 159
BABI_PROGRAMS = (1, 2, 4)
OMNIGLOT_PIXELS = 20 * 20


@dataclass(frozen=True)
class Synthetic:
    """A row of the tables for synthetic tasks; sizes are given as NTM, NUTM."""

    input_size: int
    output_size: int
    heads: int
    sizes: tuple[int, int]
    programs: int = 2
    slots: int = 128
    controller: str = "lstm"
    attention: str = "key-value"

    def machine(self, model: str) -> MachineConfig:
        stored = choose("model", model, MODELS) == "nutm"
        return MachineConfig(
            self.input_size,
            self.output_size,
            Controller(self.controller, self.sizes[stored]),
            NTM(slots=self.slots, width=20, read_heads=self.heads, write_heads=self.heads),
            Programs(self.programs, attention=self.attention) if stored else None,
        )


SYNTHETIC: dict[str, Synthetic] = {
    "copy": Synthetic(10, 8, 1, (100, 80)),
    "repeat-copy": Synthetic(10, 9, 1, (100, 80)),
    "associative-recall": Synthetic(8, 6, 1, (100, 80)),
    "ngrams": Synthetic(1, 1, 1, (100, 80)),
    "priority-sort": Synthetic(9, 8, 5, (200, 150)),
    "long-copy": Synthetic(10, 8, 1, (100, 80), slots=256),
    "copy+repeat-copy": Synthetic(10, 9, 1, (200, 150), programs=3),
    "copy+associative-recall": Synthetic(10, 8, 1, (200, 150), programs=3),
    "copy+priority-sort": Synthetic(10, 8, 3, (200, 150), programs=3),
    "copy+repeat-copy+associative-recall+priority-sort": Synthetic(10, 9, 3, (250, 200), programs=4),
    # Feed-forward controllers "to ignore catastrophic forgetting in the state network", hard programs.
    "continual": Synthetic(10, 8, 1, (200, 150), programs=6, controller="feed-forward", attention="gumbel"),
}


def few_shot(classes: int, programs: int) -> MachineConfig:
    """The LRUA machines for Omniglot: p = 1 is the plain MANN; more programs than the table has get its smallest."""
    at_least("programs", programs, 1)
    sizes = {1: 200, 2: 180, 3: 150}
    return MachineConfig(
        OMNIGLOT_PIXELS + classes,
        classes,
        Controller(size=sizes.get(programs, 150)),
        LRUA(slots=128, width=40, read_heads=4, write_heads=1),
        Programs(programs) if programs > 1 else None,
    )


def question_answering(programs: int, size: int | None = None) -> MachineConfig:
    """The layer-normed DNC machines for bAbI: p = 1 is the plain DNC. The table's 200 for p = 2 is a slip for 240."""
    sizes = {1: 256, 2: 240, 4: 172}
    corrected = sizes[int(choose("programs", str(programs), map(str, sizes)))]
    return MachineConfig(
        BABI_WORDS,
        BABI_WORDS,
        Controller(size=corrected if size is None else size, biases=1, learned_start=False, layer_norm=True),
        DNC(slots=196, width=64, read_heads=4),
        Programs(programs, query_bias=False) if programs > 1 else None,
        Interface(norm=True),
    )


def continual_as_counted(model: str) -> MachineConfig:
    """The continual row as its parameter count has it: an LSTM, and a norm on each head that was never used."""
    machine = SYNTHETIC["continual"].machine(model)
    return replace(
        machine, controller=replace(machine.controller, kind="lstm"), interface=replace(machine.interface, norm=True)
    )
