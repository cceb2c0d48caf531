"""The kinds of cases: what is done to which file, and the command that meets it."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import mutations
from attack_world import KEPT, REPRODUCE, TINY, TRAIN, Attempt, World

from data import glyphs, small_babi
from nsm import documents
from nsm.commands import COMMANDS
from nsm.commands import train as train_command
from nsm.experiments import recipes
from nsm.training import checkpoints

TENSORS, CONFIG = "model.safetensors", "config.json"
WORK = {"iterations", "sequences", "test_sequences", "validation_sequences", "seconds", "seeds", "serve"}
"""Options and fields that say for how long to work."""

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
