"""Where data sets are and how to download them: one data directory with a directory per data set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nsm.checks import UserError

VARIABLE = "NSM_DATA"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set's official download."""

    name: str
    addresses: tuple[str, ...]
    """Where to download it, tried in this order."""
    checksum: str | None
    """Algorithm and digest, "md5:…" or "sha256:…", by which a download is verified. None: by its content."""
    unpacked: str | None = None
    """The directory this archive unpacks to: if it exists, the archive is not needed."""

    def __post_init__(self) -> None:
        if self.checksum is None and not all(address.startswith("https://") for address in self.addresses):
            raise ValueError(f"{self.name} has no checksum, so it must come by https, was {self.addresses}")


@dataclass(frozen=True)
class Finding:
    """What was found of a data set and what is wrong with it, one sentence each."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def root(override: Path | None = None) -> Path:
    """The data directory: `override`, or NSM_DATA, or `nsm` in the user's data directory."""
    if override is not None:
        return override
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "nsm"


def look_in(directory: Path | None) -> None:
    """Make `directory` the data directory of this process and its children; None leaves it unchanged."""
    if directory is None:
        return
    if not directory.is_dir():
        raise UserError(f"the data directory {directory} does not exist")
    os.environ[VARIABLE] = str(directory.resolve())


def fetch(files: Sequence[RemoteFile], directory: Path) -> list[Path]:
    """Download what is missing, and return it. A file appears complete and verified, or not at all.

    Raises:
        UserError: a download fails or its checksum is wrong; the message says where to put the file by hand.
    """
    return [_download(file, directory) for file in files if not _in_place(file, directory)]


def _in_place(file: RemoteFile, directory: Path) -> bool:
    """Whether a file need not be downloaded; what is in place is verified when it is checked or read."""
    return (directory / file.name).exists() or (file.unpacked is not None and (directory / file.unpacked).is_dir())


def _download(file: RemoteFile, directory: Path) -> Path:
    import pooch  # here, because it takes a while and few commands need it

    pooch.get_logger().setLevel("ERROR")
    reasons = []
    for address in file.addresses:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return Path(pooch.retrieve(address, known_hash=file.checksum, fname=file.name, path=directory))
        except ValueError:
            reasons.append(f"the download from {address} does not have the checksum {file.checksum}")
        except OSError as error:  # network errors included
            reasons.append(f"{address} can't be downloaded: {_first_line(error)}")
    raise UserError(f"{'; '.join(reasons)}; download {file.name} by hand and put it into {directory}")


def _first_line(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).splitlines()[0]
