"""What a type checker tells users of a machine."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nsm

ROOT = Path(nsm.__file__).parents[2]

SNIPPET = """
from typing import assert_type
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
import nsm

machine: nsm.Machine = nsm.NUTM(10, 8)
x: Tensor
packed: PackedSequence

assert_type(machine(x), tuple[Tensor, nsm.MachineState])
assert_type(machine(x, machine.initial_state(4), [3, 2]), tuple[Tensor, nsm.MachineState])
assert_type(machine(x, trace=False), tuple[Tensor, nsm.MachineState])
assert_type(machine(x, trace=True), tuple[Tensor, nsm.MachineState, nsm.Trace])
assert_type(machine(x, trace="memory"), tuple[Tensor, nsm.MachineState, nsm.Trace])
assert_type(machine(packed), tuple[PackedSequence, nsm.MachineState])
assert_type(machine(packed, trace=True), tuple[PackedSequence, nsm.MachineState, nsm.Trace])
assert_type(machine.forward(x), tuple[Tensor, nsm.MachineState])
assert_type(machine.step(x, machine.initial_state()), tuple[Tensor, nsm.MachineState])
assert_type(machine(x)[1].to("cuda", torch.float64), nsm.MachineState)
assert_type(machine(x)[1].memory, tuple[Tensor, ...])


class Blank(nsm.Memory):
    heads, read_size, slots = (nsm.Head("one", "read", 1),), 1, 1

    def initial_state(self, batch: int, slots: int | None = None) -> tuple[Tensor]:
        return (torch.zeros(batch, 1),)

    def forward(self, interfaces: object, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor], nsm.Addresses]:
        return state[0], state, nsm.Addresses(state[0], state[0])


nsm.MANN(3, 2, memory=Blank())
"""
MISTAKES = {
    "machine(x, trace='tape')": "call-overload",
    "machine(3)": "call-overload",
    "out, state = machine(x, trace=True)": "misc",
    "machine.step(packed, machine.initial_state())": "arg-type",
    "nsm.MANN(3, 2, memory=3)": "arg-type",
}


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """A function that says what mypy says about some code."""
    place = tmp_path_factory.mktemp("mypy")

    def checked(code):
        (place / "code.py").write_text(code)
        options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={place}", "--no-error-summary"]
        environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "mypy", *options, "code.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place, env=environment)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return checked


def test_what_comes_out_follows_from_what_goes_in(mypy):
    assert mypy(SNIPPET) == []


@pytest.mark.parametrize(("line", "kind"), MISTAKES.items())
def test_a_mistake_is_found(mypy, line, kind):
    found = [said for said in mypy(f"{SNIPPET}{line}\n") if ": error: " in said]
    assert [int(said.split(":")[1]) for said in found] == [SNIPPET.count("\n") + 1]
    assert found[0].endswith(f"[{kind}]")


PUBLIC = ["machine", "network", "config", "state", "trace", "controllers", "programs", "optim", "loading", "memories"]


def annotations(node, path):
    """What public functions, methods and fields are annotated with, and where."""
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", "") or getattr(getattr(child, "target", None), "id", "")
        if name.startswith("_") and not name.startswith("__"):
            continue
        if isinstance(child, ast.FunctionDef):
            parts = [child.returns, *(part.annotation for part in ast.walk(child.args) if isinstance(part, ast.arg))]
        else:
            parts = [child.annotation] if isinstance(child, ast.AnnAssign) else []
            yield from annotations(child, path)
        for part in parts:
            if part is not None:
                yield f"{path.name}:{part.lineno}", ast.unparse(part)


def test_no_public_signature_says_any():
    found = {path for room in PUBLIC for path in [*ROOT.glob(f"src/nsm/{room}.py"), *ROOT.glob(f"src/nsm/{room}/*.py")]}
    said = [place for path in found for place in annotations(ast.parse(path.read_text()), path)]
    assert len(said) > 300
    assert [place for place in said if re.search(r"\bAny\b", place[1])] == []
