"""One clear sentence for a wrong argument: what it was, and what would be right."""

from __future__ import annotations

import difflib
import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_THREADS = 1024
MOST_HEADS = 1024
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_SHOWN = {code: repr(chr(code))[1:-1] for code in _CONTROLS if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Text that a terminal only shows: one from a file may hold commands to it, or turn the direction of writing."""
    return text.translate(_SHOWN)


class UserError(ValueError):
    """A user's mistake, in one sentence. The command line prints it and exits with code 2."""

    def __str__(self) -> str:
        return printable(super().__str__())  # it may quote a file, and goes into warnings, too


class Failed(Exception):
    """Work that failed though nothing was wrong with the command, in one sentence; exit code 1. All else is a bug.

    Each kind of failure is defined where it happens; who only has to tell of it need not import that.
    """


def brief(text: str, most: int = 120) -> str:
    """A text that is not ours, for a sentence: its beginning, if it is long."""
    return text if len(text) <= most else f"{text[:most]}…"


def choose(argument: str, value: str, known: Iterable[str]) -> str:
    """Return `value` if it is one of the `known` names, else raise a UserError that suggests the nearest one."""
    names = list(known)
    if value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(f"{argument} must be one of {', '.join(map(repr, names))}, was {value!r}{hint}")


def at_least(argument: str, value: Any, lowest: int) -> int:
    """Return `value` if it is an integer not below `lowest`, else raise a UserError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise UserError(f"{argument} must be an integer of at least {lowest}, was {value!r}")
    return value


def head_count(argument: str, value: Any) -> int:
    """Return `value` if it is a number of heads, each of which has a network of its own."""
    if at_least(argument, value, 1) > MOST_HEADS:
        raise UserError(f"{argument} must be at most {MOST_HEADS:,}, was {value:,}")
    return int(value)


def fits(what: str, size: int) -> None:
    """Raise a UserError unless so many bytes are free, before any of them is asked for.

    A system that has lent out more than it has kills a process without a word. Sizes are the least that is needed.
    """
    free = free_memory()
    if size > free:
        raise UserError(f"{what} would take {_in_words(size)} of memory at least, and {_in_words(free)} are free")


def free_memory() -> int:
    """Bytes that this process may still have: of the machine's, of its container's, or of its own limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), resource.getrlimit(resource.RLIMIT_AS)[0]]
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    with suppress(OSError, ValueError):  # "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limit for limit in limits if limit >= 0)


def _in_words(size: int) -> str:
    """So many bytes: 1.5 GB, and no more digits than anyone reads."""
    return f"{size / 1e9:,.1f} GB" if size < 10**15 else "more than a million GB"


def thread_count(value: Any) -> int:
    """Return `value` if it is a number of threads that a machine may have: far more make the libraries crash."""
    if at_least("threads", value, 1) > MOST_THREADS:
        raise UserError(f"threads must be at most {MOST_THREADS:,}, was {value:,}")
    return int(value)


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
