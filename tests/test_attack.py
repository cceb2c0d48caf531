"""The attack command: a short one finds nothing, and a longer one would find what is planted."""

import importlib.util
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from nsm.training import checkpoints
from nsm.training.run import RunDirectory

SCRIPT = Path(__file__).parents[1] / "scripts" / "attack.py"


@pytest.fixture(scope="module")
def script():
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location("attack", SCRIPT)
    module = sys.modules["attack"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path
    for name in ("attack", "attack_cases", "attack_child", "attack_world", "mutations"):
        del sys.modules[name]


@pytest.fixture(scope="module")
def unharmed(script, tmp_path_factory):
    """The files that are mutated, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSM_DATA", os.environ["NSM_DATA"])
        yield script.Attack(tmp_path_factory.mktemp("attack"))


@pytest.fixture
def attack(unharmed):
    """Nothing counted yet, and the usual budgets."""
    unharmed.failures, unharmed.count, unharmed.refused, unharmed.accepted = [], 0, 0, 0
    unharmed.seconds, unharmed.memory = 60.0, 1024 << 20
    return unharmed


@pytest.fixture
def evaluation_of(attack, script, tmp_path):
    """A case that evaluates a run nobody harmed, or does to it what one likes."""

    def prepare(**changes):
        place = tmp_path / f"case-{attack.count}"
        attack.world.copy("run", place / "work")
        return script.Child(0, script.Attempt("unharmed", script.EVAL, **changes), place, attack.seconds)

    return prepare


def instead_of_reading(monkeypatch, function):
    """What happens where a command reads what a run was."""
    monkeypatch.setattr(RunDirectory, "experiment", property(function))


def found(attack):
    return [failure.what for failure in attack.failures]


def test_files_of_any_kind_are_refused_or_harmless(attack):
    children = map(attack.prepare, range(120))
    attack.run(children)
    assert attack.weaknesses() == []
    assert attack.count > 110
    assert attack.refused > attack.accepted > 0


def contents(place):
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file() and path.lstat().st_size < 1 << 20}


def test_a_case_is_the_same_whenever_it_is_made(attack, script):
    for number in range(len(script.TURNS)):
        made = []
        for _ in range(2):
            child = attack.prepare(number)
            made.append((child.attempt, contents(child.place)))
            shutil.rmtree(child.place)
        assert made[0] == made[1]


def test_an_exception_is_counted(attack, evaluation_of, monkeypatch):
    instead_of_reading(monkeypatch, lambda run: {}["task"])
    attack.run([evaluation_of()])
    assert found(attack) == ["traceback"]
    assert "KeyError: 'task'" in attack.failures[0].reason
    assert "1 tracebacks, 0 hangs, 0 over 1,024 MiB, 0 changed outputs" in attack.summary()


def test_a_process_that_dies_is_counted(attack, evaluation_of, monkeypatch):
    instead_of_reading(monkeypatch, lambda run: os.kill(os.getpid(), signal.SIGKILL))
    attack.run([evaluation_of()])
    assert found(attack) == ["traceback"]
    assert "died with -9" in attack.failures[0].reason


def test_a_hang_is_counted_and_ended(attack, evaluation_of, monkeypatch):
    instead_of_reading(monkeypatch, lambda run: time.sleep(600))
    attack.seconds = 0.5
    attack.run([evaluation_of()])
    assert found(attack) == ["hang"]


def test_endless_work_that_was_asked_for_is_no_hang_if_it_can_be_stopped(attack, evaluation_of, monkeypatch):
    monkeypatch.setattr("attack_child.PATIENCE", 0.5)
    instead_of_reading(monkeypatch, lambda run: time.sleep(600))
    attack.run([evaluation_of(endless=True)])
    assert found(attack) == []
    assert (attack.count, attack.refused, attack.accepted) == (1, 0, 0)


def test_memory_is_counted(attack, evaluation_of, monkeypatch):
    read = RunDirectory.experiment.fget
    instead_of_reading(monkeypatch, lambda run: (bytearray(b"x") * (400 << 20), read(run))[1])
    attack.run([evaluation_of()])
    assert found(attack) == []
    attack.memory = 200 << 20
    attack.run([evaluation_of()])
    assert found(attack) == ["memory"]


def test_other_numbers_are_counted(attack, evaluation_of, monkeypatch):
    attack.run([evaluation_of(unharmed="run")])
    assert (found(attack), attack.accepted) == ([], 1)
    load = checkpoints.load

    def doubled(path):
        found = load(path)
        return found._replace(model={name: 2 * tensor for name, tensor in found.model.items()})

    monkeypatch.setattr(checkpoints, "load", doubled)
    attack.run([evaluation_of(unharmed="run")])
    assert found(attack) == ["changed"]
