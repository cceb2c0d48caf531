import contextlib
import io
from collections import namedtuple

import pytest

from nsm.cli import main

Said = namedtuple("Said", "code out err")
MACHINE = ["--controller.size", "8", "--memory.slots", "16", "--memory.width", "4"]
TINY = [*MACHINE, "--validation-sequences", "4", "--test-sequences", "4"]


def call(*arguments):
    """A command in this process: its exit code, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as leaving:
            code = leaving.code or 0
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture
def nsm():
    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run of a tiny machine. Not to be changed."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    options = ["--iterations", "4", "--evaluate-every", "2", "--log-every", "2"]
    said = call("train", "copy", *TINY, *options, "--out", directory)
    assert said.code == 0, said.err
    return directory


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path_factory, monkeypatch):
    """What a command writes without being told where lands here."""
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
