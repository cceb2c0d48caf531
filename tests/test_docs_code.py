"""What documents say can be done can be done: their Python runs, their commands are parsed and point at what exists."""

import os
import re
import shlex
import subprocess
import sys
from string import Template

import pytest

from nsm.checks import UserError
from nsm.commands import COMMANDS, train
from nsm.commands.near import parse
from nsm.experiments.paper import EXPERIMENTS, cells
from pages import DOCUMENTS, ROOT, blocks, name, prose, read

NSM = ("nsm", "./nsm")


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs_as_it_stands(code, tmp_path):
    """In a process of its own: documents are read by people who start anew."""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def commands(text):
    """The commands of a shell block as words, with the variables that the block sets before."""
    known = {}
    for line in text.splitlines():
        words = shlex.split(Template(line).safe_substitute(known), comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):  # NAME=value, alone or before a command
            key, _, value = words.pop(0).partition("=")
            known[key] = value
        if words:
            yield words


def arguments(words):
    """What a command hands to nsm; None if it does not call it."""
    if words[0] in NSM:
        return words[1:]
    return words[words.index("nsm") + 1 :] if words[0] == "torchrun" else None


def check(given):
    """Parse as the command line does; of training print the experiment, as --dry-run does."""
    command, *rest = given
    if command == "train":
        if "--start" in rest and not (ROOT / rest[rest.index("--start") + 1]).exists():
            place = rest.index("--start")
            del rest[place : place + 2]  # a run that the page makes before
        train.main([*rest, "--dry-run"])
        return
    if command not in COMMANDS:
        raise UserError(f"there is no command {command}")
    options = parse(COMMANDS[command], f"nsm {command}", rest)
    if command == "reproduce" and options.experiment not in ("all", "params"):
        for only in (options.only or "").split(","):
            assert cells(options.experiment, options.preset, only or None)


@pytest.mark.parametrize("text", blocks("bash"))
def test_commands_are_parsed_and_their_files_exist(text, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    found = list(commands(text))
    assert found
    for words in found:
        if (given := arguments(words)) is not None:
            check(given)
        for word in words:
            if word.startswith(("results/", "scripts/", "examples/", "tests/")):
                assert (ROOT / word).exists(), word


def inline(document):
    """Commands within sentences and tables; those with placeholders only by their names."""
    for span in re.findall(r"`((?:\./)?nsm [a-z][^`]*)`", " ".join(prose(document).split())):
        words = shlex.split(span)
        yield words[:2] if re.search(r"…|\||\b[A-Z]+\b", span) else words


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_in_sentences_are_parsed(document, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    for words in inline(document):
        assert words[1] in COMMANDS, words
        if len(words) > 2 and "--help" not in words and document.name != "results.md":
            check(words[1:])


@pytest.mark.parametrize(
    "line",
    [
        "nsm trian copy",
        "nsm train coppy",
        "nsm train copy --iteratoins 3",
        "nsm train copy --task.length long",
        "nsm eval runs/copy --lenght 3",
        "nsm reproduce single --only copy/mann",
        "X=copy+copi\nnsm train $X",
    ],
)
def test_a_wrong_command_is_found(line, capsys):
    (words,) = commands(line)
    with pytest.raises((UserError, SystemExit)):  # tyro leaves by itself where a value is of another type
        check(arguments(words))


def test_experiments_have_their_names():
    assert {"single", "fewshot", "babi", "factorial"} <= set(EXPERIMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_a_page_has_one_way_to_call_nsm(document):
    """./nsm where the reader is in a checkout, nsm elsewhere."""
    verbs = "|".join(COMMANDS)
    called = set(re.findall(rf"(?<![\w./-])(\./nsm|nsm) (?:{verbs})\b", read(document)))
    in_checkout = document.parent.name == "start" or document.name == "README.md"
    assert called <= ({"./nsm"} if in_checkout else {"nsm"})


def test_the_shipped_command_is_the_one_of_this_package(tmp_path):
    """`nsm` after installation: the entry point beside this Python."""
    entry = os.path.join(os.path.dirname(sys.executable), "nsm")
    ran = subprocess.run([entry, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("nsm ")
