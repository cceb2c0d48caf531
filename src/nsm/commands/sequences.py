"""Which machine of a run is looked at, and which sequences it is put to: options of `eval` and `view` alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from nsm.checks import UserError, brief, choose
from nsm.commands.data import DataDir
from nsm.commands.plugins import Plugins, load_plugins
from nsm.commands.terminal import Integer, option
from nsm.data.source import look_in

Range = Annotated[str | None, option("N|LOW-HIGH", "the test's")]
"""One number or two: 120, or 10-20."""
RANGES = ("length", "repeats", "items", "sorted_items")
LIKE = ("test", "training")


@dataclass(frozen=True)
class PutTo:
    """Which machine of a run, and which sequences it is put to."""

    which: str = "best"
    """best (lowest validation loss) or last."""
    like: str = "test"
    """test, or training for new sequences like those it was trained on."""
    seed: Annotated[Integer, option("INT", "the run's")] = None
    """Of the sequences."""
    length: Range = None
    """Vectors to copy, bits of an n-gram source, or drawings of a few-shot episode."""
    repeats: Range = None
    """How often Repeat Copy repeats."""
    items: Range = None
    """Items of Associative Recall or Priority Sort."""
    sorted_items: Range = None
    """How many of its items Priority Sort gives back."""
    slots: Annotated[Integer, option("INT", "the machine's")] = None
    """Size of the tape."""
    data_dir: DataDir = None
    """Where the data sets are; see nsm data."""
    imports: Plugins = ()
    """Modules with tasks or memories of your own, to import first."""

    def sequences(self) -> dict[str, Any]:
        """What `Run.test` and `Run.view` take, once what can be wrong without torch has been looked at."""
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
        raise UserError(f"{name} must be a number or two joined by a dash, like 120 or 10-20, was {brief(text)!r}")
    low, high = numbers.groups()
    return int(low) if high is None else (int(low), int(high))


RunDirectory = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
SequencesOptions = Annotated[PutTo, tyro.conf.arg(name="")]
"""Its options, by their own names."""
USUAL = PutTo()
