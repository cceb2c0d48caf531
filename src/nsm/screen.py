"""What is shown on a terminal: text as text, and how fast something goes."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.text import Text

from nsm.checks import printable


class Screen(Console):
    """A console that shows all text as text, and leaves it to the command line what happens when nobody reads it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as it is, but for what is no text: names from files are among it."""
        return super().render_str(printable(text), **options)


def console(stderr: bool = False) -> Console:
    """A console that prints what it is given; away from a terminal wide enough that a table is not broken."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Screen(stderr=stderr, width=None if terminal else 170, markup=False, highlight=False, soft_wrap=True)


class Pace:
    """How fast this process goes and when it will be done; what others did before it says nothing about that."""

    def __init__(self, total: int) -> None:
        self.total, self.begun = total, False

    def begin(self, step: int) -> None:
        """Take time from this step on."""
        self.begun, self._first, self._began = True, step, time.monotonic()

    def at(self, step: int) -> tuple[str, str]:
        """Iterations per second and the time left, in words."""
        if not self.begun:
            self.begin(step)
        done, seconds = step - self._first, time.monotonic() - self._began
        if done <= 0 or seconds <= 0:
            return "–", "–"
        rate = done / seconds
        left = timedelta(seconds=round((self.total - step) / rate))
        return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}", str(left)
