"""The command line: parses, calls, prints."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn

from nsm import system
from nsm.checks import Failed, UserError, choose, printable
from nsm.training.rank import rank_and_size
from nsm.training.signals import Interrupted, gets_out
from nsm.version import __version__

DESCRIPTION = """Neural stored-program memory: train a machine, test it, watch it run, reproduce the paper.

nsm --version prints the versions of nsm, Python and torch."""
FAILED, MISTAKE, INTERRUPTED, STOPPED, UNREAD = 1, 2, 75, 130, 141
"""Exit codes: the run failed; the command was wrong; the run was stopped and can be resumed; the command was stopped by
Ctrl-C, as a shell reports it; the output was closed early, as by `head`."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a UserError is printed as one sentence, with exit code 2."""
    if rank_and_size() == (0, 1):
        _main(arguments)
        return
    # One of several ranks. A thread of torch that is still running at the end may abort the process, and torchrun would
    # report that instead of the exit code.
    code: object = 0
    try:
        _main(arguments)
    except SystemExit as ending:
        code = ending.code
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _main(arguments: list[str] | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Σ or ± shows a question mark
    try:
        try:
            with _ctrl_c():
                _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()  # also after --help, which exits: at the interpreter's end errors can't be caught
    except UserError as error:
        _leave(MISTAKE, str(error))
    except BrokenPipeError as error:
        _leave_if_unread()
        _leave(FAILED, str(error))
    except (Failed, OSError) as error:
        _leave(FAILED, str(error))
    except MemoryError as error:
        _leave(FAILED, f"out of memory: {error}" if str(error) else "out of memory")
    except Interrupted:
        _leave(INTERRUPTED, "stopped and saved; run the same command again to resume")
    except KeyboardInterrupt:
        _leave(STOPPED, "stopped")


def _run(arguments: list[str]) -> None:
    """Parse and call; imports are here, where Ctrl-C is caught."""
    if arguments == ["--version"]:  # tyro requires a command before any option
        import platform
        from importlib.metadata import version

        print(f"nsm {__version__} (Python {platform.python_version()}, torch {version('torch')})")
        return
    from nsm.commands import COMMANDS, Command, train
    from nsm.commands.near import parse

    if not arguments or arguments[0].startswith("-"):
        parse(Command, "nsm", arguments, DESCRIPTION)
    name = choose("command", arguments[0], COMMANDS)
    if name == "train":  # its options depend on the task
        train.main(arguments[1:])
    else:
        parse(COMMANDS[name], f"nsm {name}", arguments[1:]).run()


@contextmanager
def _ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once where KeyboardInterrupt may not: during imports and compilation.

    Elsewhere KeyboardInterrupt is raised as usual. A handler of SIGINT other than Python's is left in place.
    """
    pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heeded = pythons and threading.current_thread() is threading.main_thread()
    if heeded:
        signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:
    if gets_out(frame):
        raise KeyboardInterrupt
    _say("stopped")
    os._exit(STOPPED)


def _leave_if_unread() -> None:
    """If the reader of the output is gone, exit silently; buffered output goes to /dev/null."""
    unread = [stream for stream in (sys.stdout, sys.stderr) if system.has_lost_its_reader(stream.fileno())]
    for stream in unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if unread:
        raise SystemExit(UNREAD) from None


def _leave(code: int, sentence: str) -> NoReturn:
    _say(sentence)
    raise SystemExit(code) from None


def _say(sentence: str) -> None:
    sys.stdout.flush()
    if rank_and_size()[0] == 0:  # all ranks would say the same
        print(f"nsm: {printable(sentence)}", file=sys.stderr, flush=True)
