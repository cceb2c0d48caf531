"""Parsing options, and suggestions for mistyped ones."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

import tyro

from nsm.checks import UserError, brief


def parse(kind: type[Any], command: str, arguments: Sequence[str], words: str | None = None, *config: Any) -> Any:
    """The options of a command; an unknown one is an error that suggests the nearest."""
    found, unknown = parse_known(kind, command, arguments, words, *config)
    for argument in unknown:
        if argument.startswith("-") and not argument[1:2].isdecimal():
            typed = argument.partition("=")[0]
            near = nearest(typed, option_names(kind))
            hint = f"did you mean {near}?" if near else f"see {command} --help"
            raise UserError(f"{command} has no option {brief(typed)}: {hint}")
    if unknown:
        raise UserError(f"{command} got an unexpected argument {brief(unknown[0])!r}: see {command} --help")
    return found


def parse_known(
    kind: type[Any], command: str, arguments: Sequence[str], words: str | None = None, *config: Any
) -> tuple[Any, list[str]]:
    """The options of a class found among the arguments, and the remaining arguments."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            found: tuple[Any, list[str]] = tyro.cli(
                kind, prog=command, description=words, args=arguments, return_unknown_args=True, config=config
            )
    except SystemExit as leaving:
        if (mistake := _behind(leaving)) is not None:
            raise mistake from None
        print(said.getvalue(), end="", file=sys.stderr)
        raise
    return found


def _behind(error: BaseException) -> UserError | None:
    """The UserError that a node of the tree raised for its values, which tyro would print in a box."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, UserError):
        cause = cause.__context__
    return cause


def option_names(node: Any, prefix: str = "--") -> Iterator[str]:
    """All options of a class or of a node, as they are typed: its leaves."""
    hints = get_type_hints(node if isinstance(node, type) else type(node), include_extras=True)
    for field in fields(node):
        value = field.default if isinstance(node, type) else getattr(node, field.name)
        hint, marks = hints[field.name], getattr(hints[field.name], "__metadata__", ())
        named = [mark.name for mark in marks if getattr(mark, "name", None) is not None]
        name = prefix + (named[0] if named else field.name.replace("_", "-"))
        left_out = any(map(is_dataclass, get_args(hint.__origin__ if marks else hint)))
        if is_dataclass(value):
            yield from option_names(value, f"{name}." if name != prefix else prefix)
        elif isinstance(value, tuple) and any(map(is_dataclass, value)):
            for number, part in enumerate(value):
                yield from option_names(part, f"{name}.{number}.")
        elif tyro.conf.Positional not in marks and not left_out:
            yield name


def nearest(typed: str, known: Iterable[str]) -> str | None:
    """The option nearest to a mistyped one: for --slots --memory.slots, for --lr --optimiser.learning-rate."""
    word, options = typed.lstrip("-"), list(known)

    def last(option: str) -> str:
        return option.lstrip("-").rpartition(".")[2]

    for option in options:
        initials = "".join(part[0] for part in last(option).split("-") if part)
        if word in (last(option), last(option).replace("-", "_")) or (len(word) > 1 and word == initials):
            return option
    whole, lasts = [option.lstrip("-") for option in options], [last(option) for option in options]
    for names in (whole, lasts) if "." in word else (lasts, whole):
        part = word if names is whole else last(word)
        for near in get_close_matches(part, names, n=1, cutoff=0.6):
            return options[names.index(near)]
    return None
