"""Bounded reads, atomic writes, locks, and the cache: after a kill a file or directory is complete or absent.

Until it is complete, it has a temporary name that only nsm uses: `.nsm-<random>-<process>.tmp`. What a killed process
leaves under such a name is removed by the next process that locks the directory; nothing else is ever removed.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EAGAIN, EEXIST, ELOOP, ENOTEMPTY
from pathlib import Path
from typing import BinaryIO

from nsm import system
from nsm.checks import UserError

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
TEMPORARY = re.compile(r"\.nsm-[0-9a-f]{16}-([0-9]{1,9})\.tmp")


class Damaged(UserError):
    """A file that is not what nsm wrote."""


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, but not a pipe or a device, which may block forever."""
    with open(path, "rb", opener=_without_waiting) as file:
        yield file


def _without_waiting(path: str, flags: int) -> int:
    handle = os.open(path, flags | system.WITHOUT_WAITING)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise Damaged(f"{path} is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")
    return handle


def read(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most or len(content := file.read(size + 1)) > most:
            raise Damaged(f"{path} has {size:,} bytes; it should have at most {most:,}")
    return content


# --- writing ----------------------------------------------------------------------------------------------------------

logger = logging.getLogger("nsm")


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file under a temporary name, sync it, then rename it."""
    with naming(path), _temporary(path) as temporary:
        write_durably(temporary, content, mode)
        os.replace(temporary, path)
        sync(path.parent)


@contextmanager
def directory_atomically(path: Path, replace: bool = True) -> Iterator[Path]:
    """An empty directory to fill, then synced and renamed to `path`. An existing one is replaced, or is an OSError."""
    with naming(path), _temporary(path) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        for directory, _, names in os.walk(temporary):
            for name in names:
                sync(Path(directory, name))
            sync(Path(directory))
        if replace and path.exists():
            remove_atomically(path)
        while True:
            try:
                os.rename(temporary, path)
                break
            except OSError as error:
                # Another process wrote one meanwhile.
                if not replace or error.errno not in (EEXIST, ENOTEMPTY):
                    raise
                remove_atomically(path)
        sync(path.parent)


def write_directory_atomically(path: Path, contents: dict[str, bytes]) -> None:
    """Write a directory's files under a temporary name, sync them, then rename it."""
    with directory_atomically(path) as temporary:
        for name, content in contents.items():
            write_durably(temporary / name, content)


def copy_directory_atomically(source: Path, path: Path, leave: str) -> None:
    """Copy a directory without files called `leave`, under a temporary name first; OSError if `path` exists."""
    with directory_atomically(path, replace=False) as temporary:
        shutil.copytree(source, temporary, ignore=shutil.ignore_patterns(leave), dirs_exist_ok=True)


def remove_atomically(path: Path) -> None:
    """Remove a directory; it is renamed first, so that no process sees half of it."""
    with naming(path), _temporary(path) as hidden, suppress(FileNotFoundError):  # another process has removed it
        os.rename(path, hidden)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file and sync it; a new one has this mode, less the umask."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Sync a file's content, or a directory's entries, so that a rename in it is not lost."""
    handle = system.handle_to_sync(path)
    if handle is None:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make system errors name this file: a full disk names none, and a temporary name means nothing to the user."""
    try:
        yield
    except OSError as error:
        named = isinstance(error.filename, str) and not TEMPORARY.search(error.filename)
        if named or error.errno is None or error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


# --- temporary names --------------------------------------------------------------------------------------------------


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A unique name beside `path`; whatever still has this name at the end is removed."""
    temporary = path.with_name(f".nsm-{secrets.token_hex(8)}-{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def is_temporary(path: Path) -> bool:
    """Whether a path has a temporary name."""
    return TEMPORARY.fullmatch(path.name) is not None


def sweep(directory: Path) -> None:
    """Remove the temporary files of processes that have ended; the directory must be locked."""
    for path in directory.glob(".nsm-*.tmp"):
        made = TEMPORARY.fullmatch(path.name)
        if made is not None and not system.is_alive(int(made[1])):
            _remove(path)


# --- locks ------------------------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that is released when its process ends, however it ends; the file has the process id.

    Nothing but a lock is ever overwritten: links are not followed, and a file with other content is left alone.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | system.NOT_A_LINK | system.WITHOUT_WAITING, 0o666)
    except OSError as error:
        if error.errno == ELOOP:
            raise UserError(f"{path} is a symbolic link, not a lock file: remove it") from None
        raise
    with os.fdopen(handle, "r+b", buffering=0) as file:
        said = file.read(20) if stat.S_ISREG(os.fstat(handle).st_mode) else b"no lock"
        if not re.fullmatch(rb"[0-9]*", said):
            raise UserError(f"{path} is not a lock file of nsm, and would be overwritten: move it elsewhere")
        try:
            system.lock(handle, wait=False)
        except OSError as error:
            if error.errno in (EAGAIN, EACCES):
                holder = said.decode() or "which just started"
                raise UserError(f"{path.parent} is in use by another process, {holder}") from None
            reason = f"its file system has no file locks ({error.strerror})"
            raise UserError(f"{path.parent} can't be locked: {reason}; choose one on another file system") from None
        with naming(path):
            file.truncate(0)
            file.seek(0)
            file.write(str(os.getpid()).encode())
        yield


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Wait until no other writer, in this process or another, has locked a directory; then lock it."""
    handle = system.directory_handle(directory)
    try:
        if handle is not None:
            with suppress(OSError):  # some file systems have no locks
                system.lock(handle, wait=True)
        yield
    finally:
        if handle is not None:
            os.close(handle)


# --- the cache --------------------------------------------------------------------------------------------------------

PRIVATE = 0o600
"""Mode of files in the cache: for this user only."""
_told: set[str] = set()
"""Warnings about the cache that have been logged; each is logged once."""


class Shared(Exception):
    """A sentence that says why another user can write there, or could have."""


def cache_directory(kind: str) -> Path | None:
    """A cache directory that only this user can write to: compiled code is loaded from it.

    It is under NSM_CACHE, or the user's cache directory, or a temporary one if that can't be written. None if another
    user could write to it, or if it is not writable at all; this is logged once.
    """
    reason = ""
    for find in (_chosen, _fallback):
        try:
            root = find()
            for path in (root, root / kind):
                _make_ours(path)
            with os.scandir(path) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process's temporary file, renamed meanwhile
                        _check(Path(entry), entry.stat(follow_symlinks=False))
            if os.access(path, os.W_OK):
                return path
            reason = reason or f"{path} can't be written"
        except Shared as error:
            reason = str(error)
            break
        except OSError as error:
            reason = reason or (f"{error.filename}: {error.strerror}" if error.filename else str(error))
    _tell(
        f"no cache, so every process compiles the kernels again: {reason}; set NSM_CACHE to a directory that only you "
        "can write to"
    )
    return None


def keep(path: Path, content: bytes, what: str) -> bool:
    """Write a file of the cache, for this user only. If that fails, log it once."""
    try:
        write_atomically(path, content, PRIVATE)
    except OSError as error:
        cannot_keep(what, path.parent, error)
        return False
    return True


def cannot_keep(what: str, directory: Path, error: OSError) -> None:
    """Log once that something can't be cached."""
    _tell(f"{what} can't be cached in {directory}: {error.strerror}")


def _tell(sentence: str) -> None:
    if sentence not in _told:
        _told.add(sentence)
        logger.warning("nsm: %s", sentence)


def _chosen() -> Path:
    if named := os.environ.get("NSM_CACHE"):
        return Path(named).absolute()
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise OSError("there is no home directory") from None
    return Path(base, "nsm").absolute()


def _fallback() -> Path:
    return Path(tempfile.gettempdir(), f"nsm-{system.user()}").absolute()


def _make_ours(path: Path, passed: bool = False) -> None:
    """Make a directory and its parents. Shared if another user can write to it or replace it.

    Args:
        passed: whether it is only a parent. A parent may be sticky like /tmp: everybody can write there, but nobody can
            rename what belongs to others.
    """
    for place in (*reversed(path.parents), path):
        place.mkdir(mode=0o700, exist_ok=True)
        status, on_the_way = place.lstat(), passed or place != path
        if stat.S_ISLNK(status.st_mode):
            _check(place, status, passed=True)
            _make_ours(place.parent / place.readlink(), on_the_way)
        else:
            _check(place, status, on_the_way)


def _check(path: Path, status: os.stat_result, passed: bool = False) -> None:
    """Raise Shared unless this user or root owns it and nobody else can write to it; a link's mode doesn't count."""
    if system.user() is None:
        return
    if status.st_uid not in (0, system.user()):
        raise Shared(f"{path} belongs to another user")
    harmless = stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not (passed and harmless):
        raise Shared(f"other users can write to {path}")
