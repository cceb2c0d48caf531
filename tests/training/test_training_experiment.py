"""An experiment: nonsense is refused with a sentence, and what is written is what is read."""

import json
import math
import sys
from dataclasses import dataclass, fields, replace

import pytest
import torch

from nsm import DNC, NTM, NUTM, Controller, MachineConfig
from nsm.checks import UserError
from nsm.experiments import recipes
from nsm.tasks import Copy, Task
from nsm.training.curriculum import OneByOne
from nsm.training.experiment import Experiment, Optimiser, Schedule
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from nsm.tree import from_json, to_json
from training.small_runs import TASK, continual, small

NAMES = [*recipes.RECIPES, "copy+priority-sort", "omniglot-10", "babi-1", "babi-1,4"]


@dataclass(frozen=True)
class Mine(Copy):
    """A task of the user's own."""

    extra: int = 3


# --- nonsense ---------------------------------------------------------------------------------------------------------


def refused(match, make):
    with pytest.raises(UserError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "iterations must be an integer of at least 1, was 0"),
        ({"iterations": 1.5}, "iterations must be an integer"),
        ({"iterations": True}, "iterations must be an integer"),
        ({"iterations": 1 << 32}, "iterations must be below 4,294,967,296"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"log_every": 0}, "log_every must be"),
        ({"evaluate_every": 0}, "evaluate_every must be"),
        ({"validation_sequences": 0}, "validation_sequences must be"),
        ({"test_sequences": 0}, "test_sequences must be"),
        ({"checkpoint_every": 0}, "checkpoint_every must be"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be"),
        ({"stop_when_solved": -1}, "stop_when_solved must be"),
        ({"cell_noise": -0.1}, "cell_noise must be at least 0, was -0.1"),
        ({"cell_noise": math.nan}, "cell_noise must be at least 0, was nan"),
        ({"cell_noise": "some"}, "cell_noise must be at least 0, was 'some'"),
        ({"curriculum": "one by one"}, "curriculum must be of type Curriculum or None, was str"),
        ({"curriculum": OneByOne}, "curriculum must be of type Curriculum or None"),
        ({"key_loss": math.inf}, "key_loss must be at least 0, was inf"),
        ({"rewind": -0.1}, "rewind must be at least 0, was -0.1"),
        ({"wiped_steps": 2}, "wiped_steps must be 0 unless memory is persistent, was 2"),
        ({"persistent": True, "random_slots": True}, "persistent and random_slots can't be combined"),
        ({"curriculum": OneByOne(), "stop_when_solved": 1}, "stop_when_solved must be 0 for continual learning"),
        ({"curriculum": OneByOne(), "rewind": 0.1}, "rewind must be 0 for continual learning"),
    ],
    ids=str,
)
def test_a_schedule_that_makes_no_sense(changes, message):
    refused(message, lambda: Schedule(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "adagrad"}, "did you mean 'adam'"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number above 0"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"clip": -1.0}, "clip must be"),
        ({"momentum": 1.5}, "momentum must be between 0 and 1, was 1.5"),
        ({"alpha": -0.1}, "alpha must be between 0 and 1"),
        ({"alpha": "x"}, "alpha must be between 0 and 1"),
        ({"final_rate": math.nan}, "final_rate must be between 0 and 1"),
        ({"kind": "adam", "beta2": 1.0}, "beta2 must be below 1 with adam"),
    ],
    ids=str,
)
def test_an_optimiser_that_makes_no_sense(changes, message):
    refused(message, lambda: Optimiser(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0, was -1"),
        ({"seed": 1 << 32}, "seed must be below 4,294,967,296"),
        ({"seed": 0.5}, "seed must be an integer"),
        ({"processes": 0}, "processes must be an integer of at least 1, was 0"),
        ({"task": "copy"}, "task must be of type Task, was str"),
        ({"task": Copy}, "task must be of type Task"),
        ({"machine": Controller()}, "machine must be of type MachineConfig, was Controller"),
        ({"optimiser": torch.optim.Adam}, "optimiser must be of type Optimiser"),
        ({"schedule": 100}, "schedule must be of type Schedule, was int"),
        ({"processes": 3}, "batch_size must be at least 1 for each of the 3 processes, was 2"),
        ({"processes": 2, "persistent": True}, "persistent memory needs a single process"),
        ({"curriculum": OneByOne()}, "a curriculum needs a mixture of tasks"),
    ],
    ids=str,
)
def test_an_experiment_that_makes_no_sense(changes, message):
    refused(message, lambda: small(**changes))


def test_a_machine_in_place_of_its_configuration():
    machine = NUTM(4, 2, memory=NTM(8, 4))
    refused("machine must be of type MachineConfig, was NUTM", lambda: small(machine=machine))


def test_noise_on_a_cell_needs_a_cell():
    machine = replace(small().machine, controller=Controller("gru", 8))
    refused("cell_noise needs an lstm controller, was 'gru'", lambda: small(machine=machine, cell_noise=0.1))


def test_a_machine_of_other_sizes_than_the_task_or_its_test_or_what_is_validation():
    small().check()
    wider = replace(small().machine, input_size=5)
    refused("^copy has 4 inputs and 2 outputs, the machine 5 and 2", small(machine=wider).check)
    other = replace(TASK, test=Copy(width=3))
    refused("^the test of copy has 5 inputs and 3 outputs, the machine 4 and 2", small(task=other).check)
    other = replace(TASK, validation=Copy(width=3))
    refused("^the validation of copy has 5 inputs and 3 outputs, the machine 4 and 2", small(task=other).check)


def test_it_is_frozen_and_has_a_name():
    experiment = small()
    assert (experiment.name, small(programs=None).name) == ("copy, nutm", "copy, ntm")
    with pytest.raises(AttributeError):
        experiment.seed = 3
    assert hash(experiment) == hash(small())


# --- as JSON ----------------------------------------------------------------------------------------------------------


def through_a_file(tree):
    return json.loads(json.dumps(tree, allow_nan=False))


@pytest.mark.parametrize("preset", ["default", "paper", "authors"])
@pytest.mark.parametrize("model", ["nutm", "ntm", "mann", "dnc"])
@pytest.mark.parametrize("name", NAMES)
def test_every_recipes_experiment_comes_back(name, model, preset):
    experiment = recipes.find(name)(model, preset, seed=3)
    tree = through_a_file(to_json(experiment))
    found = from_json(Experiment, tree)
    assert found == experiment
    assert to_json(found) == to_json(experiment)


@pytest.mark.parametrize(
    "experiment", [small(), continual(8), small(task=Mine(width=2))], ids=["small", "several", "mine"]
)
def test_a_run_has_the_experiment_it_was_started_with(tmp_path, experiment):
    run = RunDirectory(tmp_path)
    with run.opened(experiment):
        pass
    assert run.experiment == experiment
    run.check(experiment)


@pytest.mark.parametrize("place", [(), ("optimiser",), ("schedule",), ("machine",), ("machine", "memory"), ("task",)])
def test_a_field_that_a_file_does_not_have_takes_the_default(place):
    tree = through_a_file(to_json(small(cell_noise=0.3, seed=7)))
    node, part = tree, small(cell_noise=0.3, seed=7)
    for name in place:
        node, part = node[name], getattr(part, name)
    for field in fields(part):
        if field.name in node and field.name not in ("task", "machine", "input_size", "output_size", "test", "width"):
            del node[field.name]
    found = from_json(Experiment, tree)
    for name in place:
        found = getattr(found, name)
    for field in fields(part):
        if field.name not in node:
            default = type(part)(**{n: getattr(part, n) for n in node if n != "kind"})
            assert getattr(found, field.name) == getattr(default, field.name), field.name


def test_what_has_no_default_must_be_there():
    for name in ("task", "machine"):
        tree = to_json(small())
        del tree[name]
        refused(f"config.{name} is missing", lambda tree=tree: from_json(Experiment, tree))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree["task"].update(kind="Cpoy"), "config.task.kind must be one of .*did you mean 'Copy'"),
        (lambda tree: tree["task"].update(kind="NTM"), "config.task.kind must be one of"),
        (lambda tree: tree["task"].update(kind=3), "config.task.kind must be one of"),
        (lambda tree: tree["task"].pop("kind"), "config.task.kind must be one of"),
        (lambda tree: tree["machine"]["memory"].update(kind="Copy"), "config.machine.memory.kind must be one of"),
        (lambda tree: tree["schedule"].update(curriculum={"kind": "Slow"}), "curriculum.kind must be one of"),
        (lambda tree: tree["optimiser"].update(rate=1), "a field of config.optimiser must be one of .* was 'rate'"),
        (lambda tree: tree.update(seed="1"), "config.seed must be int, was '1'"),
        (lambda tree: tree.update(schedule=[]), r"config.schedule must be an object, was \[\]"),
        (lambda tree: tree["task"].update(length=[1]), "config.task.length must have 2 entries, had 1"),
        (lambda tree: tree["schedule"].update(iterations=0), "iterations must be an integer of at least 1"),
    ],
    ids=[
        *("misspelt", "a memory", "a number", "none", "a task", "curriculum", "field", "text", "list", "short", "zero")
    ],
)
def test_what_is_not_known_is_refused_with_one_sentence(change, message):
    tree = to_json(small())
    change(tree)
    refused(message, lambda: from_json(Experiment, tree))


# --- classes of the user's own ----------------------------------------------------------------------------------------


def test_a_class_of_ones_own_is_named_by_its_module():
    tree = to_json(small(task=Mine(width=2)))
    assert tree["task"]["kind"] == f"{__name__}:Mine"
    assert tree["machine"]["memory"]["kind"] == "NTM"
    assert from_json(Experiment, tree).task == Mine(width=2)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("antigravity:Flight", r"import antigravity first \(--import antigravity\)"),
        ("os:system", "os has no such Task"),
        ("sys:modules.clear", "sys has no such Task"),
        ("nsm.memories:NTM", "nsm.memories has no such Task"),
        (":Copy", "which is not part of nsm"),
        ("nsm.tasks:", "nsm.tasks has no such Task"),
    ],
)
def test_nothing_is_imported_because_a_file_says_so(kind, message):
    tree = to_json(small())
    tree["task"]["kind"] = kind
    before = set(sys.modules)
    refused(message, lambda: from_json(Experiment, tree))
    assert set(sys.modules) == before


def test_a_module_that_lies_about_is_not_imported_either(tmp_path, monkeypatch):
    (tmp_path / "lying_about.py").write_text("raise SystemExit('it was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    tree = to_json(small())
    tree["task"]["kind"] = "lying_about:Task"
    refused("import lying_about first", lambda: from_json(Experiment, tree))


def test_a_class_inside_a_function_is_refused_before_anything_is_written(tmp_path):
    @dataclass(frozen=True)
    class Local(Copy):
        pass

    refused("Local is defined inside a function", lambda: to_json(small(task=Local(width=2))))
    refused("Local is defined inside a function", lambda: train(small(task=Local(width=2)), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Odd(Copy):
    """Has a field that no file can have."""

    extra: object = None


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (small(random_slots=1), "experiment.schedule.random_slots must be bool, was 1"),
        (small(task=Odd(width=2, extra={1})), "experiment.task.extra must be a number, string"),
        (small(task=Mine(width=2, extra="x")), "experiment.task.extra must be int, was 'x'"),
        (small(optimiser=Optimiser(momentum=True)), "experiment.optimiser.momentum must be float, was True"),
    ],
    ids=["no truth value", "a set", "no number", "no share"],
)
def test_what_could_not_be_read_again_is_not_begun(tmp_path, experiment, message):
    """Or it could not be resumed, nor opened."""
    refused(message, lambda: train(experiment, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_what_json_does_not_have_is_refused_when_written():
    @dataclass
    class Any:
        value: object

    for value in (math.nan, math.inf, {1, 2}, b"bytes", Task):
        refused("config.value must be a", lambda value=value: to_json(Any(value)))


def test_kinds_differ_where_trees_are_alike():
    """A DNC and an NTM of one size are not the same node."""
    one, other = (to_json(MachineConfig(3, 2, memory=memory(4, 4))) for memory in (NTM, DNC))
    assert one["memory"]["kind"] != other["memory"]["kind"]
    assert isinstance(from_json(MachineConfig, through_a_file(other)).memory, DNC)


def test_the_learning_rate_rises_and_falls():
    schedule = Schedule(iterations=100)
    constant = Experiment(Copy(), MachineConfig(10, 8), Optimiser(learning_rate=1.0, final_rate=0.5), schedule)
    assert [constant.rate(step) for step in (0, 50, 100)] == [1.0, 0.75, 0.5]
    rising = replace(constant, optimiser=replace(constant.optimiser, warm_up=10, final_rate=1.0))
    assert [rising.rate(step) for step in (0, 4, 9, 50)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    refused("warm_up must be an integer", lambda: Optimiser(warm_up=-1))
