"""Lengths and numbers of things, as a command takes them: one number or two, like 120 or 10-20."""

from __future__ import annotations

import re
from typing import Annotated, Any

from nsm.checks import UserError, brief
from nsm.commands.terminal import option

Range = Annotated[str | None, option("N|LOW-HIGH", "the test's")]
NAMES = ("length", "repeats", "items", "sorted_items")
LIKE = ("test", "training")


def ranges_given(command: Any) -> dict[str, Any]:
    """The ranges that were given to a command which has all of `NAMES` as options."""
    given = {name: getattr(command, name) for name in NAMES}
    return {name: _range(name, text) for name, text in given.items() if text is not None}


def _range(name: str, text: str) -> int | tuple[int, int]:
    numbers = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", text)
    if numbers is None:
        raise UserError(f"{name} must be a number or two joined by a dash, like 120 or 10-20, was {brief(text)!r}")
    low, high = numbers.groups()
    return int(low) if high is None else (int(low), int(high))
