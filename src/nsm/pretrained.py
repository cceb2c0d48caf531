"""A machine in a directory: `config.json` and `model.safetensors`. Data only, nothing executable."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm.checks import UserError, choose
from nsm.files import write_atomically
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
        raise UserError(f"{where} must be an object, was {data!r}")
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


def _value(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    for option in options:
        if isinstance(option, type) and dataclasses.is_dataclass(option):
            return from_json(option, value, where)
    if type(value) in options:
        return value
    if float in options and type(value) is int:
        return float(value)
    names = " or ".join(option.__name__ for option in options if option is not type(None))
    raise UserError(f"{where} must be {names}, was {value!r}")


def save(directory: Path, kind: str, config: Any, tensors: dict[str, Tensor]) -> None:
    """Write both files, each by a rename, the configuration last: a reader never finds half of either."""
    directory.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(directory / TENSORS, save_tensors(contiguous))
    document = {"format": FORMAT, "version": VERSION, "machine": kind, "config": to_json(config)}
    write_atomically(directory / CONFIG, (json.dumps(document, indent=2) + "\n").encode())


def load(directory: Path, cls: type[C]) -> tuple[str, C, dict[str, Tensor]]:
    """The machine's kind, configuration and tensors, all read and checked before anything is built from them."""
    for name in (CONFIG, TENSORS):
        if not (directory / name).is_file():
            hint = "; nsm.load reads runs and checkpoints, too" if directory.is_dir() else ""
            raise UserError(f"{directory} is not a saved machine: it has no {name}{hint}")
    try:
        document = json.loads((directory / CONFIG).read_bytes())
    except (ValueError, RecursionError):
        raise UserError(f"{directory / CONFIG} is damaged: not JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(f"{directory / CONFIG} does not describe an nsm machine")
    if document.get("version") != VERSION:
        raise UserError(f"{directory} has format version {document.get('version')!r}; this nsm reads version {VERSION}")
    try:
        config = from_json(cls, document.get("config"))
    except ValueError as error:
        raise UserError(f"{directory / CONFIG} is damaged: {error}") from None
    try:
        tensors = load_tensors((directory / TENSORS).read_bytes())
    except SafetensorError as error:
        raise UserError(f"{directory / TENSORS} is damaged: {error}") from None
    # Copies, because what was read in one piece isn't aligned as a tensor of its own is.
    return str(document.get("machine")), config, {name: tensor.clone() for name, tensor in tensors.items()}


def check(directory: Path, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Raise a ValueError unless the tensors found are those expected, by name and shape, and all of one precision."""
    for name in sorted(found.keys() ^ expected.keys()):
        raise UserError(f"{directory / TENSORS} {'lacks' if name in expected else 'has an unknown'} tensor {name!r}")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise UserError(
                f"{directory / TENSORS}: {name} must have shape {tuple(tensor.shape)}, was {tuple(found[name].shape)}"
            )
    kinds = {found[name].dtype for name, tensor in expected.items() if tensor.is_floating_point()}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        names = ", ".join(sorted(map(str, kinds)))
        raise UserError(f"{directory / TENSORS}: the tensors must be of one floating-point type, were {names}")
