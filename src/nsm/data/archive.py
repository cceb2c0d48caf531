"""Files and archives from elsewhere, read within limits: nothing is unpacked to disk, nothing oversized is kept.

Sizes in headers are checked before anything is read, and never trusted: no more is decompressed than the limits
allow.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nsm.checks import UserError, brief
from nsm.files import read

_DAMAGED_TAR = (tarfile.TarError, zlib.error, EOFError, OSError)
_DAMAGED_ZIP = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(ValueError, OverflowError, NotImplementedError),  # odd offsets, odd names, later versions of the format
)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE)
_ENCRYPTED = 0x41
"""Bits of a zip member's flags: encryption, and the strong one."""


class Limits(NamedTuple):
    """The most an archive may have: what the released data set has, with a margin."""

    packed: int
    """bytes of the archive itself"""
    members: int
    member: int
    """bytes of a member, unpacked"""
    unpacked: int
    """bytes of all members"""


def read_file(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes.

    Raises:
        UserError: it is not a regular file, is larger, or can't be read.
    """
    try:
        return read(path, most)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None


# --- tar --------------------------------------------------------------------------------------------------------------


def read_tar(path: Path, limits: Limits, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The wanted members of a .tar.gz, read to the end, where the checksum is.

    Headers are read one by one. `tarfile` would follow chains of any length and size for long names and sparse files,
    which no data set here has.

    Raises:
        UserError: it is damaged, exceeds the limits, or contains anything but files and directories.
    """
    stream = _Stream(path, read_file(path, limits.packed), limits.unpacked)
    members = 0
    try:
        while any(block := stream.read(tarfile.BLOCKSIZE)):
            member = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
            members += 1
            _check(path, limits, members, member.name, member.size)
            content = stream.read(member.size)
            stream.read(-member.size % tarfile.BLOCKSIZE)
            if member.type in _EXTENSIONS:
                if b" path=" in content or b" GNU.sparse." in content:
                    raise UserError(f"{path} contains a sparse file or a long name; the released archive has neither")
            elif member.type in _FILES:
                if wanted(member.name):
                    yield member.name, content
            elif not member.isdir():
                raise UserError(f"{path}: {brief(member.name)!r} is neither a file nor a directory")
        stream.finish()
    except _DAMAGED_TAR as error:
        raise UserError(f"{path} is damaged: {brief(str(error))}") from None


class _Stream:
    """The content of a gzip file, up to a limit."""

    def __init__(self, path: Path, packed: bytes, most: int) -> None:
        self._path, self._most, self._left = path, most, most
        self._file = gzip.GzipFile(fileobj=io.BytesIO(packed))

    def read(self, size: int) -> bytes:
        """The next `size` bytes, exactly."""
        content = self._some(size)
        if len(content) < size:
            raise EOFError("it ends early")
        return content

    def finish(self) -> None:
        """Read to the end."""
        while self._some(1 << 16):
            pass

    def _some(self, size: int) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise UserError(f"{self._path} unpacks to more than {self._most:,} bytes")
        return content


# --- zip --------------------------------------------------------------------------------------------------------------


class Zip:
    """A zip archive.

    Raises:
        UserError: it is damaged, exceeds the limits, or has members that are encrypted or not compressed by deflate.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path
        content = read_file(path, limits.packed)
        # Entries of the list of members begin like this; they are counted before the list is read.
        if content.count(b"PK\x01\x02") > limits.members:
            raise _too_many(path, limits)
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except _DAMAGED_ZIP as error:
            raise UserError(f"{path} is damaged: {brief(str(error))}") from None
        total = 0
        for number, member in enumerate(self._archive.infolist(), start=1):
            name = brief(member.orig_filename)
            _check(path, limits, number, member.orig_filename, member.file_size)
            if member.flag_bits & _ENCRYPTED:
                raise UserError(f"{path}: {name!r} is encrypted")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UserError(f"{path}: {name!r} is compressed by method {member.compress_type}, not by deflate")
            total += member.file_size
        if total > limits.unpacked:
            raise UserError(f"{path} unpacks to {total:,} bytes; it should have at most {limits.unpacked:,}")

    @property
    def names(self) -> list[str]:
        return self._archive.namelist()

    def read(self, name: str) -> bytes:
        """A member. Reading is limited to its size: otherwise all of it would be decompressed first, then cut."""
        try:
            with self._archive.open(name) as file:
                return file.read(self._archive.getinfo(name).file_size + 1)
        except _DAMAGED_ZIP as error:
            raise UserError(f"{self._path} is damaged: {brief(name)} can't be read: {brief(str(error))}") from None


# --- both -------------------------------------------------------------------------------------------------------------


def _check(path: Path, limits: Limits, number: int, name: str, size: int) -> None:
    """Refuse a member that exceeds the limits, or whose name is unsafe."""
    if number > limits.members:
        raise _too_many(path, limits)
    if not 0 <= size <= limits.member:
        raise UserError(f"{path}: {brief(name)!r} has {size:,} bytes; it should have at most {limits.member:,}")
    if "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise UserError(f"{path}: {brief(name)!r} is not a safe name for a member")


def _too_many(path: Path, limits: Limits) -> UserError:
    return UserError(f"{path} has more than {limits.members:,} members")
