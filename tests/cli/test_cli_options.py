"""The options are a promise: this freezes them. `--help` of every command shows how it is used."""

import json
import platform
import re
import sys
from collections import Counter
from dataclasses import MISSING, fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from nsm import names, tree
from nsm.cli import DESCRIPTION
from nsm.commands import COMMANDS, train
from nsm.commands.near import option_names
from nsm.experiments import recipes
from nsm.training.experiment import Experiment
from nsm.version import __version__

FROZEN = Path(__file__).parent / "options.txt"
OTHERS = {name: command for name, command in COMMANDS.items() if name != "train"}


def typed(name):
    """A field as an option: a field may not be called what its option is."""
    return {"imports": "import"}.get(name, name.replace("_", "-"))


def kind_of(hint):
    name = str(hint) if get_args(hint) else hint.__name__
    return re.sub(r"pathlib\.|typing\.| \| None", "", re.sub(r"^typing.Optional\[(.*)\]$", r"\1", name))


def shown(value):
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def leaves(node, prefix="--"):
    """The options of a tree: every field that is not a node itself, with its type and value."""
    hints = get_type_hints(type(node))
    for field in fields(node):
        name, value = f"{prefix}{typed(field.name)}", getattr(node, field.name)
        below = list(enumerate(value)) if isinstance(value, tuple) else []
        if is_dataclass(value):
            yield from leaves(value, f"{name}.")
        elif below and is_dataclass(below[0][1]):
            for number, part in below:
                yield from leaves(part, f"{name}.{number}.")
        elif not any(is_dataclass(kind) for kind in get_args(hints[field.name])):  # a node that is not there
            yield name, kind_of(hints[field.name]), shown(value)


def train_options(name):
    """What `nsm train NAME` takes, by option: its type and its value."""
    recipe = recipes.find(name)
    experiment = recipe()
    parts = [(train.Asked(), "--"), (train.Running(), "--"), (experiment.schedule, "--")]
    parts += [(getattr(experiment, part), f"--{part}.") for part in ("optimiser", "task")]
    machine = {part: getattr(experiment.machine, part) for part in train.MACHINE}
    parts += [(node, f"--{part}.") for part, node in machine.items() if node is not None]
    found = {f"--{typed(own)}": (kind_of(kind), shown(value)) for own, kind, _, value in recipe.own}
    for node, prefix in parts:
        found |= {option: (kind, value) for option, kind, value in leaves(node, prefix)}
    return found


def of_command(command):
    """The options of a command, each with its type and value; those of a part of it as its own."""
    types = get_type_hints(command)
    for field in fields(command):
        if is_dataclass(field.default):
            yield from of_command(type(field.default))
            continue
        name = (
            field.name.upper()
            if "Positional" in str(get_type_hints(command, include_extras=True)[field.name])
            else f"--{typed(field.name)}"
        )
        default = "" if field.default is MISSING else f" = {shown(field.default)}"
        yield f"{name}: {kind_of(types[field.name])}{default}".rstrip()


def options() -> str:
    """One line per option: the command, the option, its type and its value.

    Of training, first what all tasks have, with the value that most of them have; then what else each has.
    """
    lines = ["--version"] if "nsm --version" in DESCRIPTION else []
    for name, command in OTHERS.items():
        lines += [f"{name} {option}" for option in of_command(command)]
    lines.append("train TASK: str")
    tasks = {name: train_options(name) for name in names.RECIPES}
    shared = {
        option: Counter(each[option] for each in tasks.values()).most_common(1)[0][0]
        for option in tasks["copy"]
        if all(option in each for each in tasks.values())
    }
    for task, found in {"TASK": shared, **tasks}.items():
        for option, (kind, value) in found.items():
            if task == "TASK" or shared.get(option) != (kind, value):
                lines.append(f"train {task} {option}: {kind} = {value}".rstrip())
    return "\n".join(lines) + "\n"


def test_the_options_are_those_that_were_promised():
    assert options() == FROZEN.read_text(), (
        "the command line's options changed. If that is meant, keep old spellings working where you can, then run\n"
        f"    {Path(sys.executable).name} {Path(__file__).name} > {FROZEN.name}\n"
        f"in {FROZEN.parent} and say in the commit what changed."
    )


@pytest.mark.parametrize("name", names.RECIPES)
def test_every_field_of_an_experiment_is_an_option_and_nothing_else_is(name):
    """The number of processes is what torchrun says, and what a run starts from is a file's digest."""
    recipe = recipes.find(name)
    assert sorted(option_names(train._options(recipe, recipe()))) == sorted(train_options(name))
    apart = {"machine", "optimiser", "schedule", "seed", "start", "task", "processes"}
    assert {field.name for field in fields(Experiment)} == apart
    sizes = {"input_size", "output_size", "batch_first"}
    assert {field.name for field in fields(recipe().machine)} == {*train.MACHINE, *sizes}


def test_names_are_those_of_the_recipes():
    assert tuple(recipes.RECIPES) == names.RECIPES
    assert tuple(recipes.SUBTASKS) == names.SUBTASKS


def explained(text):
    """What a page of help says of every option, in one line each."""
    _, *parts = re.split(r"^. (--[a-z][^\s,]*)", text, flags=re.M)
    return {option: " ".join(words.replace("│", "").split()) for option, words in zip(*[iter(parts)] * 2, strict=True)}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does_and_gives_an_example(nsm, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    said = nsm(command, "--help")
    assert said.code == 0
    assert f"Example: nsm {command}" in said.out
    assert list(explained(said.out)) == list(option_names(COMMANDS[command]))
    assert "{None}" not in said.out, "an option that may be left out should say what it is then"


@pytest.mark.parametrize("name", [*names.RECIPES, "copy+associative-recall", "omniglot-10", "babi-1,4"])
def test_help_of_a_task_explains_every_option_and_has_its_value(nsm, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    said = nsm("train", name, "--help")
    assert said.code == 0, said.err
    assert recipes.find(name).__doc__ in said.out
    found = explained(said.out)
    assert found.keys() == train_options(name).keys()
    for option, (_, value) in train_options(name).items():
        match = re.search(r"[a-zA-Z_η]\w*.* \(default: (.*?)\)", found[option].lstrip("INTFLOASRUE{}, "))
        assert match, f"{option} has no explanation: {found[option]}"
        assert value in (match[1], "None", ""), option


def test_help_has_the_values_of_the_preset_that_is_asked_for(nsm, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    ours, papers = (nsm("train", "copy", *preset, "--help").out for preset in ([], ["--preset", "paper"]))
    for said, rate, iterations in ((ours, "0.0002", "12000"), (papers, "0.0001", "100000")):
        assert f"Initial learning rate. (default: {rate})" in said
        assert f"one batch and one update each. (default: {iterations})" in said
    assert "--programs.count" not in nsm("train", "copy", "--model", "ntm", "--help").out
    assert "--memory.decay" in nsm("train", "copy", "--memory", "lrua", "--help").out


@pytest.mark.parametrize("preset", names.PRESETS)
@pytest.mark.parametrize("name", [*names.RECIPES, "copy+priority-sort", "omniglot-10", "babi-1,4"])
def test_a_dry_run_prints_the_whole_experiment_and_begins_nothing(nsm, tmp_path, monkeypatch, name, preset):
    monkeypatch.chdir(tmp_path)
    said = nsm("train", name, "--preset", preset, "--seed", 3, "--iterations", 8_000, "--dry-run")
    assert said.code == 0, said.err
    expected = recipes.find(name)(preset=preset, seed=3)
    expected = replace(expected, schedule=replace(expected.schedule, iterations=8_000))
    assert tree.from_json(Experiment, json.loads(said.out)) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", OTHERS)
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
