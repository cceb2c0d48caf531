"""One clear sentence for a wrong argument: what it must be, and what it was."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nsm import system

MOST_THREADS = 1024
MOST_HEADS = 1024
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_SHOWN = {code: repr(chr(code))[1:-1] for code in _CONTROLS if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Text without control characters: text from a file may hold terminal commands or change the writing direction."""
    return text.translate(_SHOWN)


class UserError(ValueError):
    """A user's mistake, in one sentence. The command line prints it and exits with code 2."""

    def __str__(self) -> str:
        return printable(super().__str__())  # it may quote a file


class Failed(Exception):
    """A valid command whose work failed, in one sentence; exit code 1. Any other exception is a bug.

    Each kind of failure is defined where it happens; the command line needs only this class.
    """


def brief(text: str, most: int = 120) -> str:
    """A text from a file or a user, shortened to fit a sentence."""
    return text if len(text) <= most else f"{text[:most]}…"


def choose(argument: str, value: str, known: Iterable[str]) -> str:
    """Return `value` if it is one of the `known` names, else raise a UserError that suggests the nearest."""
    names = list(known)
    if value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(f"{argument} must be one of {', '.join(map(repr, names))}, was {value!r}{hint}")


def at_least(argument: str, value: Any, lowest: int) -> int:
    """Return `value` if it is an integer of at least `lowest`, else raise a UserError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise UserError(f"{argument} must be an integer of at least {lowest}, was {value!r}")
    return value


def head_count(argument: str, value: Any) -> int:
    """Return `value` if it is a sensible number of heads: each has its own network."""
    return _count(argument, value, MOST_HEADS)


def thread_count(value: Any) -> int:
    """Return `value` if it is a sensible number of threads: far more make libraries crash."""
    return _count("threads", value, MOST_THREADS)


def _count(argument: str, value: Any, most: int) -> int:
    if at_least(argument, value, 1) > most:
        raise UserError(f"{argument} must be at most {most:,}, was {value:,}")
    return int(value)


def fits(what: str, size: int) -> None:
    """Raise a UserError unless `size` bytes, a lower bound, are free; to be called before allocating them.

    A system that overcommits memory would kill the process without a message.
    """
    free = free_memory()
    if size > free:
        raise UserError(f"{what} would need at least {_in_words(size)} of memory, but only {_in_words(free)} is free")


def free_memory() -> int:
    """Bytes that this process may still allocate, limited by the machine, its container and its own limit."""
    limits = system.memory_limits()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    with suppress(OSError, ValueError):  # "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8")))
    return min(limits, default=sys.maxsize)


def _in_words(size: int) -> str:
    """A number of bytes as text: 1.5 GB."""
    return f"{size / 1e9:,.1f} GB" if size < 10**15 else "more than a million GB"


def finite(argument: str, value: float) -> float:
    """Return `value` if it is a finite number, else raise a UserError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -float("inf") < value < float("inf"):
        raise UserError(f"{argument} must be a finite number, was {value!r}")
    return float(value)


def positive(argument: str, value: float) -> float:
    """Return `value` if it is a finite number above zero, else raise a UserError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise UserError(f"{argument} must be a finite number above 0, was {value!r}")
    return float(value)
