"""Checking the fields of a task when it is made."""

from nsm.checks import UserError

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
