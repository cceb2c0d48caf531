"""Writing that survives a kill: a file or directory is either wholly there under its name, or not at all."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, force it to the disk, then give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_durably(temporary, content)
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


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and force it to the disk."""
    with path.open("wb") as file:
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


def cache_directory(kind: str) -> Path:
    """A directory for what can be made again: under NSM_CACHE, or the user's cache directory, or a temporary one."""
    base = os.environ.get("NSM_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nsm"
    temporary = Path(tempfile.gettempdir()) / f"nsm-{os.getuid()}"
    for root in (Path(base), temporary):
        path = root / kind
        try:
            if root == temporary:
                root.mkdir(mode=0o700, exist_ok=True)
                if not _is_ours_alone(root):
                    continue
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    raise OSError(f"no directory for {kind}: {base} can't be written; set NSM_CACHE to one that can")


def _is_ours_alone(path: Path) -> bool:
    """Whether nobody else can have put anything there: compiled code is loaded from it."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
