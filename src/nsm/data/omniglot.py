"""Omniglot (Lake et al., 2015): 1,623 handwritten characters of 50 alphabets, each drawn by 20 people.

In the data directory, as in the official download:

    omniglot/images_background.zip      30 alphabets, 964 characters     or unpacked: omniglot/images_background/
    omniglot/images_evaluation.zip      20 alphabets, 659 characters     or unpacked: omniglot/images_evaluation/
    omniglot/split.txt                  only for your own set of characters: which of them are for training

Archives are read, never unpacked. The 1,623 characters are split by character
into 1,200 for training and 423 for testing, as `omniglot-split.txt` beside this file has it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsm.checks import UserError, brief
from nsm.data.archive import Limits, Zip, read_file
from nsm.data.source import Finding, RemoteFile
from nsm.files import cache_directory, keep

logger = logging.getLogger("nsm")
NAME = "omniglot"
_ADDRESS = "https://github.com/brendenlake/omniglot/raw/master/python"
FILES = tuple(
    RemoteFile(f"{part}.zip", (f"{_ADDRESS}/{part}.zip",), checksum, unpacked=part)
    for part, checksum in (
        ("images_background", "md5:68d2efa1b9178cc56df9314c21c6e718"),
        ("images_evaluation", "md5:6b91aef0f799c5bb55b94e3f2daec811"),
    )
)
HELP = f"`nsm data fetch {NAME}` downloads it"
LIMITS = Limits(packed=32 << 20, members=65_536, member=64 << 10, unpacked=32 << 20)
"""Three times the larger released archive: 9.5 MB, 20,275 members. A drawing has 0.5 KB."""
MOST_SPLIT = 1 << 20
"""Bytes of a split file; that of all characters has 80 thousand."""
DRAWINGS = 20
SIDE = 105
"""Pixels of a drawing's side."""
SMALL_SIDE = 20
"""Pixels per side of the images a machine sees."""
FINE_SIDE = 2 * SMALL_SIDE + 1
"""Points per side of the images that are cached; see `shrink`."""
_RECIPE = "1"
"""Part of the cache's key: change it whenever images are made differently."""


class Characters(NamedTuple):
    """All characters, shrunk."""

    images: npt.NDArray[np.uint8]
    """(characters, 20, 41, 41), see `shrink`"""
    train: npt.NDArray[np.int64]
    """indices of the training characters"""
    test: npt.NDArray[np.int64]


class _Part(NamedTuple):
    """The drawings of an archive, or of the directory it unpacks to."""

    path: Path
    characters: dict[str, list[str]]
    """"images_background/Alphabet/character01" → the names of its drawings, sorted"""
    read: Callable[[str], bytes]


# --- reading ----------------------------------------------------------------------------------------------------------


@cache
def load(root: Path) -> Characters:
    """The characters in a data directory, from the cache if possible; the first time takes a few seconds.

    Raises:
        UserError: something is missing or damaged; the message names the file and how to get it.
    """
    split = _split(root / NAME)
    places = _places(root / NAME)
    with _help():
        digests = [_digest(place) for place in places]
    digest = hashlib.sha256(repr((_RECIPE, split, digests)).encode()).hexdigest()
    directory = cache_directory(NAME)
    path = None if directory is None else directory / f"{digest[:32]}.npy"
    shape = (len(split), DRAWINGS, FINE_SIDE, FINE_SIDE)
    images = None if path is None else _cached(path, shape)
    if images is None:
        logger.warning("nsm: reading the drawings in %s for the first time, which takes a few seconds …", root / NAME)
        with _help():
            characters = _read([_open(place) for place in places], split)
            images = np.empty(shape, dtype=np.uint8)
            for index, drawings in enumerate(characters):
                images[index] = shrink(drawings)
        if path is not None:
            content = io.BytesIO()
            np.save(content, images)
            keep(path, content.getvalue(), "the drawings")
    purposes = np.array(list(split.values()))
    return Characters(images, *(np.flatnonzero(purposes == purpose) for purpose in ("train", "test")))


def _cached(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8] | None:
    if not path.is_file():  # reading a pipe would block
        return None
    try:
        images: npt.NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return images if images.shape == shape and images.dtype == np.uint8 else None


def shrink(drawings: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Ink (…, 105, 105) → 41 × 41 points, each the share of ink, 0 to 255, in the pixel of a 20 × 20 image around it.

    Points are half such a pixel apart, the first and the last on the image's edges. So `[1::2, 1::2]` is the 20 × 20
    image itself, and a slightly rotated or shifted image is interpolated from points that are no more blurred.
    """
    pixel = SIDE / SMALL_SIDE
    centre = np.arange(FINE_SIDE)[:, None] * pixel / 2
    edge = np.arange(SIDE)
    inside = np.minimum(centre + pixel / 2, edge + 1) - np.maximum(centre - pixel / 2, edge)
    share = (np.maximum(inside, 0) / pixel).astype(np.float32)
    points: npt.NDArray[np.uint8] = np.rint(255 * (share @ drawings.astype(np.float32) @ share.T)).astype(np.uint8)
    return points


def _read(parts: list[_Part], split: dict[str, str]) -> Iterator[npt.NDArray[np.bool_]]:
    """The ink of every character of the split, (20, 105, 105) each; none is read if one is missing."""
    where = {character: part for part in parts for character in part.characters}
    for character in split:
        part = where.get(character)
        if part is None:
            folder = next((part.path for part in parts if part.path.stem == character.split("/")[0]), parts[0].path)
            raise UserError(f"{folder} is incomplete: {brief(character)} is missing")
        found = len(part.characters[character])
        if found != DRAWINGS:
            raise UserError(f"{part.path} is incomplete: {brief(character)} has {found:,} of {DRAWINGS} drawings")
    return (
        np.stack([_drawing(where[character], name) for name in where[character].characters[character]])
        for character in split
    )


def _drawing(part: _Part, name: str) -> npt.NDArray[np.bool_]:
    from PIL import Image  # here, because it takes a while and few commands need it

    content = io.BytesIO(part.read(name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images, which are not decoded, and odd chunks of small ones
            with Image.open(content, formats=["PNG"]) as image:
                pixels = f"{image.width:,}×{image.height:,}"
                if image.size == (SIDE, SIDE):
                    return ~np.asarray(image.convert("1"))
    except Image.DecompressionBombError:
        pixels = "millions of"
    except (OSError, SyntaxError, ValueError, IndexError, EOFError, struct.error):
        raise UserError(f"{part.path} is damaged: {name} can't be read") from None
    raise UserError(f"{part.path} is not Omniglot: {name} has {pixels} pixels, not {SIDE}×{SIDE}")


@contextmanager
def _help() -> Iterator[None]:
    """Add to an error about the files how to fix it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}; remove it, then {HELP}") from None


# --- what there is ----------------------------------------------------------------------------------------------------


def check(root: Path) -> Finding:
    """Check every drawing in a data directory."""
    finding = Finding()
    try:
        split = _split(root / NAME)
        places = _places(root / NAME)
        with _help():
            parts = [_open(place) for place in places]
            for part in parts:
                alphabets = {character.rsplit("/", 1)[0] for character in part.characters}
                drawings = sum(map(len, part.characters.values()))
                counts = f"{len(alphabets)} alphabets, {len(part.characters):,} characters, {drawings:,} drawings"
                finding.lines.append(f"{part.path.name}: {counts}")
            for _ in _read(parts, split):
                pass
        purposes = list(split.values())
        counts = f"{purposes.count('train'):,} characters for training, {purposes.count('test'):,} for testing"
        finding.lines.append(f"complete: {counts}")
    except UserError as error:
        finding.problems.append(str(error))
    return finding


def _split(directory: Path) -> dict[str, str]:
    """Every character, in the order of the array, and its purpose: "train" or "test"."""
    own = directory / "split.txt"
    if os.path.lexists(own):
        content = read_file(own, MOST_SPLIT)
    else:
        content = resources.files(__package__).joinpath("omniglot-split.txt").read_bytes()
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{own} is not a text file") from None
    split = {}
    for number, line in enumerate(lines, 1):
        purpose, _, character = line.partition(" ")
        if purpose not in ("train", "test") or not character:
            raise UserError(f"{own}, line {number}: must be train or test, then a character, was {brief(line)!r}")
        split[character] = purpose
    for purpose in ("train", "test"):
        if purpose not in split.values():
            raise UserError(f"{own} has no {purpose} characters: each line must be train or test, then a character")
    return split


def _places(directory: Path) -> list[Path]:
    """The archives, or the directories they unpack to."""
    places = []
    for file in FILES:
        archive, folder = directory / file.name, directory / str(file.unpacked)
        packed = os.path.lexists(archive)
        if not packed and not folder.is_dir():
            raise UserError(f"{archive} is missing; {HELP}, or put it there by hand")
        places.append(archive if packed else folder)
    return places


def _is_archive(place: Path) -> bool:
    return place.name in [file.name for file in FILES]


def _digest(place: Path) -> str:
    """A digest that changes with the content."""
    if _is_archive(place):
        return hashlib.sha256(read_file(place, LIMITS.packed)).hexdigest()
    try:  # sizes and dates, not the bytes of twenty thousand small files
        stats = [(str(file), file.stat()) for file in _files(place)]
    except OSError as error:
        raise UserError(f"{error.filename} can't be read: {error.strerror}") from None
    return repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def _open(place: Path) -> _Part:
    if _is_archive(place):
        archive = Zip(place, LIMITS)
        return _Part(place, _by_character(archive.names, place.stem), archive.read)
    names = [file.relative_to(place.parent).as_posix() for file in _files(place)]
    return _Part(place, _by_character(names, place.name), lambda name: read_file(place.parent / name, LIMITS.member))


def _files(folder: Path) -> list[Path]:
    """The images in a directory, sorted."""
    found = list(islice(folder.rglob("*.png"), LIMITS.members + 1))
    if len(found) > LIMITS.members:
        raise UserError(f"{folder} has more than {LIMITS.members:,} images")
    return sorted(found)


def _by_character(names: list[str], part: str) -> dict[str, list[str]]:
    """The drawings of each character; other members of an archive are ignored."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        match = re.fullmatch(rf"({part}/[^/]+/character\d+)/\d+_\d+\.png", name)
        if match:
            found.setdefault(match[1], []).append(name)
    return found
