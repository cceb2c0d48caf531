"""A machine in a directory: `config.json` and `model.safetensors`. Data only, nothing executable.

The tensors have their digest in the file's own metadata, and with it that of the configuration they were saved with: a
file is replaced as one, so that one with the digest of another can't come of a save that was cut off.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm import documents
from nsm.checks import UserError, brief, choose, free_memory
from nsm.files import Damaged, alone, opened, read, sweep, write_atomically
from nsm.memories import MEMORIES, MemoryConfig

FORMAT = "nsm-machine"
VERSION = 1
CONFIG = "config.json"
TENSORS = "model.safetensors"

C = TypeVar("C")


def to_json(value: Any) -> Any:
    """A configuration as plain JSON data; a memory carries its name as `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        for name, field in fields.items():
            if isinstance(field, float) and not math.isfinite(field):
                raise UserError(f"{name} must be a finite number to be written, was {field}")
        names: dict[type, str] = {memory: name for name, memory in MEMORIES.items()}
        if isinstance(value, MemoryConfig) and type(value) not in names:
            raise UserError(f"memory must be one of {', '.join(MEMORIES)} to be written, was a {type(value).__name__}")
        return {"kind": names[type(value)], **fields} if type(value) in names else fields
    return value


ADDED: dict[str, Any] = {
    "Controller.input_gain": 1.0,
    "Controller.forget_bias": 0.0,
    "Interface.keys": "own",
    "Interface.sharpness": 0.0,
    "LRUA.strength": 1.0,
    "RunConfig.easy_steps": 0,
    "RunConfig.curriculum": False,
    "RunConfig.follow_test": False,
    "RunConfig.persistent": False,
    "RunConfig.wiped_steps": 0,
    "RunConfig.rewind": 0.0,
    "RunConfig.start": None,
    "RunConfig.world_size": 1,
}
"""Options that came later, and what files without them mean: not today's default, which may change."""


def from_json(cls: type[C], data: Any, where: str = "config") -> C:
    """The configuration of class `cls` that `to_json` made `data` of; refuses unknown and missing fields.

    Of earlier versions' files, fields may be missing that came later.
    """
    if not isinstance(data, dict):
        raise UserError(f"{where} must be an object, was {reprlib.repr(data)}")
    if cls is MemoryConfig:
        data = dict(data)
        cls = typing.cast(type[C], MEMORIES[choose(f"{where}.kind", data.pop("kind", ""), MEMORIES)])
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(typing.cast(Any, cls))]
    for name in data:
        choose(f"a field of {where}", name, known)
    later = {name: ADDED[of] for name in known if (of := f"{cls.__name__}.{name}") in ADDED}
    data = later | data
    for name in known:
        if name not in data:
            raise UserError(f"{where}.{name} is missing")
    return cls(**{name: _value(hints[name], data[name], f"{where}.{name}") for name in known})


def check_fields(cls: type[Any], data: Any, where: str) -> dict[str, Any]:
    """Return data that has the fields of a TypedDict, and no other types than it says; refuses all else."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must be an object, was {reprlib.repr(data)}")
    hints = typing.get_type_hints(cls)
    for name in sorted(cls.__required_keys__ - data.keys()):
        raise UserError(f"{where}.{name} is missing")
    for name, value in data.items():
        _value(hints[choose(f"a field of {where}", name, hints)], value, f"{where}.{name}")
    return data


def _value(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if hint is Any or (value is None and type(None) in options):
        return value
    for option in options:
        parts = typing.get_args(option)
        if isinstance(option, type) and dataclasses.is_dataclass(option):
            return from_json(option, value, where)
        if typing.get_origin(option) is list and type(value) is list:
            return [_value(parts[0], item, f"{where}[{number}]") for number, item in enumerate(value)]
        if typing.get_origin(option) is dict and type(value) is dict:
            return {name: _value(parts[1], item, f"{where}.{name}") for name, item in value.items()}
    if type(value) in options:
        return value
    if float in options and type(value) is int:
        return float(value)
    names = " or ".join(option.__name__ for option in options if option is not type(None))
    raise UserError(f"{where} must be {names}, was {reprlib.repr(value)}")


def save(directory: Path, kind: str, config: Any, tensors: dict[str, Tensor]) -> None:
    """Write both files, each by a rename, the configuration last: a reader never finds half of either."""
    document = {"format": FORMAT, "version": VERSION, "machine": kind, "config": to_json(config)}
    content = sealed_tensors({name: tensor.detach().cpu() for name, tensor in tensors.items()}, document)
    directory.mkdir(parents=True, exist_ok=True)
    with alone(directory):  # of two machines saved at once, one is there in the end, and not a file of each
        sweep(directory)
        write_atomically(directory / TENSORS, content)
        documents.write(directory / CONFIG, document)


def sealed_tensors(tensors: dict[str, Tensor], document: dict[str, Any]) -> bytes:
    """A file of tensors that says which bytes it was written with, and beside which configuration."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    _, digest = _seal(save_tensors(tensors))
    # In one entry: safetensors writes several in any order, and the same machine is the same bytes.
    return save_tensors(tensors, metadata={"sha256": f"{digest} {documents.digest_of(document)}"})


def _seal(content: bytes) -> tuple[list[str], str]:
    """The digests that a file of tensors has in its metadata, and the digest of all the rest of it."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = documents.parse(content[8:start])
    said = header.pop("__metadata__", {}).get("sha256", "")
    return said.split(), documents.digest(json.dumps(header, sort_keys=True).encode() + content[start:])


def load(directory: Path, cls: type[C]) -> tuple[str, C, dict[str, Tensor]]:
    """The machine's kind, configuration and tensors, all read and checked before anything is built from them."""
    for name in (CONFIG, TENSORS):
        if not (directory / name).is_file():
            hint = "; nsm.load reads runs and checkpoints, too" if directory.is_dir() else ""
            raise UserError(f"{directory} is not a saved machine: it has no {name}{hint}")
    document = documents.read_any(directory / CONFIG)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(f"{directory / CONFIG} does not describe an nsm machine")
    if document.get("version") != VERSION:
        raise UserError(f"{directory} has format version {document.get('version')!r}; this nsm reads version {VERSION}")
    document = documents.unsealed(directory / CONFIG, document)
    try:
        config = from_json(cls, document.get("config"))
    except ValueError as error:
        raise UserError(f"{directory / CONFIG} is damaged: {error}") from None
    return str(document.get("machine")), config, _load_tensors(directory / TENSORS, documents.digest_of(document))


def read_tensors(path: Path) -> bytes:
    """The content of a file of tensors, which must be as long as its header says before any more of it is read."""
    with opened(path):
        pass
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise Damaged(f"{path} is damaged: {brief(str(error))}") from None
    return read(path, free_memory())


def _load_tensors(path: Path, beside: str) -> dict[str, Tensor]:
    content = read_tensors(path)
    try:
        tensors, (said, digest) = load_tensors(content), _seal(content)
    except (SafetensorError, ValueError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if said[:1] != [digest]:
        raise Damaged(f"{path} is damaged: its sha256 is not the one it was written with")
    if said[1:] != [beside]:
        raise Damaged(f"{path} was not saved with the {CONFIG} that lies beside it: save the machine again")
    return tensors


def check(path: Path, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Raise a ValueError unless the tensors found are those expected, by name and shape, and all of one precision."""
    for name in sorted(found.keys() ^ expected.keys()):
        raise UserError(f"{path} {'lacks' if name in expected else 'has an unknown'} tensor {name!r}")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise UserError(f"{path}: {name} must have shape {tuple(tensor.shape)}, was {tuple(found[name].shape)}")
    kinds = {found[name].dtype for name, tensor in expected.items() if tensor.is_floating_point()}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        names = ", ".join(sorted(map(str, kinds)))
        raise UserError(f"{path}: the tensors must be of one floating-point type, were {names}")
