"""Trees of frozen dataclasses as JSON and back: what is written, what is refused, and what a file can't do."""

import dataclasses
import json
import subprocess
import sys
import types
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import pytest

import nsm
from nsm import DNC, LRUA, NTM, Controller, MachineConfig, MemoryConfig, Programs
from nsm.checks import UserError
from nsm.tasks import Copy, Mixture, NGrams, Omniglot, Sequencing, Task
from nsm.training.curriculum import Curriculum, InStages, OneByOne
from nsm.training.experiment import Experiment, Optimiser, Schedule
from nsm.tree import OneOf, check_fields, find, from_json, kind_of, to_json


@dataclass(frozen=True)
class Leaf:
    number: int
    share: float = 0.5


@dataclass(frozen=True)
class Node:
    """Every type that a tree may have."""

    leaf: Leaf
    name: str = "a"
    on: bool = False
    pair: tuple[int, int] = (1, 2)
    many: tuple[float, ...] = ()
    nested: tuple[tuple[int, str], ...] = ()
    leaves: tuple[Leaf, ...] = ()
    maybe: Leaf | None = None
    either: int | tuple[int, int] = 3
    number: int | None = None
    share: float | None = None
    mode: Literal["fast", "slow"] = "fast"
    level: Literal[1, 2] | None = None
    plain: tuple = ()
    texts: list[str] = field(default_factory=list)
    by_name: dict[str, float] = field(default_factory=dict)
    anything: Any = None
    derived: int = field(init=False, default=0)

    def __post_init__(self):
        object.__setattr__(self, "derived", self.leaf.number + 1)


FULL = Node(
    *(Leaf(1, 0.25), "b", True, (3, 4), (0.5, 2.0), ((1, "x"), (2, "y")), (Leaf(5), Leaf(6)), Leaf(7)),
    *((8, 9), 10, 0.75, "slow", 2, (1, "x"), ["s", "t"], {"u": 1.5}, {"v": [1, None]}),
)


@dataclass(frozen=True)
class Own(Task):
    """A task of one's own, found by its module."""

    width: int = 3

    class Inner(Copy):
        """A class in a class."""


class NoTask:
    pass


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [Node(Leaf(1)), FULL])
def test_a_node_comes_back_as_it_was(node):
    written = json.loads(json.dumps(to_json(node)))
    again = from_json(Node, written)
    assert again == node
    assert [type(value) for value in vars(again).values()] == [type(value) for value in vars(node).values()]
    assert to_json(again) == written


def test_what_is_derived_is_neither_written_nor_read():
    assert "derived" not in to_json(FULL)
    assert from_json(Node, to_json(FULL)).derived == 2
    with pytest.raises(UserError, match=r"a field of config must be one of .* was 'derived'"):
        from_json(Node, {"leaf": {"number": 1}, "derived": 9})


@pytest.mark.parametrize(
    "task",
    [
        Copy(3, (2, 5), ragged=False, test=Copy(3, (9, 9))),
        Sequencing((Copy(), Copy(width=2)), test=Sequencing((Copy(length=(4, 4)), Copy()))),
        Mixture((Copy(), NGrams()), weights=(1.0, 3.0)),
        Omniglot(10, angle=0.5),
        Own(width=5, test=Own()),
        Own.Inner(width=2),
    ],
)
@pytest.mark.parametrize("memory", [NTM(9, 4, read_heads=2), LRUA(9, 4), DNC(9, 4, links=True)])
def test_an_experiment_comes_back_as_it_was(task, memory):
    machine = MachineConfig(3, 2, Controller(size=5), memory, Programs(2))
    schedule = Schedule(7, curriculum=OneByOne() if isinstance(task, Mixture) else None)
    experiment = Experiment(task, machine, Optimiser("adam"), schedule, 4)
    again = from_json(Experiment, json.loads(json.dumps(to_json(experiment))))
    assert again == experiment
    assert hash(again) == hash(experiment)


def test_curricula_come_back_as_they_were():
    for curriculum in (OneByOne(), InStages(("qa2",), enough=0.1)):
        assert from_json(Curriculum, to_json(curriculum)) == curriculum


def test_a_field_that_is_not_there_is_what_the_class_has_by_default():
    assert from_json(Task, {"kind": "Copy", "width": 2}) == Copy(2)
    assert from_json(Leaf, {"number": 3}) == Leaf(3)
    with pytest.raises(UserError, match=r"^config\.number is missing$"):
        from_json(Leaf, {"share": 0.1})


def test_a_whole_number_may_stand_for_a_float_and_for_nothing_else():
    assert from_json(Leaf, {"number": 1, "share": 2}) == Leaf(1, 2.0)
    assert type(from_json(Leaf, {"number": 1, "share": 2}).share) is float
    for data in ({"number": 1.0}, {"number": True}, {"number": "1"}, {"number": None}, {"number": 1, "share": "2"}):
        with pytest.raises(UserError, match=r"must be (int|float), was"):
            from_json(Leaf, data)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, r"^config\.name must be str, was 3$"),
        ({"name": None}, r"^config\.name must be str, was None$"),
        ({"on": 1}, r"^config\.on must be bool, was 1$"),
        ({"pair": [1]}, r"^config\.pair must have 2 entries, had 1$"),
        ({"pair": [1, 2, 3]}, r"must have 2 entries, had 3"),
        ({"pair": [1, "2"]}, r"^config\.pair\[1\] must be int, was '2'$"),
        ({"pair": "12"}, r"^config\.pair must be .*tuple.*, was '12'$"),
        ({"pair": {"0": 1, "1": 2}}, r"^config\.pair must be"),
        ({"many": [0.5, True]}, r"^config\.many\[1\] must be float, was True$"),
        ({"nested": [[1, "x"], [2]]}, r"^config\.nested\[1\] must have 2 entries"),
        ({"leaves": [{"number": 1}, {"nmber": 2}]}, r"^a field of config\.leaves\[1\] .* did you mean 'number'"),
        ({"maybe": 3}, r"^config\.maybe must be an object, was 3$"),
        ({"either": "3"}, r"^config\.either must be int or .*was '3'$"),
        ({"either": [1, 2, 3]}, r"^config\.either must have 2 entries"),
        ({"number": 1.5}, r"^config\.number must be int, was 1.5$"),
        ({"share": "x"}, r"^config\.share must be float, was 'x'$"),
        ({"share": 10**400}, r"^config\.share must be float, was 1000"),
        ({"mode": "fas"}, r"^config\.mode must be .*fast.*slow.*, was 'fas'$"),
        ({"mode": ["fast"]}, r"^config\.mode must be"),
        ({"level": 3}, r"^config\.level must be"),
        ({"level": True}, r"^config\.level must be"),
        ({"texts": ["a", 1]}, r"^config\.texts\[1\] must be str, was 1$"),
        ({"by_name": {"u": "v"}}, r"^config\.by_name\.u must be float, was 'v'$"),
        ({"by_name": ["u"]}, r"^config\.by_name must be"),
        ({"leaf": None}, r"^config\.leaf must be an object, was None$"),
        ({"leaf": {}}, r"^config\.leaf\.number is missing$"),
        ({"nam": "x"}, r"^a field of config must be one of .*, was 'nam'; did you mean 'name'\?$"),
        ({"kind": "Node"}, r"^a field of config must be one of .*, was 'kind'"),
        ({"x" * 10_000: 1}, r"^a field of config must be one of .{,400}, was 'x{120}…'"),
    ],
)
def test_data_of_other_types_are_refused(changes, message):
    with pytest.raises(UserError, match=message) as refused:
        from_json(Node, {"leaf": {"number": 1}, **changes})
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("data", [None, 3, "x", [], True])
def test_a_node_is_an_object(data):
    with pytest.raises(UserError, match=r"^config must be an object, was"):
        from_json(Leaf, data)


def test_what_a_class_refuses_itself_it_refuses_in_a_file_too():
    with pytest.raises(UserError, match=r"Copy.length is \(3, 1\)"):
        from_json(Task, {"kind": "Copy", "length": [3, 1]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"^config\.share must be a finite number to be written, was nan"),
        (float("inf"), r"^config\.share must be a finite number"),
        (object(), r"^config\.share must be a number, string, bool"),
        (Leaf, r"^config\.share must be a number, string, bool"),
        ({1, 2}, r"^config\.share must be a number, string, bool"),
        ({1: 2}, r"^config\.share must be a number, string, bool"),
        (b"x", r"^config\.share must be a number, string, bool"),
        ((1, [2, float("nan")]), r"^config\.share\[1\]\[1\] must be a finite number"),
        ({"a": object()}, r"^config\.share\.a must be"),
        (len, r"^config\.share must be"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(value, message):
    with pytest.raises(UserError, match=message) as refused:
        to_json(Leaf(1, value))
    assert len(str(refused.value)) < 300


# --- kinds ------------------------------------------------------------------------------------------------------------


def test_ours_go_by_their_name_and_others_by_module_and_class():
    assert (kind_of(Copy), kind_of(NTM), kind_of(OneByOne)) == ("Copy", "NTM", "OneByOne")
    assert kind_of(Own) == f"{__name__}:Own"
    assert kind_of(Own.Inner) == f"{__name__}:Own.Inner"
    assert to_json(Own())["kind"] == f"{__name__}:Own"
    assert "kind" not in to_json(Leaf(1))
    assert find(Task, f"{__name__}:Own.Inner", "task") is Own.Inner
    assert find(MemoryConfig, "DNC", "memory") is DNC


def test_a_class_in_a_function_could_not_be_found_again():
    class Local(Copy):
        pass

    with pytest.raises(UserError, match="is defined inside a function: define it at the top level of a module"):
        to_json(Local())


def test_another_class_of_the_same_name_is_not_ours(monkeypatch):
    module = types.ModuleType("elsewhere")
    exec("from nsm.tasks import Task\nclass Copy(Task): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    assert find(Task, "Copy", "task") is Copy
    assert find(Task, "elsewhere:Copy", "task") is module.Copy is not Copy
    assert type(from_json(Task, to_json(module.Copy()))) is module.Copy


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (None, r"^config\.kind must be one of .*'Copy'.* was 'None'"),
        (3, r"^config\.kind must be one of"),
        (["Copy"], r"^config\.kind must be one of"),
        ({"kind": "Copy"}, r"^config\.kind must be one of"),
        ("", r"^config\.kind must be one of"),
        ("Copi", r"did you mean 'Copy'"),
        ("NTM", r"^config\.kind must be one of"),
        ("Task", r"^config\.kind must be one of"),
        ("PhasedTask", r"^config\.kind must be one of"),
        ("x" * 10_000, r"x…'"),
        (":", r"which is not part of nsm"),
        ("no_such_module:Task", r"import no_such_module first \(--import no_such_module\)"),
        ("x" * 10_000 + ":Task", r"import x{120}… first"),
        ("os:system", r"os has no such Task"),
        ("os:path.join", r"os has no such Task"),
        ("builtins:eval", r"builtins has no such Task"),
        ("builtins:object", r"builtins has no such Task"),
        ("nsm.memories:NTM", r"nsm.memories has no such Task"),
        ("nsm.tasks.task:PhasedTask", r"nsm.tasks.task has no such Task"),
        ("nsm.tasks.copy:Copy.make_phases", r"has no such Task"),
        ("nsm.tasks.copy:Copy.__class__", r"has no such Task"),
        ("nsm.tasks.copy:Copy..", r"has no such Task"),
        ("nsm.tasks.copy:", r"has no such Task"),
        ("test_tree:NoTask", r"which is not part of nsm"),
        ("__main__:Gone", r"define it again, or train with a class in a module"),
    ],
)
def test_hostile_kinds_are_refused_in_a_sentence(kind, message):
    with pytest.raises(UserError, match=message) as refused:
        from_json(Task, {"kind": kind})
    assert len(str(refused.value)) < 600


def test_nothing_is_imported_or_run_because_a_file_says_so(monkeypatch):
    """Not even by a module that imports what it is asked for, or an attribute that is computed."""
    ran = []

    class Computed(type):
        @property
        def found(cls):
            ran.append("a property")
            return Copy

    module = types.ModuleType("lazy")
    module.__getattr__ = lambda name: ran.append(name) or Copy
    module.Holder = Computed("Holder", (), {})
    module.instance = types.SimpleNamespace(Copy=Copy)
    monkeypatch.setitem(sys.modules, "lazy", module)
    for kind in ("lazy:Copy", "lazy:Holder.found", "lazy:instance.Copy"):
        with pytest.raises(UserError, match="lazy has no such Task"):
            from_json(Task, {"kind": kind})
    assert ran == []
    loaded = set(sys.modules)
    for kind in ("antigravity:Task", "nsm.no:Task", "xml.dom.minidom.no:Task"):
        with pytest.raises(UserError, match="import"):
            from_json(Task, {"kind": kind})
    assert set(sys.modules) == loaded


def test_a_tree_that_is_too_deep_is_refused():
    data = {"kind": "Copy"}
    for _ in range(300):
        data = {"kind": "Copy", "test": data}
    with pytest.raises(UserError, match="is nested too deep"):
        from_json(Task, data)


SCRIPT = """
from dataclasses import dataclass
import nsm
from nsm.tree import from_json, kind_of, to_json

@dataclass(frozen=True)
class Mine(nsm.Task):
    width: int = 3

if __name__ == "__main__":
    print(kind_of(Mine))
    again = from_json(nsm.Task, to_json(Mine(4)))
    assert again == Mine(4) and type(again) is Mine
"""


@pytest.mark.parametrize(
    ("command", "name"),
    [(["my_script.py"], "my_script"), (["-m", "my_script"], "my_script"), (["-c", SCRIPT], "__main__")],
)
def test_a_class_of_a_script_that_is_run_goes_by_the_scripts_name(command, name, tmp_path):
    """So that others who import the script find it; at a prompt and in a notebook there is no such name."""
    (tmp_path / "my_script.py").write_text(SCRIPT)
    ran = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == f"{name}:Mine"
    if name != "__main__":
        read = f"import my_script, nsm, nsm.tree; print(nsm.tree.from_json(nsm.Task, {{'kind': '{name}:Mine'}}).width)"
        ran = subprocess.run([sys.executable, "-c", read], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "3"


# --- typed dictionaries -----------------------------------------------------------------------------------------------


class Line(TypedDict, total=False):
    step: int
    figures: dict[str, float]


class Needed(TypedDict):
    step: int


def test_a_typed_dictionary_is_checked_as_it_is():
    line = {"step": 3, "figures": {"loss": 0.5}}
    assert check_fields(Line, line, "line") is line
    assert check_fields(Line, {}, "line") == {}
    for data, message in (
        ([], "line must be an object"),
        ({"step": "3"}, r"line\.step must be int"),
        ({"figures": {"loss": "x"}}, r"line\.figures\.loss must be float"),
        ({"stp": 3}, "did you mean 'step'"),
    ):
        with pytest.raises(UserError, match=message):
            check_fields(Line, data, "line")
    with pytest.raises(UserError, match=r"line\.step is missing"):
        check_fields(Needed, {}, "line")


def test_what_stands_for_another_is_one_of_them():
    assert issubclass(nsm.Task, OneOf)
    assert issubclass(nsm.MemoryConfig, OneOf)
    assert not issubclass(Experiment, OneOf)
    assert dataclasses.is_dataclass(Experiment)
