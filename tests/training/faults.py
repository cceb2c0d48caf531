"""Processes that die and disks that fail, at a chosen operation."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

from nsm import files

WRITES = ("write", "fsync", "rename", "replace", "mkdir")
ALL = (*WRITES, "unlink", "rmdir")


class Faults:
    """Counts operations on the disk and calls `act` instead of the `at`-th and, if it returns, of all after it."""

    def __init__(self, monkeypatch, at: int | None, act: Callable[[], None], kinds: tuple[str, ...] = ALL) -> None:
        self.count = 0

        def strike() -> None:
            self.count += 1
            if at is not None and self.count >= at:
                act()

        def wrapped(function):
            def call(*arguments, **options):
                strike()
                return function(*arguments, **options)

            return call

        def write_half(path: Path, content: bytes, *mode: int) -> None:
            if at is not None and self.count + 1 >= at:
                path.write_bytes(content[: len(content) // 2])
            strike()
            write(path, content, *mode)

        write = files.write_durably
        for kind in set(kinds) - {"write"}:
            monkeypatch.setattr(os, kind, wrapped(getattr(os, kind)))
        monkeypatch.setattr(files, "write_durably", write_half)


def forked(work: Callable[[], object]) -> int:
    """Start a process that does the work and leaves with code 0, or 1 if it raised; returns its id.

    A fork, because it starts in milliseconds and dies as any other process does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: none of ours is running
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Wait for a forked process; its exit code, or minus the signal it died of."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
