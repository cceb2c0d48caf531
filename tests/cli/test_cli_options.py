"""The options are a promise: this freezes them. `--help` of every command shows how it is used."""

import platform
import sys
from dataclasses import MISSING, fields
from importlib.metadata import version
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from nsm.cli import DESCRIPTION
from nsm.commands import Command
from nsm.version import __version__

FROZEN = Path(__file__).parent / "options.txt"
COMMANDS = {get_args(kind)[1].name: get_args(kind)[0] for kind in get_args(Command)}


def options() -> str:
    """One line per option: the command, the option, its type and its default."""
    lines = ["--version"] if "nsm --version" in DESCRIPTION else []
    for name, command in COMMANDS.items():
        types = get_type_hints(command)
        for field in fields(command):
            positional = "Positional" in str(field.type)
            shown = field.name.upper() if positional else f"--{field.name.replace('_', '-')}"
            kind = str(types[field.name]) if get_args(types[field.name]) else types[field.name].__name__
            kind = kind.replace("pathlib.", "").replace(" | None", "")
            default = "" if field.default is MISSING else f" = {field.default}"
            lines.append(f"{name} {shown}: {kind}{default}")
    return "\n".join(lines) + "\n"


def test_the_options_are_those_that_were_promised():
    assert options() == FROZEN.read_text(), (
        "the command line's options changed. If that is meant, keep old spellings working where you can, then run\n"
        f"    {Path(sys.executable).name} {Path(__file__).name} > {FROZEN.name}\n"
        f"in {FROZEN.parent} and say in the commit what changed."
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does_and_gives_an_example(nsm, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    said = nsm(command, "--help")
    assert said.code == 0
    assert f"Example: nsm {command}" in said.out
    for field in fields(COMMANDS[command]):
        if "Positional" not in str(field.type):
            assert f"--{field.name.replace('_', '-')}" in said.out
    assert "{None}" not in said.out, "an option that may be left out should say what it is then"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    source = Path(sys.modules[COMMANDS[command].__module__].__file__).read_text().splitlines()
    for field in fields(COMMANDS[command]):
        at = next(i for i, line in enumerate(source) if line.startswith(f"    {field.name}: "))
        assert source[at + 1].strip().startswith('"""'), f"{command}: {field.name} has no explanation"


def test_the_version_is_told(nsm):
    said = nsm("--version")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"nsm {__version__} (Python {platform.python_version()}, torch {version('torch')})\n"


def test_all_commands_are_listed(nsm):
    said = nsm("--help")
    assert said.code == 0
    assert all(command in said.out for command in COMMANDS)


if __name__ == "__main__":
    print(options(), end="")
