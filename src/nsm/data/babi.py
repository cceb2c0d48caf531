"""bAbI (Weston et al., 2015): twenty tasks of question answering, 10,000 training questions each.

Read from the official archive as it is, or from the directory it unpacks to. Nothing is ever unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from nsm.checks import UserError, choose
from nsm.data import stories
from nsm.data.archive import Limits, read_file, read_tar
from nsm.data.source import Finding, RemoteFile
from nsm.data.stories import EncodedStories, Story
from nsm.files import cache_directory, keep

NAME = "babi"
FOLDER = "tasks_1-20_v1-2"
ARCHIVE = f"{FOLDER}.tar.gz"
FILES = (
    RemoteFile(
        ARCHIVE,
        (f"https://s3.amazonaws.com/text-datasets/babi_{ARCHIVE}",),
        checksum=None,  # none was released: the files in the archive are compared one by one
        unpacked=FOLDER,
    ),
)
SPLITS = ("train", "test")
TASKS = range(1, 21)
TRAINING_STORIES = (2000, 2000, 2000, 10000, *[2000] * 10, 2500, 10000, 1250, 1978, 10000, 933)
"""Stories of each task in the released files: the size of an epoch, known before any file is read."""
PROTOCOLS = ("paper", "authors")
MOST_WORDS = 800
"""The published code omits longer training stories."""
LIMITS = Limits(packed=64 << 20, members=4096, member=16 << 20, unpacked=512 << 20)
"""Three to four times the released archive: 16 MB with other languages included, its largest file 5.4 MB."""
MOST_TEXT, MOST_LINES = 80 << 20, 3_000_000
"""For all files of en and en-10k: twice the released ones, which have 38.6 MB and 1,130,337 lines."""
MOST_CACHED = 1 << 30
ENCODING = 1
"""Raised whenever the same files are encoded differently."""


@cache
def released() -> dict[str, str]:
    """The released files, those with 1,000 questions included, each with its git blob hash."""
    lines = (files("nsm.data") / "babi-files.txt").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def file_name(task: int, split: str) -> str:
    """The file of a task's training or test stories."""
    begin, end = f"en-10k/qa{task}_", f"_{split}.txt"
    return next(name for name in released() if name.startswith(begin) and name.endswith(end))


def blob_hash(content: bytes) -> str:
    """The git blob hash of a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


# --- the files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Archive:
    """The official archive."""

    path: Path

    def digest(self) -> str:
        """Changes whenever the content does."""
        return hashlib.sha256(read_file(self.path, LIMITS.packed)).hexdigest()

    def read(self) -> dict[str, bytes]:
        """The released files it contains, by name."""
        members = read_tar(self.path, LIMITS, lambda name: _short(name) in released())
        return _collect(self.path, ((_short(name), content) for name, content in members))


@dataclass(frozen=True)
class Folder:
    """The directory the archive unpacks to."""

    path: Path

    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, content in self.read().items():
            digest.update(f"{name} {blob_hash(content)} ".encode())
        return digest.hexdigest()

    def read(self) -> dict[str, bytes]:
        there = ((name, self.path / name) for name in released() if os.path.lexists(self.path / name))
        return _collect(self.path, ((name, read_file(path, LIMITS.member)) for name, path in there))


def _short(name: str) -> str:
    """A member's name without the directories above en and en-10k."""
    return "/".join(name.split("/")[-2:])


def _collect(path: Path, contents: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    text = lines = 0
    for name, content in contents:
        if name in found:
            raise UserError(f"{path} contains {name} twice")
        found[name] = content
        text += len(content)
        lines += content.count(b"\n")
        if text > MOST_TEXT or lines > MOST_LINES:
            raise UserError(f"{path} has more than {MOST_TEXT:,} bytes or {MOST_LINES:,} lines; bAbI has half as many")
    return found


def locate(root: Path) -> Archive | Folder:
    """Where the files are; an unpacked directory takes precedence over the archive."""
    directory = root / NAME
    for folder in (directory / FOLDER, directory):
        if (folder / "en-10k").is_dir():
            return Folder(folder)
    if os.path.lexists(directory / ARCHIVE):
        return Archive(directory / ARCHIVE)
    raise UserError(f"bAbI is not in {directory}: run nsm data fetch babi, or put {ARCHIVE} there, unpacked or not")


def check(root: Path) -> Finding:
    """Compare every file with the released one."""
    source = locate(root)
    content = source.read()
    lines, problems = [f"reading {source.path}"], []
    complete = True
    for folder in ("en-10k", "en"):
        names = [name for name in released() if name.startswith(f"{folder}/")]
        missing = [name for name in names if name not in content]
        different = [name for name in names if name in content and blob_hash(content[name]) != released()[name]]
        same = len(names) - len(missing) - len(different)
        lines.append(f"{folder}: {same} of {len(names)} files are the released ones, byte for byte")
        problems += [f"{name} is not the released file; results that use it carry a note" for name in different]
        if folder == "en-10k":  # the only files that are used
            problems += [f"{name} is missing" for name in missing]
            complete = not missing
    if complete:
        corpus = load(root)
        for split in SPLITS:
            part = getattr(corpus, split)
            words = f"{len(part):,} stories, {part.questions:,} questions, {len(part.shown):,} words"
            lines.append(f"{split}: {words}, the longest story {part.lengths.max():,}")
    return Finding(lines, problems)


# --- contents ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Corpus:
    """All stories of the twenty tasks, and notes on them."""

    train: EncodedStories
    test: EncodedStories
    missing: tuple[str, ...]
    """Missing files."""
    notes: dict[int, tuple[str, ...]]
    """Notes that a result on a task must carry: files that differ from the released ones, omissions."""


@lru_cache(maxsize=4)
def load(root: Path, protocol: str = "paper") -> Corpus:
    """Read all stories, once per process, and from the cache if the same files have been read before.

    Args:
        root: the data directory.
        protocol: "paper" uses all of every file; "authors" omits, as the published code does, lines that repeat the
            line before them, and training stories of more than 800 words.
    """
    choose("protocol", protocol, PROTOCOLS)
    source = locate(root)
    parts = (source.digest(), protocol, str(ENCODING), *stories.vocabulary())
    key = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    directory = cache_directory(NAME)
    path = None if directory is None else directory / f"{key[:24]}.npz"
    kept = None if path is None else _read_cache(path)
    if kept is not None:
        return kept
    corpus = build(source.read(), protocol)
    if path is not None:
        _write_cache(path, corpus)
    return corpus


def build(content: dict[str, bytes], protocol: str) -> Corpus:
    """Parse and encode the files that exist."""
    missing: list[str] = []
    notes: dict[int, list[str]] = {task: [] for task in TASKS}

    def of(split: str) -> Iterator[tuple[int, Story]]:
        for task in TASKS:
            name = file_name(task, split)
            if name not in content:
                missing.append(name)
                continue
            if blob_hash(content[name]) != released()[name]:
                kind = "training" if split == "train" else "test"
                notes[task].append(f"the {kind} file of task {task} is not the released one")
            try:
                text = content[name].decode("ascii")
            except UnicodeDecodeError as error:
                line = content[name].count(b"\n", 0, error.start) + 1
                raise UserError(f"{name}, line {line}: it contains a byte that is not ASCII") from None
            found = stories.parse(text, name)
            if protocol == "authors":
                found, left_out = _as_the_authors(found, split)
                notes[task] += [f"task {task}, {split}: {words}" for words in left_out]
            yield from ((task, story) for story in found)

    train, test = (stories.encode(of(split)) for split in SPLITS)
    return Corpus(train, test, tuple(missing), {task: tuple(said) for task, said in notes.items()})


def _as_the_authors(found: list[Story], split: str) -> tuple[list[Story], list[str]]:
    """The stories that the published code uses, and a note on each kind of omission."""
    shorter = [stories.without_repetitions(story) for story in found]
    kept = [story for story in shorter if split == "test" or stories.length(story) <= MOST_WORDS]
    repeated = sum(map(len, found)) - sum(map(len, shorter))
    questions = sum(bool(line.answer) for story in found for line in story)
    questions -= sum(bool(line.answer) for story in shorter for line in story)
    said = []
    if repeated:
        said.append(f"{repeated:,} repeated lines omitted, including {questions:,} questions")
    if len(kept) < len(shorter):
        said.append(f"{len(shorter) - len(kept):,} stories of more than {MOST_WORDS} words omitted")
    return kept, said


def _write_cache(path: Path, corpus: Corpus) -> None:
    arrays: dict[str, Any] = {}
    for split in SPLITS:
        part: EncodedStories = getattr(corpus, split)
        asked = part.answers[part.answers >= 0]  # they belong to the steps that show a blank
        arrays |= {f"{split}.shown": part.shown, f"{split}.answers": asked, f"{split}.starts": part.starts}
        arrays[f"{split}.task"] = part.task
    said = json.dumps({"missing": corpus.missing, "notes": corpus.notes})
    buffer = io.BytesIO()
    np.savez(buffer, said=np.array(said), **arrays)
    keep(path, buffer.getvalue(), "the encoded stories")


def _read_cache(path: Path) -> Corpus | None:
    """The cached corpus; None if there is none or it is damaged, since it can always be rebuilt."""
    try:
        with np.load(io.BytesIO(read_file(path, MOST_CACHED)), allow_pickle=False) as kept:
            said = json.loads(str(kept["said"]))
            parts = []
            for split in SPLITS:
                shown = kept[f"{split}.shown"]
                answers = np.full_like(shown, -1)
                answers[shown == stories.vocabulary()[stories.BLANK]] = kept[f"{split}.answers"]
                parts.append(EncodedStories(shown, answers, kept[f"{split}.starts"], kept[f"{split}.task"]))
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    notes = {int(task): tuple(words) for task, words in said["notes"].items()}
    return Corpus(parts[0], parts[1], tuple(said["missing"]), notes)
