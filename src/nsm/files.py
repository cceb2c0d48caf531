"""Bounded reads, and atomic writes: after a kill a file or directory is complete under its name, or absent.

Until it is, it has a name that only nsm makes: `.nsm-<random>-<process>.tmp`. What a killed process leaves under such a
name is swept by who holds the directory next; nothing else ever is. And a cache, for what can be made again.
"""

from __future__ import annotations

import fcntl
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
    """A regular file to read. Not a pipe or a device, whose opening or reading may never end."""
    with open(path, "rb", opener=_without_waiting) as file:
        yield file


def _without_waiting(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise Damaged(f"{path} is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")
    return handle


def read(path: Path, most: int) -> bytes:
    """What is in a regular file of at most so many bytes, which are counted before they are read."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most or len(content := file.read(size + 1)) > most:
            raise Damaged(f"{path} has {size:,} bytes; it should have at most {most:,}")
    return content


# --- writing ----------------------------------------------------------------------------------------------------------

logger = logging.getLogger("nsm")


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file under a temporary name, force it to the disk, then give it its name."""
    with naming(path), _temporary(path) as temporary:
        write_durably(temporary, content, mode)
        os.replace(temporary, path)
        sync(path.parent)


@contextmanager
def directory_atomically(path: Path, replace: bool = True) -> Iterator[Path]:
    """An empty directory to fill; when it has been, it gets its name. One that has it is removed, or is in the way."""
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
                # Another one that was written meanwhile, under the same name.
                if not replace or error.errno not in (EEXIST, ENOTEMPTY):
                    raise
                remove_atomically(path)
        sync(path.parent)


def write_directory_atomically(path: Path, contents: dict[str, bytes]) -> None:
    """Write a directory's files in this order under a temporary name, force them to the disk, then give it its name."""
    with directory_atomically(path) as temporary:
        for name, content in contents.items():
            write_durably(temporary / name, content)


def copy_directory_atomically(source: Path, path: Path, leave: str) -> None:
    """Copy a directory but for the files called `leave`, under a temporary name first; OSError if `path` is there."""
    with directory_atomically(path, replace=False) as temporary:
        shutil.copytree(source, temporary, ignore=shutil.ignore_patterns(leave), dirs_exist_ok=True)


def remove_atomically(path: Path) -> None:
    """Remove a directory: it is hidden by one rename before it is taken apart, so that nobody finds half of it."""
    with naming(path), _temporary(path) as hidden, suppress(FileNotFoundError):  # another one has removed it
        os.rename(path, hidden)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file and force it to the disk. A new one may be used as `mode` says, less what the umask takes away."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Force a file's content to the disk, or a directory's entries, so that a rename in it is not lost."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system say which file they are about: a full disk does not, and a temporary name helps nobody."""
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
    """A name beside `path` that nobody else has, also in another thread; what still has it in the end is removed."""
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
    """Whether a name is one of those that things have here before they get their own, or after they lost it."""
    return TEMPORARY.fullmatch(path.name) is not None


def sweep(directory: Path) -> None:
    """Remove what processes that are gone left under temporary names; only for who holds the directory."""
    for path in directory.glob(".nsm-*.tmp"):
        made = TEMPORARY.fullmatch(path.name)
        if made is not None and not _is_alive(int(made[1])):
            _remove(path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True


# --- locks ------------------------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that dies with its process, however that dies; the file says which one has it. A second is refused.

    Nothing but a lock is ever overwritten: a link is not followed, and a file that holds anything else is left alone.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == ELOOP:
            raise UserError(f"{path} is a symbolic link, and would be written over: remove it") from None
        raise
    with os.fdopen(handle, "r+b", buffering=0) as file:
        said = file.read(20) if stat.S_ISREG(os.fstat(handle).st_mode) else b"no lock"
        if not re.fullmatch(rb"[0-9]*", said):
            raise UserError(f"{path} is not a lock of nsm, and would be written over: move it away")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (EAGAIN, EACCES):
                holder = said.decode() or "just started"
                raise UserError(f"{path.parent} is in use by another process, {holder}") from None
            reason = f"its file system has no file locks ({error.strerror})"
            raise UserError(f"{path.parent} can't be held: {reason}; choose a directory on another one") from None
        with naming(path):
            file.truncate(0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Wait until nobody else, in this process or another, does what is done here in a directory of several files."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # without file locks it is as safe as can be
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# --- the cache --------------------------------------------------------------------------------------------------------

PRIVATE = 0o600
"""How files in the cache may be used: by us."""
_told: set[str] = set()
"""What has been said once about the cache and is not said again."""


class Shared(Exception):
    """Somebody else could have put something there, or could yet; in a sentence."""


def cache_directory(kind: str) -> Path | None:
    """A directory for what can be made again, and that nobody else can have put there: compiled code is loaded from it.

    It is under NSM_CACHE, or the user's cache directory, or a temporary one where that can't be written. None where
    somebody else could write in it, or nobody can; that is said once.
    """
    reason = ""
    for find in (_chosen, _fallback):
        try:
            root = find()
            for path in (root, root / kind):
                _make_ours(path)
            with os.scandir(path) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process's, which has its name by now
                        _check(Path(entry), entry.stat(follow_symlinks=False))
            if os.access(path, os.W_OK):
                return path
            reason = reason or f"{path} can't be written"
        except Shared as error:
            reason = str(error)
            break
        except OSError as error:
            reason = reason or (f"{error.filename}: {error.strerror}" if error.filename else str(error))
    _tell(f"going without a cache, which takes time: {reason}; set NSM_CACHE to a directory that only you can write to")
    return None


def keep(path: Path, content: bytes, what: str) -> bool:
    """Write a file of the cache, for us alone. Where it can't be, say so once: `what` can be made again."""
    try:
        write_atomically(path, content, PRIVATE)
    except OSError as error:
        cannot_keep(what, path.parent, error)
        return False
    return True


def cannot_keep(what: str, directory: Path, error: OSError) -> None:
    """Say so, once."""
    _tell(f"{what} can't be kept in {directory}: {error.strerror}")


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
    return Path(tempfile.gettempdir(), f"nsm-{os.getuid()}").absolute()


def _make_ours(path: Path, passed: bool = False) -> None:
    """Make a directory, and those above it. Shared if somebody else can write in it, or put another in its place.

    Args:
        passed: whether it is on the way only, so that it may be like /tmp: all can write, none can rename what is
            another's.
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
    """Shared unless it is ours, or root's, and nobody else can write to it; of a link that is passed, its target counts
    for that."""
    if status.st_uid not in (0, os.getuid()):
        raise Shared(f"{path} is somebody else's")
    harmless = stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not (passed and harmless):
        raise Shared(f"others can write to {path}")
