"""Lengths and numbers of things, as commands take them and say them: one number or two, like 120 or 10-20."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from nsm.checks import UserError
from nsm.commands.terminal import option
from nsm.tasks import Sequencing, Task

Range = Annotated[str | None, option("N|LOW-HIGH", "the test's")]
NAMES = ("length", "repeats", "items", "sorted_items")


def ranges_of(command: Any) -> dict[str, int | tuple[int, int]]:
    """The ranges that were given to a command which has all of `NAMES` as options."""
    given = {name: getattr(command, name) for name in NAMES}
    return {name: _range(name, text) for name, text in given.items() if text is not None}


def _range(name: str, text: str) -> int | tuple[int, int]:
    numbers = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    if numbers is None:
        raise UserError(f"{name} must be a number or two joined by a dash, like 120 or 10-20, was {text!r}")
    low, high = numbers.groups()
    return int(low) if high is None else (int(low), int(high))


def settings_of(task: Task) -> dict[str, int | tuple[int, int]]:
    """A task's ranges as they are; of a task made of several, under the name of each."""
    singles = task.singles()
    prefixes = [f"{name}." for name in task.subtask_names] if isinstance(task, Sequencing) else [""]
    return {
        f"{prefix}{field}": getattr(single, field)
        for prefix, single in zip(prefixes, singles, strict=True)
        for field in single.ranges
    }


def shown(settings: Mapping[str, Any]) -> str:
    """Ranges in words."""
    return ", ".join(f"{field} {_shown(value)}" for field, value in settings.items())


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return str(value[0]) if value[0] == value[1] else f"{value[0]}–{value[1]}"
    return str(value)
