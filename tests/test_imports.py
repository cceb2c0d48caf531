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
    "checks": Room(),
    "files": Room("checks"),
    "documents": Room("checks files"),
    # Tasks: without the model, and without a compiler.
    "data": Room("checks files", "numpy torch PIL pooch"),
    "tasks": Room("checks data", "numpy torch"),
    # The model.
    "similarity": Room("", "numpy torch"),
    "nested": Room("checks", "numpy torch"),
    "controllers": Room("checks", "numpy torch"),
    "memories": Room("checks similarity", "numpy torch"),
    "programs": Room("checks similarity", "numpy torch"),
    "description": Room("checks controllers memories programs", "numpy torch"),
    "operands": Room("checks controllers memories programs", "numpy torch"),
    "pretrained": Room("checks files documents memories", "numpy torch safetensors"),
    "fused": Room("checks files similarity controllers memories programs description", "numpy torch numba llvmlite"),
    "machine": Room(
        "names checks nested controllers memories programs description operands pretrained fused", "numpy torch"
    ),
    # What is done with both.
    "training": Room(
        "version names checks files documents nested memories programs pretrained fused machine tasks",
        "numpy torch safetensors",
    ),
    "loading": Room("names checks documents pretrained machine training"),
    "optim": Room("checks fused", "torch"),
    "nsm": Room("version controllers memories programs machine loading optim"),
    "experiments": Room(
        "checks files documents controllers memories programs pretrained machine tasks training", "numpy torch ray"
    ),
    "reports": Room(
        "names checks files nested memories pretrained machine tasks training experiments", "numpy torch matplotlib"
    ),
    "bench": Room(
        "checks nested similarity memories operands fused machine tasks training experiments reports",
        "numpy torch numba matplotlib jax",
    ),
    "commands": Room(
        "names checks data memories machine tasks training experiments bench reports", "numpy torch tyro rich"
    ),
    "cli": Room("version checks training commands", "tyro"),
    "__main__": Room("cli"),
}
MODEL = (
    *("similarity", "nested", "controllers", "memories", "programs"),
    *("description", "operands", "pretrained", "fused", "machine"),
)


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

    `from nsm import nested` is an import of nsm.nested. That Python runs the `__init__` of every package above what is
    imported is not counted: those would be cycles of nearly everything.
    """
    known = modules(source)
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
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
                assert not hidden, f"{path}:{node.lineno}: an import that can't be read off"
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
        assert everything_below[name] <= {"names", "checks", "files", "documents", *MODEL}
    assert everything_below["fused"].isdisjoint({"machine", "operands"})


def test_the_model_needs_few_packages():
    extra = {name: set(ROOMS[name].packages.split()) - {"numpy", "torch"} for name in MODEL}
    assert {name: packages for name, packages in extra.items() if packages} == {
        "pretrained": {"safetensors"},
        "fused": {"numba", "llvmlite"},
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
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module.startswith("nsm.")]
    return {alias.name: node.module for node in found for alias in node.names}


def test_public_names_are_those_that_type_checkers_see():
    assert sorted(public()) == sorted(nsm.__all__)
    for name, module in public().items():
        assert getattr(nsm, name) is getattr(sys.modules[module], name)


@pytest.mark.parametrize("code", ["nsm.NUTM", "from nsm import NUTM", "from nsm import *", "nsm.load"])
def test_a_public_name_brings_the_model_and_no_compiler(code):
    names = loaded_after(code)
    assert {"torch", "nsm.machine"} <= names
    assert names.isdisjoint(("numba", "nsm.fused", "nsm.data", "nsm.tasks", "nsm.training"))


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
        ("machine.py", "from nsm.fused import operators\nimport os.path, torch.nn", None),
    ],
)
def test_the_check_finds_imports_wherever_they_stand(tmp_path, path, text, expected):
    source = tmp_path / "nsm"
    for name, content in {"__init__.py": "", "machine.py": "", "fused/__init__.py": "", path: text}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    found = [trespass.partition(": ")[2] for trespass in trespasses(source)]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    "text", ["from . import machine", "import importlib\nimportlib.import_module('nsm.cli')", "__import__('nsm.cli')"]
)
def test_the_check_refuses_what_it_can_not_follow(tmp_path, text):
    source = tmp_path / "nsm"
    source.mkdir()
    (source / "files.py").write_text(text)
    with pytest.raises(AssertionError, match=r"files\.py:\d: an? (relative import|import that)"):
        list(imports(source))


def test_the_check_finds_cycles_through_functions(tmp_path):
    source = tmp_path / "nsm"
    source.mkdir()
    (source / "a.py").write_text("import nsm.b")
    (source / "b.py").write_text("def f():\n    from nsm import c")
    (source / "c.py").write_text("import os")
    assert cycle_of_modules(source) == []
    (source / "c.py").write_text("def g():\n    from nsm.a import anything")
    assert {*cycle_of_modules(source)} == {"nsm.a", "nsm.b", "nsm.c"}
