"""The command line: parses, calls, prints."""

from __future__ import annotations

import os
import select
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from nsm.checks import Failed, UserError
from nsm.training.place import place
from nsm.training.signals import Interrupted

if TYPE_CHECKING:
    from nsm.commands import Command

DESCRIPTION = "Neural stored-program memory: train a machine, test it, watch it run, reproduce the paper."
FAILED, MISTAKE, INTERRUPTED, UNREAD = 1, 2, 75, 141
"""Exit codes: the run failed; the command was wrong; the run was stopped and goes on when started again; whoever read
the output has left, as `head` does."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a user's mistake is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Σ or ± gets a question mark
    try:
        try:
            _parse(arguments).run()
        finally:
            sys.stdout.flush()  # also after --help, which leaves: at the interpreter's end it is too late to be caught
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
        _leave(INTERRUPTED, "stopped; what was done is saved, and the same command goes on from there")
    except KeyboardInterrupt:
        _leave(130, "stopped")  # as a shell reports it


def _parse(arguments: list[str] | None) -> Command:
    """The command; its options and tyro are imported here, where Ctrl-C is caught."""
    import tyro

    from nsm.commands import Command

    command: Command = tyro.cli(Command, prog="nsm", description=DESCRIPTION, args=arguments)
    return command


def _leave_if_unread() -> None:
    """If nobody reads the output any more, leave without a word; what Python still has of it goes nowhere."""
    unread = [stream for stream in (sys.stdout, sys.stderr) if _has_lost_its_reader(stream.fileno())]
    for stream in unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if unread:
        raise SystemExit(UNREAD) from None


def _has_lost_its_reader(descriptor: int) -> bool:
    pipe = select.poll()
    pipe.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in pipe.poll(0))


def _leave(code: int, sentence: str) -> NoReturn:
    sys.stdout.flush()
    if place()[0] == 0:  # of several ranks, all of which would say the same
        print(f"nsm: {sentence}", file=sys.stderr)
    raise SystemExit(code) from None
