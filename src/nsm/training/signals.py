"""SIGINT and SIGTERM: the first asks, the second ends the process at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The work was asked to stop; what was done is saved and goes on when started again."""


@contextmanager
def asked_by_signal(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at the first signal; at the second leave as a shell reports a killed process, with 128 + its number.

    Outside the main thread nothing is done: whoever runs that one handles signals.
    """
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise SystemExit(128 + number)
        asked = True
        ask()

    try:
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
