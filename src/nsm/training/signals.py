"""SIGINT, SIGTERM and SIGHUP: the first one asks a run to save and stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from nsm.system import HANGUP

SIGNALS = (signal.SIGINT, signal.SIGTERM, *HANGUP)
COMPILER = ("numba", "llvmlite")


class Interrupted(Exception):
    """The work was asked to stop; it is saved and can be resumed."""


def gets_out(frame: FrameType | None) -> bool:
    """Whether an exception that a signal handler raises in this frame reaches the caller.

    Not out of an import, where libraries catch it and C code replaces it. Not out of the compiler of the kernels
    either, which takes it for its own error and leaves objects half made; in callbacks from C, Python only prints it.
    """
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_filename.startswith("<frozen importlib") or module.partition(".")[0] in COMPILER:
            return False
        frame = frame.f_back
    return True


@contextmanager
def asked_by_signal(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at the first signal; at the second exit with 128 + its number, as shells report a killed process.

    `ask` may raise Interrupted, and has to remember that it was called: the exception is dropped where it would not
    get out.

    An ignored signal stays ignored, as `nohup` needs it. Outside the main thread nothing is done.
    """
    asked, terminals = False, [number for number in range(3) if os.isatty(number)]

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and gets_out(frame):
            raise SystemExit(128 + number)
        if asked:
            os._exit(128 + number)
        asked = True
        if number in HANGUP:
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
    """Redirect a closed terminal to /dev/null: saving must not fail because a line can't be printed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)
