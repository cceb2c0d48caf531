"""Tasks and memories of the user's own: their modules are imported because the user says so, never a file."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import tyro

from nsm.checks import UserError, brief

Plugins = Annotated[
    tuple[str, ...], tyro.conf.arg(name="import", metavar="MODULE …", help_behavior_hint="(default: none)")
]


def load_plugins(names: tuple[str, ...]) -> None:
    """Import modules by name, from the current directory, too, as `python -m` does."""
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        mistake = f"there is no module {brief(name)!r}: --import takes what Python's import does, like my_tasks"
        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(mistake)
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # one that it imports itself
            raise UserError(mistake) from None
