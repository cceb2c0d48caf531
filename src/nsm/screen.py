"""Output to a terminal: literal text, tables, and how fast something runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsm.checks import printable


class Screen(Console):
    """A console that shows all text literally, and leaves broken pipes to the command line."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """Text without control characters: names from files may hold some."""
        return super().render_str(printable(text), **options)


def console(stderr: bool = False) -> Console:
    """A console without markup; where there is no terminal, wide enough for any table."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Screen(stderr=stderr, width=None if terminal else 170, markup=False, highlight=False, soft_wrap=True)


def plain_table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """A table of a few names and many figures, without frames."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    for header in names:
        table.add_column(header, overflow="fold")
    for header in figures:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def say(sentence: str) -> None:
    """A line of progress on standard error."""
    print(printable(sentence), file=sys.stderr, flush=True)


def called() -> str:
    """This program as the user called it: ./nsm in a checkout, whose nsm is not on the PATH."""
    return os.environ.get("NSM_CALLED", "nsm")


def many(count: int, noun: str) -> str:
    """A number of things in words: "1 run", "2 runs"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def about(seconds: float) -> str:
    """A duration in words: "about 25 minutes"."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {max(1, seconds):.0f} s"


class Pace:
    """The pace of this process and the time left; what earlier processes did doesn't count."""

    def __init__(self, total: float) -> None:
        self.total, self.begun = total, False

    def begin(self, step: float) -> None:
        """Start the clock at this step."""
        self.begun, self._first, self._began = True, step, time.monotonic()

    def rate(self, step: float) -> float | None:
        """Steps per second so far; None before the first."""
        if not self.begun:
            self.begin(step)
        done, seconds = step - self._first, time.monotonic() - self._began
        return done / seconds if done > 0 and seconds > 0 else None

    def at(self, step: float) -> tuple[str, str]:
        """Steps per second and the time left, for a table."""
        rate = self.rate(step)
        if rate is None:
            return "–", "–"
        left = timedelta(seconds=round((self.total - step) / rate))
        return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}", str(left)
