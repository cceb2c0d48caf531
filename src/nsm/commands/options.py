"""Options that several commands have, and how `--help` shows those that may be left out."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from nsm.checks import UserError, brief


def option(metavar: str, default: str) -> Any:
    """How `--help` shows an option that may be left out: its metavar and, in words, its default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


Integer = Annotated[
    int | None,
    tyro.constructors.PrimitiveConstructorSpec[int | None](
        nargs=1,
        metavar="INT",
        instance_from_str=lambda given: int(given[0]),
        is_instance=lambda value: value is None or isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]
"""An optional integer. For any other word, tyro's own message would list every type that the option accepts."""
DataDir = Annotated[Path | None, option("PATH", "$NSM_DATA, or nsm in the user's data directory")]
RunDirectory = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Plugins = Annotated[
    tuple[str, ...], tyro.conf.arg(name="import", metavar="MODULE …", help_behavior_hint="(default: none)")
]
"""Modules with the user's own tasks and memories: imported only if the user names them, never because a file does."""


def load_plugins(names: tuple[str, ...]) -> None:
    """Import modules by name, from the current directory too, as `python -m` does."""
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        mistake = f"there is no module {brief(name)!r}: --import takes a name that Python can import, like my_tasks"
        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(mistake)
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # a module that the user's module imports
            raise UserError(mistake) from None
