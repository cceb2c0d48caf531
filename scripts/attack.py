"""Hand `nsm` thousands of files and arguments that nobody should, and count what must never happen.

Everything that nsm reads is mutated: run directories, kept results, saved machines, archives of data sets, stories and
command lines. A case is a mutation and a command that meets it, run by `nsm.cli.main` in a process of its own, which is
forked from one that has all of nsm loaded and so starts in milliseconds. Case N of a seed is the same case whatever
other cases are run, and `--case N` runs it alone and shows what was said.

Four things are counted, and each must be 0:

- **tracebacks**: an exception that leaves `main`, a traceback on standard error, an exit code that README does not
  list, or a process that dies. (`nsm.load` may raise a UserError.)
- **hangs**: a command that takes longer than `--seconds`. Work that the case asks for in so many words, say 10¹² test
  sequences, may take for ever, but must end when Ctrl-C is pressed, or pressed twice.
- **over memory**: a process that has grown by more than `--memory` MiB at its peak.
- **changed outputs**: exit code 0, and other numbers than the unharmed file gives.

What counts as changed: whatever is done to a file that nsm wrote, be it damage, an edit or another run's file in its
place, the numbers must be those of the unharmed files, or, of a run, those of another of its checkpoints if standard
error says that it took another. Not counted are mutations whose author also made the digest anew: that vouches for the
bytes and not for who wrote them. These, and stories, archives and arguments, which are the input itself, may give any
numbers, but no traceback. Times that a run took are left out of comparisons.

Example: python scripts/attack.py --cases 5000
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import json
import logging
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import torch
import tyro

import nsm
from nsm import documents
from nsm.checks import UserError
from nsm.cli import FAILED, INTERRUPTED, MISTAKE, STOPPED, UNREAD
from nsm.cli import main as command_line
from nsm.commands import COMMANDS
from nsm.commands import train as train_command
from nsm.experiments import recipes
from nsm.experiments.engines import local
from nsm.experiments.engines.engine import Engine, Job, Status
from nsm.experiments.paper import cells
from nsm.training import checkpoints
from nsm.training.loop import train

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

import mutations  # noqa: E402

from data import glyphs, small_babi  # noqa: E402

EXITS = (0, FAILED, MISTAKE, UNREAD)
EXITS_IF_STOPPED = (*EXITS, INTERRUPTED, STOPPED)
INSTEAD = ("trying the checkpoint before it", "instead of the best")
"""What nsm says when it takes another checkpoint than the one that is damaged."""
PATIENCE = 3.0
"""Seconds before Ctrl-C is pressed where a case asks for endless work."""
TOO_MUCH = 3 << 30
"""Bytes in memory at which a case is ended, to spare the machine."""
LARGEST_FILE = 2 << 30
TINY = ("--controller.size", "8", "--memory.slots", "16", "--memory.width", "4", "--iterations", "6")
TINY += ("--log-every", "2", "--validation-sequences", "4", "--test-sequences", "4")
OFTEN = ("--evaluate-every", "2", "--checkpoint-every", "2", "--keep-checkpoints", "3")
TRAIN = ("train", "copy", *TINY, *OFTEN, "--json", "--out")
TENSORS, CONFIG = "model.safetensors", "config.json"
WORK = {"iterations", "sequences", "test_sequences", "validation_sequences", "seconds", "seeds", "serve"}
"""Options and fields that say for how long to work."""
STORY = "Mary went to the kitchen.\nJohn went to the garden.\n1 Where is Mary?\tkitchen\t1\nSandra got the milk.\n"


class Attempt(NamedTuple):
    """What a command is to meet."""

    words: str
    """What was done."""
    command: tuple[str, ...]
    """Arguments of nsm; or load and a directory, which is nsm.load."""
    unharmed: str = ""
    """What of the world it would be without the mutation, if other numbers than that gives are a failure."""
    endless: bool = False
    """Whether it asks for work that may never end."""


class Ending(NamedTuple):
    """How a case ended."""

    code: int | None
    """None if it was killed."""
    out: str
    err: str
    error: str | None
    """The exception that left the command."""
    where: str | None
    """The innermost line of nsm it passed."""
    peak: int
    """Bytes in memory at most."""


class Failure(NamedTuple):
    """What must never happen."""

    what: str
    number: int
    attempt: Attempt
    reason: str


# --- what is mutated --------------------------------------------------------------------------------------------------


class NotRun(Engine):
    """Trains nothing: what a campaign reads is attacked here, not how it trains."""

    def __init__(self, capacity: int, backend: str) -> None:
        super().__init__(capacity)
        self.begun: list[Job] = []

    def begin(self, job: Job) -> None:
        self.begun.append(job)

    def ended(self, seconds: float) -> dict[Job, Status]:
        done, self.begun = dict.fromkeys(self.begun, Status("failed", "it is not run here")), []
        return done

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


KEPT = Path("single", "paper-2", "copy", "nutm")
REPRODUCE = ("reproduce", "single", "--only", "copy/nutm", "--budget", "2", "--seeds", "1", "--json")
REPRODUCE += ("--results", "kept", "--out", "out")


class World:
    """The unharmed files, and what commands say of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        small_babi.write(path / "data")
        glyphs.write(path / "data")
        os.environ["NSM_DATA"] = str(path / "data")
        torch.set_num_threads(1)
        self._run("run")
        self._run("other", "--seed", "1")
        self._run("babi", task=("babi", "--tasks", "1"))
        _copy(path / "run", path / "half")
        shutil.rmtree(path / "half" / "checkpoints" / "00000006")
        (path / "half" / "result.json").unlink()
        nsm.load(path / "run").save_pretrained(path / "machine")
        campaign = path / "runs" / KEPT / "seed-0"
        train(replace(cells("single", "paper", "copy/nutm", 2)[0].experiment, seed=0), campaign)
        _without_times(campaign)
        _quietly("collect", "--runs", str(path / "runs"), "--out", str(path / "kept"))
        (path / "story.txt").write_text(STORY)
        self.stories = small_babi.contents()
        self.drawings = glyphs.files()

    def _run(self, name: str, *options: str, task: tuple[str, ...] = ("copy",)) -> None:
        _quietly("train", *task, *TINY, *OFTEN, "--out", str(self.path / name), *options)
        _without_times(self.path / name)

    def copy(self, name: str, place: Path, to: str | None = None) -> Path:
        """A part of it for a case of its own."""
        return _copy(self.path / name, place / (to or name))


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    return target


def _quietly(*arguments: str) -> None:
    with open(os.devnull, "w") as nowhere:
        out, err, sys.stdout, sys.stderr = sys.stdout, sys.stderr, nowhere, nowhere
        try:
            command_line(list(arguments))
        finally:
            sys.stdout, sys.stderr = out, err


def _without_times(run: Path) -> None:
    """The same bytes whenever it is made."""
    (run / "lock").write_text("1")
    for name in ("result.json", "clock.json"):
        document = documents.read_sealed(run / name)
        times = {key: 1.5 for key, value in document.items() if "seconds" in key and value is not None}
        documents.write(run / name, document | times)


# --- kinds of cases ---------------------------------------------------------------------------------------------------

EVAL, LAST, VIEW = (
    ("eval", "run", "--json"),
    ("eval", "run", "--which", "last", "--json"),
    ("view", "run", "--samples", "1"),
)
LOAD, START = ("load", "run"), (*TRAIN, "new", "--start", "run")
AGAIN = (*TRAIN, "run")
REPORT = ("report", "run", "--out", "report.html", "--markdown", "report.md")


WRITTEN: dict[str, Callable[[bytes, random.Random], tuple[str, bytes]]] = {
    ".json": mutations.json_mutated,
    ".jsonl": mutations.lines_mutated,
    ".safetensors": mutations.tensors_mutated,
}


def mutate(path: Path, chance: random.Random, other: Path | None = None) -> tuple[str, bool]:
    """Do something to a file; says what, and whether its digest was made anew."""
    kinds = (
        ["damaged", "damaged", "replaced"]
        + ["written"] * 3 * (path.suffix in WRITTEN)
        + ["swapped"] * (other is not None)
    )
    kind = chance.choice(kinds)
    if kind == "replaced":
        return f"{path.name}: {mutations.replaced(path, chance)}", False
    if kind == "swapped":
        assert other is not None
        path.write_bytes(other.read_bytes())
        return f"{path.name}: another run's", False
    words, content = (WRITTEN[path.suffix] if kind == "written" else mutations.damaged)(path.read_bytes(), chance)
    path.write_bytes(content)
    resealed = kind == "written" and chance.random() < 0.6 and _seal(path)
    return f"{path.name}: {words}{', resealed' if resealed else ''}", resealed


def _seal(path: Path) -> bool:
    """Make the digest of a document anew; False if it has none, or is none."""
    try:
        document = documents.parse(path.read_bytes())
    except ValueError:
        return False
    if not isinstance(document, dict) or documents.SEAL not in document:
        return False
    documents.write(path, {name: value for name, value in document.items() if name != documents.SEAL})
    return True


def _seal_checkpoint(checkpoint: Path) -> None:
    digests = {name: documents.digest((checkpoint / name).read_bytes()) for name in _saved(checkpoint)}
    documents.write(checkpoint / checkpoints.MANIFEST, {"version": checkpoints.VERSION, "sha256": digests})


def _saved(checkpoint: Path) -> list[str]:
    """The files of a checkpoint that its manifest names."""
    return sorted(file.name for file in checkpoint.iterdir() if file.name != checkpoints.MANIFEST)


def _seal_machine(machine: Path) -> bool:
    """Make the digest of a saved machine's tensors anew; False if there is no place for it."""
    try:
        document = documents.read_sealed(machine / CONFIG)
        content = (machine / TENSORS).read_bytes()
        size = int.from_bytes(content[:8], "little")
        header, data = documents.parse(content[8 : 8 + size]), content[8 + size :]
    except (ValueError, OverflowError):
        return False
    if not isinstance(header, dict):
        return False
    header.pop("__metadata__", None)
    own = documents.digest(json.dumps(header, sort_keys=True).encode() + data)
    text = json.dumps({"__metadata__": {"sha256": f"{own} {documents.digest_of(document)}"}, **header}).encode()
    (machine / TENSORS).write_bytes(len(text).to_bytes(8, "little") + text + data)
    return True


def in_checkpoint(world: World, place: Path, chance: random.Random) -> Attempt:
    """A file of a checkpoint; nothing but the same numbers, or another checkpoint's with a word about it."""
    run = world.copy("run", place)
    checkpoint = chance.choice(sorted((run / "checkpoints").iterdir()))
    step, name = checkpoint.name, chance.choice((*_saved(checkpoint), checkpoints.MANIFEST))
    words, _ = mutate(run / "checkpoints" / step / name, chance, world.path / "other" / "checkpoints" / step / name)
    return Attempt(f"{step}/{words}", chance.choice((EVAL, EVAL, LAST, LOAD, LOAD, VIEW, START)), "run")


def resealed(world: World, place: Path, chance: random.Random) -> Attempt:
    """A file of a checkpoint, with a manifest that fits it: a manifest vouches for bytes, not for who wrote them."""
    half = chance.random() < 0.3
    run = world.copy("half" if half else "run", place, "run")
    checkpoint = max((run / "checkpoints").iterdir())
    name = chance.choice(_saved(checkpoint))
    content = (checkpoint / name).read_bytes()
    change = mutations.json_mutated if name == checkpoints.STATE else mutations.tensors_mutated
    words, changed = (change if chance.random() < 0.8 else mutations.damaged)(content, chance)
    (checkpoint / name).write_bytes(changed)
    _seal_checkpoint(checkpoint)
    commands = (AGAIN,) if half else (EVAL, LAST, LOAD, VIEW, START)
    return Attempt(f"{name}: {words}, resealed", chance.choice(commands))


def in_config(world: World, place: Path, chance: random.Random) -> Attempt:
    """A run's configuration."""
    name = chance.choice(("run", "run", "half", "babi"))
    run = world.copy(name, place, "run")
    words, sealed = mutate(run / CONFIG, chance, world.path / "babi" / CONFIG if name != "babi" else None)
    world.copy("story.txt", place)
    ask = ("ask", "run", "story.txt", "Where is Mary?", "--json")
    command = (
        ask if name == "babi" else AGAIN if name == "half" else chance.choice((EVAL, EVAL, VIEW, LOAD, AGAIN, START))
    )
    return Attempt(words, command, "" if sealed or name == "babi" else name, any(field in words for field in WORK))


def in_records(world: World, place: Path, chance: random.Random) -> Attempt:
    """What a run notes of itself besides: metrics, result, clock, lock, failure."""
    run = world.copy("run", place)
    name = chance.choice(("result.json", "result.json", "metrics.jsonl", "clock.json", "lock", "failure.json"))
    if name == "failure.json":
        (run / "result.json").unlink()
        documents.write(run / name, {"reason": "it diverged", "step": 4, "diverged": True})
    words, sealed = mutate(run / name, chance, world.path / "other" / name if name != "failure.json" else None)
    if chance.random() < 0.3:
        run.rename(_parent(place / "runs" / KEPT / "seed-0"))
        return Attempt(words, ("collect", "--runs", "runs", "--out", "collected"))
    command = REPORT if chance.random() < 0.04 else AGAIN
    return Attempt(words, command, "" if sealed or name == "failure.json" else "run")


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def in_half_a_run(world: World, place: Path, chance: random.Random) -> Attempt:
    """A run that was stopped and goes on: it must come to what it would have come to."""
    run = world.copy("half", place, "run")
    files = sorted(file for file in run.rglob("*") if file.is_file() and file.name != CONFIG)
    file = chance.choice(files)
    words, _ = mutate(file, chance, world.path / "other" / file.relative_to(run))
    return Attempt(f"{file.parent.name}/{words}", AGAIN, "half")


def in_machine(world: World, place: Path, chance: random.Random) -> Attempt:
    """A machine that save_pretrained wrote."""
    machine = world.copy("machine", place)
    name = chance.choice((CONFIG, TENSORS, TENSORS))
    command = chance.choice((("load", "machine"), ("load", "machine"), (*TRAIN, "new", "--start", "machine")))
    if chance.random() < 0.4:
        words, content = WRITTEN[Path(name).suffix]((machine / name).read_bytes(), chance)
        (machine / name).write_bytes(content)
        sealed = (name == TENSORS or _seal(machine / CONFIG)) and _seal_machine(machine)
        return Attempt(f"{name}: {words}{', resealed' if sealed else ''}", command, "" if sealed else "machine")
    other = world.path / "other" / ("checkpoints/00000006/" if name == TENSORS else "") / name
    words, sealed = mutate(machine / name, chance, other)
    return Attempt(words, command, "" if sealed else "machine")


def in_kept(world: World, place: Path, chance: random.Random) -> Attempt:
    """A kept result."""
    words, sealed = mutate(world.copy("kept", place) / KEPT / "seed-0.json", chance)
    if chance.random() < 0.2:
        world.copy("runs", place)
        return Attempt(words, ("collect", "--runs", "runs", "--out", "kept"))
    report = ("report", "--results", "kept", "--out", "report.html", "--markdown", "report.md")
    return Attempt(words, report if chance.random() < 0.03 else REPRODUCE, "" if sealed else "kept")


def in_babi(world: World, place: Path, chance: random.Random) -> Attempt:
    """bAbI's archive, or the directory it unpacks to."""
    directory = place / "data" / "babi"
    directory.mkdir(parents=True)
    if chance.random() < 0.25:
        folder = small_babi.unpacked(world.stories, directory / small_babi.babi.FOLDER)
        file = folder / chance.choice(list(world.stories))
        words, _ = mutate(file, chance)
    else:
        words, content = mutations.tar_mutated(world.stories, small_babi.babi.FOLDER, chance)
        (directory / small_babi.babi.ARCHIVE).write_bytes(content)
        if chance.random() < 0.1:
            words = f"archive: {mutations.replaced(directory / small_babi.babi.ARCHIVE, chance)}"
    return Attempt(words, ("data", "check", "babi", "--data-dir", "data", "--json"))


def in_omniglot(world: World, place: Path, chance: random.Random) -> Attempt:
    """One of Omniglot's archives, a drawing, or the list of which characters are for training."""
    directory = place / "data" / "omniglot"
    which = chance.choice(("archive", "archive", "archive", "split", "drawing"))
    if which == "drawing":
        glyphs.write(place / "data", unpacked=True)
        words, _ = mutate(directory / chance.choice(list(world.drawings)), chance)
    else:
        world.copy("data/omniglot", place)
        part = chance.choice(list(glyphs.ALPHABETS))
        if which == "split":
            words, _ = mutate(directory / "split.txt", chance)
        elif chance.random() < 0.1:
            words = f"archive: {mutations.replaced(directory / f'{part}.zip', chance)}"
        else:
            files = {name: content for name, content in world.drawings.items() if name.startswith(part)}
            words, content = mutations.zip_mutated(files, chance)
            (directory / f"{part}.zip").write_bytes(content)
    learn = ("train", "omniglot-5", *TINY, "--iterations", "1", "--data-dir", "data", "--out", "new")
    return Attempt(words, learn if chance.random() < 0.2 else ("data", "check", "omniglot", "--data-dir", "data"))


def in_story(world: World, place: Path, chance: random.Random) -> Attempt:
    """A story to ask about, and a question."""
    world.copy("babi", place)
    story, question = world.copy("story.txt", place), "Where is Mary?"
    if chance.random() < 0.3:
        question = chance.choice(
            ("", "?", " ", "Where", "x" * 10_000, "\udcff\udcfe", "٣", "Where is Mary?\tkitchen\t1", ".")
        )
        words = f"question {question[:20]!r}"
    elif chance.random() < 0.2:
        words = f"story: {mutations.replaced(story, chance)}"
    else:
        words, content = mutations.story_mutated(story.read_bytes(), chance)
        story.write_bytes(content)
    return Attempt(words, ("ask", "babi", "story.txt", question, "--json"))


BASES: dict[str, tuple[str, ...]] = {
    "train": (*TRAIN, "new"),
    "eval": EVAL,
    "view": (*VIEW, "--length", "3"),
    "ask": ("ask", "babi", "story.txt", "Where is Mary?", "--json"),
    "reproduce": REPRODUCE,
    "collect": ("collect", "--runs", "runs", "--out", "collected"),
    "report": ("report", "nothing"),
    "bench": ("bench", "--only", "copy", "--batch", "1", "--seconds", "0.001", "--peers", "none", "--growth", "False"),
    "data": ("data", "check", "babi", "--data-dir", "data"),
    "demo": ("demo", "--out", "new"),
}


def in_arguments(world: World, place: Path, chance: random.Random) -> Attempt:
    """An option of a command, or what it takes without one."""
    for name in ("run", "babi", "story.txt", "runs", "kept"):
        world.copy(name, place)
    (place / "data").symlink_to(world.path / "data")
    name = chance.choice(("train",) * 8 + ("eval",) * 4 + ("view",) * 2 + tuple(BASES))
    base = list(BASES[name])
    options = list(_train_options() if name == "train" else _options(COMMANDS[name]))
    if name == "demo":  # whose seed may be right: then it trains for a minute
        options = [option for option in options if option.name == "seed"]
    option = chance.choice(options)
    values = [chance.choice(option.values) for _ in range(option.count)]
    if option.place:
        base[option.place] = values[0]
        words = f"{option.name} {values[0][:20]!r}"
    else:
        given = [f"--{option.name}={values[0]}"] if option.count == 1 else [f"--{option.name}", *values]
        base += given
        words = " ".join(given)[:60]
    if option.name == "port":
        base.append("--serve")
    asked = {word.replace("_", "-") for word in WORK} | {"port", "seed" if name == "demo" else ""}
    asked |= {"directory"} if name == "report" else set()
    return Attempt(f"{name}: {words}", tuple(base), endless=option.name in asked)


class Option(NamedTuple):
    """What a command can be given."""

    name: str
    values: tuple[str, ...]
    """Such as nobody should."""
    place: int = 0
    """Where it stands among the arguments, if it is given without its name."""
    count: int = 1
    """How many values it takes."""


NOT_GIVEN = {"engine", "wandb"}
"""These would go to other machines."""


def _options(command: type) -> Iterator[Option]:
    """The options of a command; switches are left out."""
    types, place = get_type_hints(command), 0
    for field in fields(command):
        declared = str(field.type)
        place += "Positional" in declared
        if types[field.name] is not bool and field.name not in NOT_GIVEN:
            name = "import" if field.name == "imports" else field.name.replace("_", "-")
            yield Option(name, _values(types[field.name], declared), place if "Positional" in declared else 0)


@functools.cache
def _train_options() -> tuple[Option, ...]:
    """The options of nsm train: those of the tree."""
    recipe = recipes.copy
    tree = train_command._options(recipe, recipe())()
    found = [Option("task", mutations.TASKS, place=1)]
    for part in fields(tree):
        prefix = part.name.removesuffix("_options")
        value = getattr(tree, part.name)
        if prefix in ("choice", "own", "running"):
            found += _options(type(value))
        else:
            found += _leaves(value, "" if prefix == "schedule" else f"{prefix}.")
    return tuple(found)


def _leaves(node: Any, prefix: str) -> Iterator[Option]:
    types = get_type_hints(type(node))
    for field in fields(node):
        value, name = getattr(node, field.name), prefix + field.name.replace("_", "-")
        if is_dataclass(value):
            yield from _leaves(value, f"{name}.")
        else:
            yield Option(name, _values(types[field.name], ""), count=len(value) if isinstance(value, tuple) else 1)


def _values(kind: Any, declared: str) -> tuple[str, ...]:
    kinds = get_args(kind) or (kind,)
    if "Range" in declared:
        return mutations.RANGES
    for each, values in ((bool, mutations.SWITCHES), (int, mutations.INTEGERS), (float, mutations.REALS)):
        if each in kinds:
            return values
    return mutations.PATHS if Path in kinds else mutations.TEXTS


Kind = Callable[[World, Path, random.Random], Attempt]
KINDS: dict[str, Kind] = {
    "checkpoint": in_checkpoint,
    "resealed": resealed,
    "config": in_config,
    "records": in_records,
    "resume": in_half_a_run,
    "machine": in_machine,
    "kept": in_kept,
    "babi": in_babi,
    "omniglot": in_omniglot,
    "story": in_story,
    "arguments": in_arguments,
}
TURNS = (*KINDS, "checkpoint", "resealed", "config", "machine", "arguments", "arguments", "story", "checkpoint")
"""Case N is of the kind whose turn it is."""


# --- a case in a process of its own -----------------------------------------------------------------------------------


@dataclass
class Child:
    """A case under way."""

    number: int
    attempt: Attempt
    place: Path
    seconds: float
    """What it may take."""
    began: float = 0.0
    stopped: int = 0
    """How often Ctrl-C was pressed."""
    killed: bool = False
    late: bool = False

    def begin(self) -> None:
        self.began = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            _become(self.attempt, self.place)
        self.handle = os.pidfd_open(self.pid)

    def look(self) -> None:
        """Press Ctrl-C, or end it, if it is time to."""
        spent = time.monotonic() - self.began
        if self.attempt.endless and spent > (1 + self.stopped) * PATIENCE and self.stopped < 2:
            self.stopped += 1
            os.kill(self.pid, signal.SIGINT)
        self.late = self.late or spent > self.seconds
        if not self.killed and (self.late or self._in_memory() > TOO_MUCH):
            self.killed = True
            os.killpg(self.pid, signal.SIGKILL)

    def _in_memory(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def end(self) -> Ending:
        _, status, used = os.wait4(self.pid, 0)
        os.close(self.handle)
        outcome, died = _said(self.place, "outcome.json"), os.waitstatus_to_exitcode(status)
        if outcome:
            found = json.loads(outcome)
        elif self.stopped and died == STOPPED:  # at once, as in the middle of an import
            found = {"code": STOPPED}
        else:
            found = {"error": f"the process died with {died}", "where": self.attempt.command[0]}
        out, err = _said(self.place, "stdout"), _said(self.place, "stderr")
        out += _said(self.place / "work", "report.md")
        code = None if self.killed else found.get("code")
        return Ending(code, out, err, found.get("error"), found.get("where"), used.ru_maxrss << 10)


def _said(place: Path, name: str) -> str:
    """The beginning of what a case wrote."""
    path = place / name
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(1_000_000)


def _become(attempt: Attempt, place: Path) -> None:
    """Become the case: run its command, leave a note of how that ended, and end."""
    code = 70
    try:
        os.setpgid(0, 0)
        gc.freeze()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        logging.getLogger().handlers.clear()  # a test's: warnings belong on standard error
        _redirect(place)
        os.chdir(place / "work")
        if attempt.command[0] == "data" or "omniglot-5" in attempt.command:
            os.environ["NSM_CACHE"] = str(place / "cache")  # not the user's
        local.Local = NotRun  # type: ignore[assignment, misc]
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)
        outcome = _outcome(attempt.command)
        sys.stdout.flush()
        sys.stderr.flush()
        (place / "outcome.json").write_text(json.dumps(outcome))
        code = 0
    finally:
        os._exit(code)


def _redirect(place: Path) -> None:
    for number, name in ((0, os.devnull), (1, place / "stdout"), (2, place / "stderr")):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))


def _outcome(command: tuple[str, ...]) -> dict[str, Any]:
    try:
        if command[0] == "load":
            print(_answers(nsm.load(command[1])))
        else:
            command_line(list(command))
    except SystemExit as leaving:
        return {"code": leaving.code or 0}
    except UserError as error:
        if command[0] == "load":
            print(error, file=sys.stderr)
            return {"code": MISTAKE}
        return _traced(error)
    except BaseException as error:
        return _traced(error)
    return {"code": 0}


def _traced(error: BaseException) -> dict[str, Any]:
    print("".join(traceback.format_exception(error)[-40:])[-20_000:], file=sys.stderr)
    home = str(Path(nsm.__file__).parent)
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(home)]
    where = f"{Path(ours[-1].filename).relative_to(home)}:{ours[-1].lineno} {ours[-1].name}" if ours else "elsewhere"
    return {"code": None, "error": f"{type(error).__name__}: {str(error)[:120]}", "where": where}


@torch.no_grad()
def _answers(machine: nsm.Machine) -> str:
    """What a machine says to an input that is always the same."""
    x = torch.linspace(-1, 1, 4 * machine.config.input_size, dtype=torch.float32).reshape(4, 1, -1)
    answers, _ = machine(x.to(machine.initial_read.dtype))
    return repr(answers.double().flatten().tolist())


def run(children: Iterable[Child], workers: int) -> Iterator[tuple[Child, Ending]]:
    """Run cases, a few at a time; each as it ends."""
    waiting, under_way, poll = iter(children), dict[int, Child](), select.poll()
    while True:
        for child in itertools.islice(waiting, workers - len(under_way)):
            child.begin()
            under_way[child.handle] = child
            poll.register(child.handle, select.POLLIN)
        if not under_way:
            return
        for handle, _ in poll.poll(50):
            poll.unregister(handle)
            child = under_way.pop(handle)
            yield child, child.end()
        for child in under_way.values():
            child.look()


# --- verdicts ---------------------------------------------------------------------------------------------------------

TIMES = re.compile(r'"[a-z_]*seconds": [^,\n}]*')


class Attack:
    """Runs cases, and keeps the failures."""

    def __init__(
        self, scratch: Path, seed: int = 0, seconds: float = 60.0, memory: int = 1024, keep: bool = False
    ) -> None:
        self.scratch, self.seed, self.seconds, self.memory, self.keep = scratch, seed, seconds, memory << 20, keep
        self.world = World(scratch / "world")
        self.refused = self.accepted = self.count = 0
        self.failures: list[Failure] = []
        self.numbers: dict[tuple[tuple[str, ...], str], list[str]] = {}
        gc.collect()
        self.base = self.unharmed(EVAL, "run").peak

    def prepare(self, number: int) -> Child:
        """Make the files of a case."""
        place = self.scratch / f"case-{number}"
        (place / "work").mkdir(parents=True)
        kind = KINDS[TURNS[number % len(TURNS)]]
        return Child(
            number, kind(self.world, place / "work", random.Random(f"{self.seed}/{number}")), place, self.seconds
        )

    def unharmed(self, command: tuple[str, ...], source: str, without: int | None = None) -> Ending:
        """How a command ends that meets what nobody harmed, `without` a checkpoint or with all."""
        place = Path(tempfile.mkdtemp(dir=self.scratch))
        copy = self.world.copy(source, place / "work", "run" if source == "half" else source)
        if without is not None:
            shutil.rmtree(checkpoints.path(copy / "checkpoints", without))
        child = Child(-1, Attempt("unharmed", command), place, 10 * self.seconds)
        (ending,) = (ending for _, ending in run([child], 1))
        shutil.rmtree(place)
        if ending.code != 0:
            raise RuntimeError(f"nsm {' '.join(command)} fails by itself: {ending.err}")
        return ending

    def run(self, children: Iterable[Child], workers: int = 2) -> None:
        """Run cases, and judge how they end."""
        for child, ending in run(children, workers):
            self.judge(child, ending)

    def judge(self, child: Child, ending: Ending) -> None:
        """Note what must never happen."""
        attempt, found = child.attempt, []
        exits = EXITS_IF_STOPPED if child.stopped else EXITS
        if child.late:
            found.append(("hang", f"{' '.join(attempt.command)[:60]} took longer than {child.seconds:g} s"))
        elif ending.error is not None and not child.killed:
            found.append(("traceback", f"{ending.where}: {ending.error}"))
        elif (not child.killed and ending.code not in exits) or "Traceback (most recent call last)" in ending.err:
            found.append(("traceback", f"exit code {ending.code}: {ending.err[-200:].strip()}"))
        if (grown := ending.peak - self.base) > self.memory:
            found.append(("memory", f"{attempt.command[0]} grew by {grown >> 20:,} MiB"))
        if attempt.unharmed and ending.code == 0 and self.changed(attempt, ending):
            found.append(("changed", f"{attempt.command[0]} gave other numbers"))
        self.failures += [Failure(what, child.number, attempt, why) for what, why in found]
        self.count += 1
        self.accepted += ending.code == 0
        self.refused += ending.code in (FAILED, MISTAKE)
        if not self.keep:
            shutil.rmtree(child.place)

    def changed(self, attempt: Attempt, ending: Ending) -> bool:
        """Whether these are other numbers than the unharmed files give, or than it says it gives."""
        key = (attempt.command, attempt.unharmed)
        if key not in self.numbers:
            steps = checkpoints.steps(self.world.path / attempt.unharmed / "checkpoints")
            self.numbers[key] = [_numbers(self.unharmed(*key, without)) for without in (None, *steps)]
        same, *others = self.numbers[key]
        numbers = _numbers(ending)
        told = any(words in ending.err for words in INSTEAD)
        return numbers != same and not (told and numbers in others)

    def summary(self) -> str:
        """One line."""
        counts = collections.Counter(failure.what for failure in self.failures)
        return (
            f"{self.count:,} mutations of seed {self.seed}, {self.refused:,} refused and {self.accepted:,} harmless: "
            f"{counts['traceback']} tracebacks, {counts['hang']} hangs, "
            f"{counts['memory']} over {self.memory >> 20:,} MiB, {counts['changed']} changed outputs"
        )

    def weaknesses(self) -> list[str]:
        """The failures, those of one cause in one line, with the first case of each."""
        causes: dict[tuple[str, str, str], list[Failure]] = {}
        for failure in self.failures:
            reason = failure.reason.split(":")[:3] if failure.what == "traceback" else failure.attempt.command[0]
            causes.setdefault((failure.what, TURNS[failure.number % len(TURNS)], str(reason)), []).append(failure)
        lines = []
        for (what, kind, _), found in causes.items():
            first = found[0]
            numbers = ", ".join(str(failure.number) for failure in found[:5]) + (" …" if len(found) > 5 else "")
            told = " ".join(f"{len(found)} × {what}, {kind}: {first.reason} ({first.attempt.words})".split())
            lines.append(f"{told}; --seed {self.seed} --case {numbers}")
        return lines


def _numbers(ending: Ending) -> str:
    """What is compared: all but the times."""
    return TIMES.sub("", ending.out)


def main(
    cases: Annotated[int, tyro.conf.arg(help="How many.")] = 5_000,
    seed: Annotated[int, tyro.conf.arg(help="Of the mutations.")] = 0,
    case: Annotated[int | None, tyro.conf.arg(help="Run this one alone, and show what happens.")] = None,
    only: Annotated[
        str | None, tyro.conf.arg(help=f"Only cases of this kind: {', '.join(KINDS)}; several with commas.")
    ] = None,
    keep: Annotated[Path | None, tyro.conf.arg(help="Keep the files of all cases there.")] = None,
    seconds: Annotated[
        float, tyro.conf.arg(help="What a case may take: a report of a run takes five by itself.")
    ] = 60.0,
    memory: Annotated[int, tyro.conf.arg(help="MiB by which a process may grow.")] = 1024,
    workers: Annotated[int, tyro.conf.arg(help="Cases at a time.")] = 2,
) -> None:
    kinds = set(KINDS if only is None else only.split(","))
    if unknown := kinds - set(KINDS):
        sys.exit(f"attack.py: there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if keep is not None:
        if keep.exists():
            sys.exit(f"attack.py: {keep} is there already")
        keep.mkdir(parents=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nsm-attack-") as temporary:
        attack = Attack((keep or Path(temporary)).resolve(), seed, seconds, memory, keep is not None)
        if case is not None:
            ((child, ending),) = run([attack.prepare(case)], 1)
            print(f"{TURNS[case % len(TURNS)]}: {child.attempt.words}\n$ nsm {' '.join(child.attempt.command)[:2_000]}")
            print(f"{ending.out}{ending.err}exit code {ending.code}, {ending.peak - attack.base >> 20:,} MiB more")
            attack.judge(child, ending)
        else:
            chosen = (number for number in itertools.count() if TURNS[number % len(TURNS)] in kinds)
            attack.run(map(attack.prepare, itertools.islice(chosen, cases)), workers)
    for line in attack.weaknesses():
        print(line, file=sys.stderr)
    print(f"{attack.summary()}; {time.monotonic() - began:.0f} s.")
    sys.exit(1 if attack.failures else 0)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
