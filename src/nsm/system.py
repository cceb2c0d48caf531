"""What differs between operating systems: locks, handles, processes, users, memory, signals.

Windows is treated separately here and nowhere else: `mypy --platform win32` finds uses of what it lacks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import errno
    import msvcrt

    HANGUP: tuple[signal.Signals, ...] = ()
    WITHOUT_WAITING = NOT_A_LINK = _BINARY = os.O_BINARY
    _LOCKED = 1 << 30
    """The byte that is locked, beyond the end of the file: others can't read a locked byte."""

    def lock(handle: int, wait: bool) -> None:
        """Lock a file until it is closed, or its process ends; BlockingIOError if another has it, unless we `wait`."""
        while True:
            os.lseek(handle, _LOCKED, os.SEEK_SET)
            try:
                msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                return
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EDEADLK):
                    raise
                if not wait:  # else ten seconds have passed
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
            finally:
                os.lseek(handle, 0, os.SEEK_SET)

    def handle_to_sync(path: Path) -> int | None:
        """A handle for `os.fsync`, which takes one that can write; directories have none."""
        return None if path.is_dir() else os.open(path, os.O_RDWR | _BINARY)

    def directory_handle(path: Path) -> int | None:
        """A handle to lock a directory by, where there are such."""
        return None

    def is_alive(process: int) -> bool:
        """Whether a process may still be running. Not checked with `os.kill`, which ends processes here."""
        return True

    def user() -> int | None:
        """The user of this process, None where files have no owner. Here a user's own files are closed to others."""
        return None

    def memory_limits() -> list[int]:
        """The known limits on the memory of this process, in bytes."""
        return []

    def has_lost_its_reader(descriptor: int) -> bool:
        """Whether what is written there goes to a pipe that nobody reads; to be asked once writing has failed."""
        return not os.isatty(descriptor)

    @contextmanager
    def unheard_by_children() -> Iterator[None]:
        """Children started here can't be shielded from Ctrl-C: they save and stop by themselves."""
        yield

    def after_fork(call: Callable[[], None]) -> None:
        """Register `call` for forked processes: there are none."""

    def complete_lines(complete: Callable[[str, int], str | None]) -> None:
        """Make the tab key complete words in `input`: not available here."""

else:
    import fcntl
    import resource
    import select

    HANGUP = (signal.SIGHUP,)
    WITHOUT_WAITING, NOT_A_LINK = os.O_NONBLOCK, os.O_NOFOLLOW

    def lock(handle: int, wait: bool) -> None:
        """Lock a file until it is closed, or its process ends; BlockingIOError if another has it, unless we `wait`."""
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def handle_to_sync(path: Path) -> int | None:
        """A handle for `os.fsync`."""
        return os.open(path, os.O_RDONLY)

    def directory_handle(path: Path) -> int | None:
        """A handle to lock a directory by, where there are such."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def is_alive(process: int) -> bool:
        """Whether a process is still running."""
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # another user's
        return True

    def user() -> int | None:
        """The user of this process, None where files have no owner."""
        return os.getuid()

    def memory_limits() -> list[int]:
        """Limits on the memory of this process in bytes: the machine's, and its own if it has one."""
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return [pages] if limit == resource.RLIM_INFINITY else [pages, limit]

    def has_lost_its_reader(descriptor: int) -> bool:
        """Whether what is written there goes to a pipe that nobody reads; to be asked once writing has failed."""
        pipe = select.poll()
        pipe.register(descriptor, 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in pipe.poll(0))

    @contextmanager
    def unheard_by_children() -> Iterator[None]:
        """Shield the children started here from Ctrl-C and from the closing of the terminal.

        Both signals go to every process of the terminal. A blocked signal stays blocked in a child. (The resource
        tracker, started with the first child, unblocks it.)
        """
        from multiprocessing import resource_tracker  # not for a command that starts no process

        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *HANGUP})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def after_fork(call: Callable[[], None]) -> None:
        """Register `call` to be called in every forked process."""
        os.register_at_fork(after_in_child=call)

    def complete_lines(complete: Callable[[str, int], str | None]) -> None:
        """Make the tab key complete words in `input`, if Python was built with readline."""
        with suppress(ImportError):
            import readline

            readline.set_completer(complete)
            apples = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if apples else "tab: complete")
