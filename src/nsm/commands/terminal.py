"""How commands show and take their options."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

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
"""A number that may be left out. Of one that is none tyro would say all that it could have been otherwise."""


def option(metavar: str, default: str) -> Any:
    """How `--help` shows an option that may be left out: what it takes, and what it is then."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")
