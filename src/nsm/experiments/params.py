"""Every parameter count the paper publishes, beside the count of our machines: equal to the digit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nsm.experiments import recipes
from nsm.experiments.choice import Model
from nsm.machine import Machine, MachineConfig

PUBLISHED: dict[str, tuple[int, int]] = {
    "copy": (63_260, 52_206),
    "repeat-copy": (63_381, 52_307),
    "associative-recall": (62_218, 51_364),
    "ngrams": (58_813, 48_619),
    "priority-sort": (344_068, 302_398),
    "long-copy": (63_260, 52_206),
    "copy+repeat-copy": (206_481, 153_941),
    "copy+associative-recall": (206_260, 153_770),
    "copy+priority-sort": (275_564, 263_894),
    "copy+repeat-copy+associative-recall+priority-sort": (394_575, 448_379),
    "continual": (206_444, 196_590),
}
"""NTM, NUTM per synthetic row."""
PUBLISHED_BABI: dict[int, int] = {1: 891_136, 2: 934_787, 4: 794_773}


@dataclass(frozen=True)
class Count:
    """One published number and ours."""

    row: str
    model: str
    published: int
    ours: int
    note: str = ""


def count(config: MachineConfig) -> int:
    """How many numbers a machine of this configuration trains."""
    return Machine.from_config(config).parameter_count


def table() -> list[Count]:
    """All 25 published counts: 11 synthetic rows × NTM and NUTM, 3 bAbI rows."""
    rows = []
    for row, published in PUBLISHED.items():
        models: tuple[Model, Model] = ("ntm", "nutm")
        for model, number in zip(models, published, strict=True):
            config, note = recipes.find(row)(model).machine, ""
            if row == "continual":
                note = (
                    "two slips: counts an LSTM where the text has a feed-forward controller, and 184 for two norms "
                    f"of heads that are never used; without them {count(config):,}"
                )
                config = _as_counted(config)
            rows.append(Count(row, model, number, count(config), note))
    for programs, number in PUBLISHED_BABI.items():
        config, note = recipes.babi(programs=programs).machine, ""
        if programs == 2:
            slip = count(replace(config, controller=replace(config.controller, size=200)))
            note = f"slip: the table says controller size 200, which has {slip:,}; the count is that of 240"
        rows.append(Count("babi", f"dnc p={programs}", number, count(config), note))
    return rows


def _as_counted(machine: MachineConfig) -> MachineConfig:
    """The continual row as its count has it: an LSTM, and a norm on each head that was never used."""
    controller, interface = replace(machine.controller, kind="lstm"), replace(machine.interface, norm=True)
    return replace(machine, controller=controller, interface=interface)
