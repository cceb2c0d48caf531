"""Which machine of a run is tested or watched, and on which sequences: options of both `eval` and `view`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from nsm.checks import UserError, brief, choose
from nsm.commands.options import DataDir, Integer, Plugins, load_plugins, option
from nsm.data.source import look_in

Range = Annotated[str | None, option("N|LOW-HIGH", "the test's")]
"""One number (120) or two (10-20)."""
RANGES = ("length", "repeats", "items", "sorted_items")
LIKE = ("test", "training")


@dataclass(frozen=True)
class PutTo:
    """Which machine of a run, on which sequences."""

    which: str = "best"
    """Checkpoint: best (lowest validation loss) or last."""
    like: str = "test"
    """Distribution of the sequences: test, or training (new sequences like those it was trained on)."""
    seed: Annotated[Integer, option("INT", "the run's")] = None
    """Random seed of the sequences."""
    length: Range = None
    """Vectors to copy, bits of an n-gram source, or drawings of a few-shot episode."""
    repeats: Range = None
    """Repetitions in Repeat Copy."""
    items: Range = None
    """Items in Associative Recall or Priority Sort."""
    sorted_items: Range = None
    """Items that Priority Sort has to output, highest priority first."""
    slots: Annotated[Integer, option("INT", "the machine's")] = None
    """Slots of the tape."""
    data_dir: DataDir = None
    """Directory of the data sets; see nsm data."""
    imports: Plugins = ()
    """Modules with your own tasks or memories, imported first."""

    def sequences(self) -> dict[str, Any]:
        """The arguments of `Run.test` and `Run.view`; all that can be checked without torch has been checked."""
        choose("which", self.which, ("best", "last"))
        choose("like", self.like, LIKE)
        texts = {name: getattr(self, name) for name in RANGES}
        ranges = {name: _range(name, text) for name, text in texts.items() if text is not None}
        look_in(self.data_dir)
        load_plugins(self.imports)
        return {"like": self.like, "seed": self.seed, "slots": self.slots, **ranges}


def _range(name: str, text: str) -> int | tuple[int, int]:
    numbers = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", text)
    if numbers is None:
        raise UserError(f"{name} must be a number, or two joined by a dash, like 120 or 10-20, was {brief(text)!r}")
    low, high = numbers.groups()
    return int(low) if high is None else (int(low), int(high))


SequencesOptions = Annotated[PutTo, tyro.conf.arg(name="")]
"""Its options, without a prefix."""
USUAL = PutTo()
