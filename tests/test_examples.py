"""Examples run as a reader would run them, learn what they say they learn, and leave no files behind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def numbers(pattern, printed):
    """What the groups of a pattern match in the output, line by line."""
    found = [[float(number) for number in match.groups()] for match in re.finditer(pattern, printed)]
    assert found, f"no line like {pattern} in {printed}"
    return found


def custom_memory(printed):
    first, *_, last = numbers(r"step +(\d+): loss ([\d.]+), ([\d.]+) of 4 bits wrong", printed)
    assert (first[0], last[0]) == (0, 120)
    assert first[2] > 1.5
    assert last[2] < 0.1


def step_by_step(printed):
    assert "step loop equals one call: True" in printed
    assert len(numbers(r"step (\d): wrote mostly to slot (\d)", printed)) == 5


def stored_program_mlp(printed):
    ((plain,), (stored,)) = numbers(r"mean squared error ([\d.]+)", printed)
    assert stored < 0.1 < 0.4 < plain
    ((on, off),) = numbers(r"share of (\d+)% where the switch is well on, of (\d+)%", printed)
    assert abs(on - off) > 30


def truncated_backpropagation(printed):
    (before,), (after,), (lost,) = numbers(r": +([\d.]+)% right", printed)
    assert before < 35
    assert after > 99
    assert lost < 35


def lightning_module(printed):
    (before,), (after,) = numbers(r": ([\d.]+)% of letters right", printed)
    assert before < 20
    assert after > 95


CHECKS = [custom_memory, lightning_module, step_by_step, stored_program_mlp, truncated_backpropagation]


def test_every_example_is_checked():
    assert [check.__name__ for check in CHECKS] == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_example_does_what_it_says(check, tmp_path):
    """In a process of its own, where warnings of other packages are not errors."""
    command = [sys.executable, EXAMPLES / f"{check.__name__}.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    check(ran.stdout)
    assert list(tmp_path.iterdir()) == []
