"""Lengths and counts: the fields of a task that can change without changing the model's shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nsm.checks import UserError

if TYPE_CHECKING:
    from nsm.tasks.task import Task

Range = tuple[int, int]
"""(low, high), both ends included."""


def check_count(task: object, field: str, least: int = 1) -> None:
    """Refuse a field that is not a whole number of at least `least`."""
    value = getattr(task, field)
    if not isinstance(value, int) or value < least:
        raise UserError(f"{type(task).__name__}.{field} is {value!r}: it must be a whole number of at least {least}.")


def check_range(task: object, field: str, least: int = 1) -> None:
    """Refuse a field that is not a pair (low, high) with `least` ≤ low ≤ high."""
    value = getattr(task, field)
    pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(end, int) for end in value)
    if not pair or not least <= value[0] <= value[1]:
        raise UserError(
            f"{type(task).__name__}.{field} is {value!r}: "
            f"it must be two whole numbers (low, high) with {least} <= low <= high."
        )


def check_share(task: object, field: str) -> None:
    """Refuse a field that is not a number from 0 to 1."""
    value = getattr(task, field)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UserError(f"{type(task).__name__}.{field} is {value!r}: it must be a number from 0 to 1.")


def with_ranges(task: Task, **ranges: int | Range) -> Task:
    """The task with some of its ranges changed: `with_ranges(copy, length=(50, 60))`.

    A number and a range of one value are interchangeable. In a task made of several, a range changes in all that have
    it.

    Raises:
        UserError: no part of the task has such a range, or one refuses it.
    """
    known = sorted({field for single in task.singles() for field in single.ranges})
    for field in ranges:
        if field not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UserError(f"This task has no range {field!r}: {has}.")

    def change(single: Task) -> Task:
        fields = {field: _like(single, field, value) for field, value in ranges.items() if field in single.ranges}
        # `replace` is typed for the fields of Task, not of the classes below it; each checks its own when made.
        return replace(single, **fields)  # type: ignore[arg-type]

    return task.mapped(change)


def _like(single: Task, field: str, value: int | Range) -> int | Range:
    """The value as the field has it: one number, or a range."""
    if isinstance(getattr(single, field), tuple):
        return (value, value) if isinstance(value, int) else value
    if isinstance(value, int):
        return value
    if len(set(value)) != 1:
        raise UserError(f"{type(single).__name__}.{field} is one number: it cannot be the range {value}.")
    return value[0]
