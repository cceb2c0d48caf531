"""Typed trees of frozen dataclasses as plain JSON, and back: the format of a run's config.json.

A node that is one of several kinds, such as a task or a memory, has its class in `kind`: nsm's own by name, any other
as `module:Class`. A file never causes an import: a class is found only if its module is loaded. A class of the script
that runs is named as if the script were imported.

A field that a file lacks has its default. So a new option is a field whose default changes nothing, and recipes turn it
on.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
import sys
import types
import typing
from collections.abc import Iterator
from functools import cache
from inspect import isabstract
from pathlib import Path
from typing import Any, TypeVar

from nsm.checks import UserError, brief, choose

C = TypeVar("C")
KIND = "kind"
OURS = "nsm."
MAIN = ("__main__", "__mp_main__")
"""The module of the running script, here and in processes that it starts."""
DEEPEST = 50
PLAIN = (str, int, float, bool, types.NoneType)


class OneOf:
    """Base of a class whose subclasses are alternatives in a tree, told apart by `kind`."""


def kind_of(cls: type) -> str:
    """The name of a class in files."""
    if cls.__module__.startswith(OURS):
        return cls.__name__
    if "<locals>" in cls.__qualname__:
        raise UserError(f"{cls.__qualname__} is defined inside a function: define it at the top level of a module")
    module = _main() if cls.__module__ in MAIN else cls.__module__
    return f"{module}:{cls.__qualname__}"


def find(base: type[C], kind: Any, where: str) -> type[C]:
    """The subclass of `base` that a file names by `kind`."""
    if not isinstance(kind, str) or ":" not in kind:
        known = {cls.__name__: cls for cls in _below(base) if cls.__module__.startswith(OURS) and not isabstract(cls)}
        return known[choose(f"{where}.{KIND}", brief(kind) if isinstance(kind, str) else reprlib.repr(kind), known)]
    module, _, name = kind.partition(":")
    loaded = sys.modules.get("__main__" if module == _main() else module)
    found: Any = loaded
    for part in name.split("."):  # from vars(): looking up an attribute may run code, or import
        found = vars(found).get(part) if isinstance(found, types.ModuleType | type) else None
    if not (isinstance(found, type) and issubclass(found, base)) or isabstract(found):
        if module in MAIN:
            hint = "define it again, or train with a class in a module"
        elif loaded is None:
            hint = f"import {brief(module)} first (--import {brief(module)})"
        else:
            hint = f"{brief(module)} has no such {base.__name__}"
        raise UserError(f"{where} is a {brief(kind)}, which is not part of nsm: {hint}")
    return found


def _main() -> str:
    """The module name of the running script; __main__ in a notebook or at a prompt."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec is not None else Path(path).stem if path is not None else "__main__"


def _below(base: type[C]) -> Iterator[type[C]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _below(cls)


def to_json(value: Any, where: str = "config") -> Any:
    """A tree as plain JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        fields = {name: to_json(getattr(value, name), f"{where}.{name}") for name in names}
        return {KIND: kind_of(type(value)), **fields} if isinstance(value, OneOf) else fields
    if isinstance(value, tuple | list):
        return [to_json(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: to_json(item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} must be a finite number to be written, was {value}")
    if not isinstance(value, PLAIN):
        raise UserError(
            f"{where} must be a number, string, bool, or a tuple or string-keyed dict of these, was {value!r:.80}"
        )
    return value


def from_json(cls: type[C], data: Any, where: str = "config") -> C:
    """The node of class `cls`, or a subclass, from which `to_json` made `data`; unknown fields are errors."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must be an object, was {reprlib.repr(data)}")
    if where.count(".") > DEEPEST:
        raise UserError(f"{brief(where)} is nested too deep: a tree has at most {DEEPEST} levels")
    if issubclass(cls, OneOf):
        cls = find(cls, data.get(KIND), where)
        data = {name: value for name, value in data.items() if name != KIND}
    hints = _hints(typing.cast(Any, cls))
    known = {f.name: f for f in dataclasses.fields(typing.cast(Any, cls)) if f.init}
    for name in data:
        choose(f"a field of {where}", brief(name), known)
    for name, field in known.items():
        if name not in data and field.default is field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where}.{name} is missing")
    return cls(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def check_fields(cls: type[Any], data: Any, where: str) -> dict[str, Any]:
    """Return data with the fields and types of a TypedDict; raises a UserError for anything else."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must be an object, was {reprlib.repr(data)}")
    hints = _hints(typing.cast(Any, cls))
    for name in sorted(cls.__required_keys__ - data.keys()):
        raise UserError(f"{where}.{name} is missing")
    for name, value in data.items():
        _value(hints[choose(f"a field of {where}", brief(name), hints)], value, f"{where}.{name}")
    return data


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """The types of a class's fields; cached, because a curve needs them for every line."""
    return typing.get_type_hints(cls)


def _value(hint: Any, value: Any, where: str) -> Any:
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    options = typing.get_args(hint) if union else (hint,)
    if hint is Any or (value is None and type(None) in options):
        return value
    for option in options:
        origin, parts = typing.get_origin(option), typing.get_args(option)
        if isinstance(option, type) and (dataclasses.is_dataclass(option) or issubclass(option, OneOf)):
            return from_json(option, value, where)
        if origin is typing.Literal and any(type(value) is type(part) and value == part for part in parts):
            return value
        if option is tuple and type(value) is list:
            return tuple(value)
        if origin in (list, tuple) and type(value) is list:
            each = [parts[0]] * len(value) if origin is list or parts[1:] == (...,) else list(parts)
            if len(each) != len(value):
                raise UserError(f"{where} must have {len(each)} entries, had {len(value)}")
            return origin(_value(h, v, f"{where}[{n}]") for n, (h, v) in enumerate(zip(each, value, strict=True)))
        if origin is dict and type(value) is dict:
            return {name: _value(parts[1], item, f"{where}.{name}") for name, item in value.items()}
    if type(value) in options:
        return value
    if float in options and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    names = " or ".join(_called(option) for option in options if option is not type(None))
    raise UserError(f"{where} must be {names}, was {reprlib.repr(value)}")


def _called(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
