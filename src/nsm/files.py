"""Writing that survives a kill: a file or directory is either wholly there under its name, or not at all.

And a cache, for what can be made again.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger("nsm")


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file under a temporary name, force it to the disk, then give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_durably(temporary, content, mode)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def directory_atomically(path: Path, replace: bool = True) -> Iterator[Path]:
    """An empty directory to fill; when it has been, it gets its name. One that has it is removed, or is in the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        for directory, _, names in os.walk(temporary):
            for name in names:
                sync(Path(directory, name))
            sync(Path(directory))
        if replace and path.exists():
            remove_atomically(path)
        os.rename(temporary, path)
        sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
    hidden = path.with_name(f".{path.name}.removed.{os.getpid()}")
    os.rename(path, hidden)
    shutil.rmtree(hidden)


def is_temporary(path: Path) -> bool:
    """Whether a name is one of those that things have here before they get their own, or after they lost it."""
    return re.fullmatch(r"\..+\.\d+", path.name) is not None


def sweep(directory: Path) -> None:
    """Remove what a killed process left under temporary names; only for who holds the run."""
    for path in filter(is_temporary, directory.glob(".*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


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
    for find in (_chosen, _temporary):
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


def _temporary() -> Path:
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
