"""The same task at other lengths and numbers of things."""

from dataclasses import replace

from nsm.checks import UserError
from nsm.tasks.fields import Range
from nsm.tasks.task import Task


def with_ranges(task: Task, **ranges: int | Range) -> Task:
    """The task with some of its ranges changed: `with_ranges(copy, length=(50, 60))`.

    A number stands for a range of one value, and the other way round. In a task made of several, a range changes in
    all that have it.

    Raises:
        ValueError: no part of the task has such a range, or one refuses it.
    """
    known = sorted({field for single in task.singles() for field in single.ranges})
    for field in ranges:
        if field not in known:
            raise UserError(f"This task has no range {field!r}: it has {', '.join(known)}.")

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
