"""What operating systems do each in a way of their own: locks, handles, processes, users, memory, signals.

Windows is told apart here and nowhere else: `mypy --platform win32` finds what is used of a system that lacks it.
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
    """The byte that stands for the file, beyond its end: one that is locked can't be read by others."""

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
        """Whether a process may still be there. Not to be asked with `os.kill`, which ends processes here."""
        return True

    def user() -> int | None:
        """Whose process this is, None where files don't say whose they are. A user's own are closed to others here."""
        return None

    def memory_limits() -> list[int]:
        """Bytes that this process may have at most, as far as is known."""
        return []

    def has_lost_its_reader(descriptor: int) -> bool:
        """Whether what is written there goes to a pipe that nobody reads; to be asked once writing has failed."""
        return not os.isatty(descriptor)

    @contextmanager
    def unheard_by_children() -> Iterator[None]:
        """Ctrl-C can't be kept from the children that are started here: they save and stop by themselves."""
        yield

    def after_fork(call: Callable[[], None]) -> None:
        """Have `call` called in every process that is forked: none is."""

    def complete_lines(complete: Callable[[str, int], str | None]) -> None:
        """Have the tab key complete words in `input`, which is plain here."""

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
        """Whether a process is still there."""
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # somebody else's
        return True

    def user() -> int | None:
        """Whose process this is, None where files don't say whose they are."""
        return os.getuid()

    def memory_limits() -> list[int]:
        """Bytes that this process may have at most: of the machine, and by its own limit, where it has one."""
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
        """Keep Ctrl-C, and the end of the terminal, from the children that are started here.

        Both go to every process of the terminal. A blocked signal stays blocked in a child. (The tracker, which the
        first start brings along, unblocks it.)
        """
        from multiprocessing import resource_tracker  # not for a command that starts no process

        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *HANGUP})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def after_fork(call: Callable[[], None]) -> None:
        """Have `call` called in every process that is forked."""
        os.register_at_fork(after_in_child=call)

    def complete_lines(complete: Callable[[str, int], str | None]) -> None:
        """Have the tab key complete words in `input`, where Python was built with a library for that."""
        with suppress(ImportError):
            import readline

            readline.set_completer(complete)
            apples = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if apples else "tab: complete")
