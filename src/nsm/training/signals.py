"""SIGINT, SIGTERM and SIGHUP, of a terminal that is closed: the first asks, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COMPILER = ("numba", "llvmlite")


class Interrupted(Exception):
    """The work was asked to stop; what was done is saved and goes on when started again."""


def gets_out(frame: FrameType | None) -> bool:
    """Whether an exception that is raised there, as by a handler, gets to who waits for it, without more ado.

    Out of an import it may not: libraries catch it, C code passes on an error of its own. Nor out of the compiler of
    kernels: it takes errors for its own, leaves objects half made, and much of it is called back by C or when an object
    is freed. What is raised there Python prints, and goes on.
    """
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_filename.startswith("<frozen importlib") or module.partition(".")[0] in COMPILER:
            return False
        frame = frame.f_back
    return True


@contextmanager
def asked_by_signal(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at the first signal; at the second leave as a shell reports a killed process, with 128 + its number.

    `ask` may raise Interrupted, and has to remember it: where that would not get out it is dropped.

    A signal that is ignored stays so: that is how `nohup` keeps work alive without a terminal. Outside the main thread
    nothing is done: whoever runs that one handles signals.
    """
    asked, terminals = False, [number for number in range(3) if os.isatty(number)]

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and gets_out(frame):
            raise SystemExit(128 + number)
        if asked:
            os._exit(128 + number)
        asked = True
        if number == signal.SIGHUP:
            _leave(terminals)
        try:
            ask()
        except Interrupted:
            if gets_out(frame):
                raise

    try:
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in heeded}
    except ValueError:
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(terminals: list[int]) -> None:
    """Write nowhere instead of to a terminal that is gone: what is saved meanwhile must not fail for a line of text."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)
