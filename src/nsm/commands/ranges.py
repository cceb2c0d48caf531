"""Which sequences a command takes, and how it says so; lengths are one number or two, like 120 or 10-20."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from nsm.checks import UserError, choose
from nsm.commands.terminal import option
from nsm.tasks import Sequencing, Task, with_ranges
from nsm.training.config import RunConfig
from nsm.training.loop import task_pair

Range = Annotated[str | None, option("N|LOW-HIGH", "the test's")]
Ranges = dict[str, int | tuple[int, int]]
NAMES = ("length", "repeats", "items", "sorted_items")
LIKE = ("test", "training")


def sequences(config: RunConfig, like: str = "test", ranges: Ranges | None = None) -> Task:
    """The task that a run's machine is put to: its test, or new sequences like those it was trained on."""
    pair = task_pair(config)
    task = pair.test if choose("like", like, LIKE) == "test" else pair.train.held_out()
    return with_ranges(task, **(ranges or {}))


def ranges_of(command: Any) -> Ranges:
    """The ranges that were given to a command which has all of `NAMES` as options."""
    given = {name: getattr(command, name) for name in NAMES}
    return {name: _range(name, text) for name, text in given.items() if text is not None}


def _range(name: str, text: str) -> int | tuple[int, int]:
    numbers = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    if numbers is None:
        raise UserError(f"{name} must be a number or two joined by a dash, like 120 or 10-20, was {text!r}")
    low, high = numbers.groups()
    return int(low) if high is None else (int(low), int(high))


def settings_of(task: Task) -> Ranges:
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
