"""Imports go one way: which room may import which, and which packages it may need."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import nsm

SOURCE = Path(nsm.__file__).parent


class Room(NamedTuple):
    """A module or a package right under nsm."""

    rooms: str = ""
    """which others it may import"""
    packages: str = ""
    """which packages, besides the standard library"""


# From the ground up. A file below a package is in its room; a new room gets a line here.
ROOMS = {
    "version": Room(),
    "names": Room(),
    "system": Room(),
    "checks": Room("system"),
    "files": Room("checks system"),
    "documents": Room("files"),
    "tree": Room("checks"),
    # Tasks: without the model, and without a compiler.
    "data": Room("checks files", "numpy torch PIL pooch"),
    "tasks": Room("checks tree data", "numpy torch"),
    # The model.
    "similarity": Room("", "torch"),
    "pytree": Room("checks", "torch"),
    "plots": Room("", "numpy matplotlib"),
    "trace": Room("checks pytree plots", "torch"),
    "controllers": Room("checks", "torch"),
    "memories": Room("checks tree similarity", "torch"),
    "precision": Room("", "torch"),
    "attention": Room("similarity", "torch"),
    "programs": Room("attention checks similarity precision", "torch"),
    "stored_modules": Room("attention checks precision programs", "torch"),
    "state_programs": Room("controllers programs stored_modules", "torch"),
    "description": Room("controllers memories programs"),
    "operands": Room("controllers memories programs state_programs", "torch"),
    "pretrained": Room("checks files documents tree", "torch safetensors"),
    "fused": Room(
        "attention system checks files similarity controllers memories programs description",
        "numpy torch numba llvmlite",
    ),
    "config": Room("checks controllers memories programs"),
    "state": Room("pytree controllers", "torch"),
    "arguments": Room("checks pytree config state", "numpy torch"),
    "familiarity": Room("", "torch"),
    "backends": Room("checks operands fused state", "torch"),
    "network": Room(
        "attention names checks pytree trace controllers memories programs state_programs description operands config "
        "state arguments",
        "torch",
    ),
    "hub": Room("checks config documents pretrained", "huggingface_hub"),
    "saved": Room("config hub pretrained", "torch"),
    "repertoire": Room("checks arguments config familiarity network saved state", "torch"),
    "interventions": Room("checks memories network state", "torch"),
    "machine": Room(
        "checks pytree trace controllers memories programs operands pretrained config state arguments backends network "
        "repertoire interventions hub saved",
        "torch",
    ),
    "sizes": Room("checks pytree config machine", "torch"),
    # What is done with both.
    "training": Room(
        "version system checks files documents tree pytree programs pretrained fused machine repertoire sizes tasks",
        "numpy torch safetensors wandb",
    ),
    "loading": Room("names checks documents pretrained machine training"),
    "optim": Room("checks fused", "torch"),
    "experiments": Room(
        "names system checks files documents tree data controllers memories programs machine sizes tasks training",
        "numpy torch scipy ray",
    ),
    "reports": Room(
        "names checks files tree operands plots machine tasks training experiments",
        "numpy torch matplotlib",
    ),
    "bench": Room(
        "checks pytree plots similarity memories operands fused machine tasks training experiments reports",
        "numpy torch numba matplotlib jax",
    ),
    "screen": Room("checks", "rich"),
    "bar": Room("checks screen tasks training", "rich"),
    "run": Room("checks machine sizes tasks training reports", "numpy pandas"),
    "api": Room("checks machine tasks training experiments reports run", "torch"),
    # All public names, each found where it is when it is first used.
    "nsm": Room(
        "version checks tasks controllers memories programs stored_modules interventions machine training loading "
        "optim experiments reports bar run api"
    ),
    "commands": Room(
        "names system checks tree data plots machine tasks training experiments bench reports screen bar run",
        "numpy torch tyro rich",
    ),
    "cli": Room("version system checks training commands", "tyro"),
    "__main__": Room("cli"),
}
MODEL = (
    *("similarity", "pytree", "plots", "trace", "controllers", "memories"),
    *("attention", "precision", "programs", "stored_modules", "state_programs"),
    *("description", "operands", "pretrained", "fused"),
    *("config", "state", "arguments", "backends", "network", "interventions", "hub", "machine", "sizes"),
    *("familiarity", "repertoire", "saved"),
)
BY_NAME = {("nsm", "__getattr__"), ("nsm.commands.options", "load_plugins")}
"""The functions that import by name: what type checkers see as imports, and what the user asks for."""


class Found(NamedTuple):
    """An import: "nsm/machine.py:355"."""

    place: str
    module: str
    """who imports"""
    name: str
    """what"""


def modules(source: Path) -> dict[str, Path]:
    """Every module of the package in `source` by its name; a package's name is that of its `__init__`."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: Path) -> Iterator[Found]:
    """All imports, wherever they stand: at the top, in a function, for the type checker only.

    `from nsm import pytree` is an import of nsm.pytree. That Python runs the `__init__` of every package above what is
    imported is not counted: those would be cycles of nearly everything.
    """
    known = modules(source)
    for module, path in known.items():
        tree = ast.parse(path.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and (module, n.name) in BY_NAME]
        by_name = {inner for function in functions for inner in ast.walk(function)}
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: a relative import"
                longer = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in known else str(node.module) for name in longer]
            elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
                called = {ast.Name: "id", ast.Attribute: "attr", ast.alias: "name"}[type(node)]
                hidden = getattr(node, called) in ("__import__", "import_module")
                assert not hidden or node in by_name, f"{path}:{node.lineno}: an import that can't be read off"
            for name in names:
                yield Found(f"{path.relative_to(source.parent)}:{node.lineno}", module, name)


def room(module: str) -> str:
    """The room of a module: fused for nsm.fused.layout, and nsm for nsm itself."""
    return module.split(".")[1] if "." in module else module


def is_ours(name: str) -> bool:
    return name.split(".")[0] == "nsm"


def trespasses(source: Path) -> list[str]:
    """The imports that ROOMS does not allow."""
    found = []
    for place, module, name in imports(source):
        here, package = room(module), name.split(".")[0]
        if is_ours(name):
            allowed = room(name) in (here, *ROOMS[here].rooms.split())
        else:
            allowed = package in sys.stdlib_module_names or package in ROOMS[here].packages.split()
        if not allowed:
            found.append(f"{place}: {here} must not import {name}")
    return found


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """One that is in the graph, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def cycle_of_modules(source: Path) -> list[str]:
    graph: dict[str, set[str]] = {}
    for _, module, name in imports(source):
        if is_ours(name):
            graph.setdefault(module, set()).add(name)
    return cycle(graph)


def loaded_by(module: str) -> set[str]:
    """The modules that a fresh Python has after importing one."""
    return loaded_after(f"import {module}")


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh Python has after running some code."""
    code = f"import sys, nsm\n{code}\nprint(nsm.__file__, *sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    file, *names = done.stdout.splitlines()
    assert Path(file).resolve() == Path(nsm.__file__).resolve()
    return set(names)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_file_is_in_a_room():
    assert {room(module) for module in modules(SOURCE)} == set(ROOMS)
    for name, (rooms, _) in ROOMS.items():
        assert set(rooms.split()) <= set(ROOMS) - {name}


def test_rooms_lie_above_one_another():
    """The table is written from the ground up, so there is no cycle in it."""
    names = list(ROOMS)
    for index, name in enumerate(names):
        assert set(ROOMS[name].rooms.split()) <= set(names[:index]), f"{name} imports what is above it"


def test_tasks_know_no_model_and_the_model_knows_no_task():
    everything_below = {}
    for name, (rooms, _) in ROOMS.items():
        everything_below[name] = set(rooms.split()).union(*(everything_below[other] for other in rooms.split()))
    for name in ("data", "tasks"):
        assert everything_below[name].isdisjoint(MODEL)
    for name in MODEL:
        assert everything_below[name] <= {"names", "system", "checks", "files", "documents", "tree", *MODEL}
    assert everything_below["fused"].isdisjoint({"machine", "operands"})


def test_the_model_needs_few_packages():
    extra = {name: set(ROOMS[name].packages.split()) - {"numpy", "torch"} for name in MODEL}
    assert {name: packages for name, packages in extra.items() if packages} == {
        "plots": {"matplotlib"},
        "pretrained": {"safetensors"},
        "fused": {"numba", "llvmlite"},
        "hub": {"huggingface_hub"},
    }


# --- the sources ------------------------------------------------------------------------------------------------------


def test_imports_are_those_that_the_table_allows():
    assert trespasses(SOURCE) == []


def test_no_module_imports_itself_through_others():
    assert cycle_of_modules(SOURCE) == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("nsm", ("torch", "numpy", "nsm.machine", "nsm.data", "nsm.tasks", "nsm.training", "rich", "tyro")),
        ("nsm.loading", ("numba", "nsm.fused", "nsm.data", "nsm.tasks", "nsm.training", "matplotlib", "rich", "tyro")),
        ("nsm.data.warp", ("numba", "nsm.fused", "nsm.tasks", "nsm.training")),
        ("nsm.tree", ("torch", "numpy", "nsm.tasks", "nsm.memories")),
        ("nsm.experiments.intervals", ("scipy", "matplotlib", "numba")),
        ("nsm.experiments.choice", ("torch", "numpy", "nsm.machine", "nsm.tasks")),
        ("nsm.tasks", ("torch", "numba", "llvmlite", "nsm.fused", "nsm.training", "matplotlib", "rich", "tyro")),
    ],
)
def test_an_import_brings_no_more_than_it_needs(module, absent):
    names = loaded_by(module)
    assert module in names
    assert names.isdisjoint(absent)


# --- the names of the package -----------------------------------------------------------------------------------------


def public() -> dict[str, str]:
    """The names that `nsm/__init__.py` shows to type checkers, and from where."""
    tree = ast.parse(Path(nsm.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {alias.name: node.module for node in block.body for alias in node.names}


def test_public_names_are_those_that_type_checkers_see():
    assert sorted([*public(), "__version__"]) == sorted(nsm.__all__)
    assert public() == nsm._MODULES
    for name, module in public().items():
        getattr(nsm, name)
        found = sys.modules.get(f"{module}.{name}", getattr(sys.modules[module], name, None))
        assert getattr(nsm, name) is found is not None


PARTS = ("nsm.data", "nsm.tasks", "nsm.training", "nsm.experiments", "nsm.reports")


@pytest.mark.parametrize(
    ("code", "present", "absent"),
    [
        ("nsm.NUTM", ("torch", "nsm.machine"), ("numba", "nsm.fused", "matplotlib", "rich", *PARTS)),
        ("from nsm import NUTM", ("torch", "nsm.machine"), ("numba", "nsm.fused", "matplotlib", "rich", *PARTS)),
        ("nsm.load", ("torch", "nsm.machine"), ("numba", "nsm.fused", "matplotlib", "rich", *PARTS)),
        ("nsm.optim", ("torch",), ("numba", "nsm.machine", *PARTS)),
        ("nsm.UserError", ("nsm.checks",), ("torch", "numpy", *PARTS)),
        ("nsm.Task", ("nsm.tasks",), ("torch", "nsm.machine", *PARTS[2:])),
        ("nsm.Experiment", ("nsm.machine", "nsm.tasks"), ("numba", "matplotlib", "rich", *PARTS[3:])),
        ("nsm.recipes", ("nsm.machine", "nsm.tasks"), ("numba", "matplotlib", "rich", "tyro", "nsm.reports")),
        ("nsm.train", ("nsm.experiments", "nsm.training"), ("matplotlib", "rich", "tyro", "pandas", "nsm.commands")),
        ("from nsm import *", ("nsm.run", "nsm.machine"), ("matplotlib", "tyro", "pandas", "nsm.commands")),
    ],
)
def test_a_public_name_brings_no_more_than_it_needs(code, present, absent):
    names = loaded_after(code)
    assert set(present) <= names
    assert names.isdisjoint(absent)


def test_public_names_are_listed_before_they_are_imported():
    names = loaded_after("assert set(nsm.__all__) <= set(dir(nsm)); assert not hasattr(nsm, 'NTUM')")
    assert "torch" not in names


# --- the check itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("tasks/new.py", "from nsm.fused.cache import compiled", "tasks must not import nsm.fused.cache"),
        ("tasks/new.py", "def f():\n    import nsm.machine", "tasks must not import nsm.machine"),
        ("fused/new.py", "if TYPE_CHECKING:\n    from nsm import machine", "fused must not import nsm.machine"),
        ("memories/new.py", "import nsm", "memories must not import nsm"),
        (
            "memories/new.py",
            "try:\n    import numba.core\nexcept ImportError: ...",
            "memories must not import numba.core",
        ),
        ("backends.py", "from nsm.fused import operators\nimport os.path, torch.nn", None),
    ],
)
def test_the_check_finds_imports_wherever_they_stand(tmp_path, path, text, expected):
    source = tmp_path / "nsm"
    for name, content in {"__init__.py": "", "machine.py": "", "fused/__init__.py": "", path: text}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    found = [trespass.partition(": ")[2] for trespass in trespasses(source)]
    assert found == ([] if expected is None else [expected])


HIDDEN = "import importlib\ndef {}(name):\n    importlib.import_module(name)"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("files.py", "from . import machine"),
        ("files.py", "import importlib\nimportlib.import_module('nsm.cli')"),
        ("files.py", "__import__('nsm.cli')"),
        ("files.py", HIDDEN.format("__getattr__")),
        ("__init__.py", HIDDEN.format("other")),
        ("commands/options.py", HIDDEN.format("other")),
    ],
)
def test_the_check_refuses_what_it_can_not_follow(tmp_path, path, text):
    file = tmp_path / "nsm" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(AssertionError, match=rf"{file.name}:\d: an? (relative import|import that)"):
        list(imports(tmp_path / "nsm"))


def test_the_check_lets_two_functions_import_by_name(tmp_path):
    (tmp_path / "nsm" / "commands").mkdir(parents=True)
    (tmp_path / "nsm" / "__init__.py").write_text(HIDDEN.format("__getattr__"))
    (tmp_path / "nsm" / "commands" / "options.py").write_text(HIDDEN.format("load_plugins"))
    assert {name for _, _, name in imports(tmp_path / "nsm")} == {"importlib"}


def test_the_check_finds_cycles_through_functions(tmp_path):
    source = tmp_path / "nsm"
    source.mkdir()
    (source / "a.py").write_text("import nsm.b")
    (source / "b.py").write_text("def f():\n    from nsm import c")
    (source / "c.py").write_text("import os")
    assert cycle_of_modules(source) == []
    (source / "c.py").write_text("def g():\n    from nsm.a import anything")
    assert {*cycle_of_modules(source)} == {"nsm.a", "nsm.b", "nsm.c"}
