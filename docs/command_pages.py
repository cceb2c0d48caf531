"""The reference of commands, as Markdown, from the parser that `nsm … --help` uses."""

import inspect
import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from nsm.cli import main
from nsm.commands import COMMANDS
from nsm.names import RECIPES

Option = tuple[str, str, str]
"""As it is typed, with what it takes; what it does; its default."""


def help_of(*command: str) -> str:
    """What a command says with --help."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with patch.dict(os.environ, COLUMNS="100", NO_COLOR="1"), redirect_stdout(said), suppress(SystemExit):
        main([*command, "--help"])
    said.seek(0)
    return said.read()


def options_of(*command: str) -> Iterator[Option]:
    """Arguments and options, as its help has them."""
    rows: list[list[str]] = []
    begun = False  # whether a box has had an option: before them stands what they have in common
    for line in help_of(*command).splitlines():
        inside = line.strip("│ ")
        if line.startswith("╭"):
            begun = False
        elif re.match(r"│ (-h|--[a-z]|[A-Za-z|]+ {2,}\S)", line):
            rows.append(re.split(r" {2,}", inside, maxsplit=1))
            begun = True
        elif begun and line.startswith("│ ") and inside:
            rows[-1].append(inside)
    for typed, *words in rows:
        text, _, default = " ".join(words).partition(" (default: ")
        required = text.endswith(" (required)")
        if not typed.startswith(("-h", "--task.test.", "--task.validation.")):
            typed = re.sub(r", --no-[\w-]+", "", typed)
            yield typed, text.removesuffix(" (required)"), "required" if required else default.removesuffix(")")


def table(options: Iterator[Option]) -> Iterator[str]:
    yield "| option | meaning | default |"
    yield "|---|---|---|"
    for row in options:
        typed, text, default = (cell.replace("|", "\\|").replace("$", "\\$") for cell in row)
        yield f"| `{typed}` | {text} | {default} |"


def words_of(command: type) -> Iterator[str]:
    """What a command does; its examples as code."""
    for paragraph in (inspect.getdoc(command) or "").split("\n\n"):
        label, found, example = " ".join(paragraph.split()).partition(": ")
        if found and re.match(r"(nsm|torchrun) ", example):
            yield f"{label}:\n\n```text\n{example}\n```\n"
        else:
            yield f"{paragraph}\n"


def page() -> str:
    """A section for every command; of `train`, the options of Copy, and those that other tasks add."""
    lines: list[str] = []
    for name, command in COMMANDS.items():
        lines += [f"## nsm {name}", "", *words_of(command)]
        if name == "train":
            copy = list(options_of("train", "copy"))
            lines += [
                "Options of `nsm train copy`. Every `--task.…` also exists as `--task.test.…` and, where the recipe has"
            ]
            lines += ["one, as `--task.validation.…`, for the sequences of the test and of validation.", ""]
            lines += [*table(iter(copy)), ""]
            known = {typed.split()[0] for typed, _, _ in copy}
            added: dict[str, tuple[Option, list[str]]] = {}
            for task in RECIPES:
                for option in options_of("train", task):
                    if option[0].split()[0] not in known:
                        added.setdefault(option[0].split()[0], (option, []))[1].append(task)
            lines += ["Other tasks have further options:", ""]
            rows = ((typed, f"{', '.join(tasks)}: {text}", default) for (typed, text, default), tasks in added.values())
            lines += [*table(rows), ""]
        else:
            lines += [*table(options_of(name)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
