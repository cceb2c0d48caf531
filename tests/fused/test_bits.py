"""The same seed gives the same bytes: run after run, on one thread or two, freshly compiled or from the cache."""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import nsm
from fused.compare import Case

MEMORIES = [nsm.NTM(slots=20, width=6), nsm.LRUA(slots=20, width=6), nsm.DNC(slots=20, width=6)]


def case(memory, seed=0, batch=20):
    generator = torch.Generator().manual_seed(seed)
    machine = nsm.NUTM(4, 3, 2, controller=nsm.Controller(size=16), memory=memory, generator=generator)
    return Case(machine, 6, batch, lengths=[1 + b % 6 for b in range(batch)], seed=seed)


def digest(found):
    whole = hashlib.sha256()
    for name in sorted(found):
        whole.update(name.encode() + found[name].tobytes())
    return whole.hexdigest()


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
def test_again_and_on_more_threads(memory):
    first = digest(case(memory).fused())
    assert digest(case(memory).fused()) == first
    assert digest(case(memory).fused(threads=2)) == first
    assert digest(case(memory).fused(threads=3)) == first
    assert digest(case(memory, seed=1).fused()) != first


@pytest.mark.parametrize("parts", [("interface",), ("interface", "state", "output")], ids="+".join)
@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
def test_answers_again_with_weights_packed_again(controller, parts):
    """No bias is what it was at the start, zero, which could be added any number of times."""
    stored, config = nsm.Programs(2, parts=parts), nsm.Controller(controller, size=9)
    machine = nsm.NUTM(4, 3, stored, controller=config, memory=MEMORIES[0], backend="fused")
    x = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter += 0.1
        answers = [machine(x)[0].numpy().tobytes() for _ in range(3)]
    assert answers == answers[:1] * 3


def test_runs_at_the_same_time_do_not_disturb_each_other():
    cases = [case(memory, seed) for seed in range(4) for memory in MEMORIES]
    alone = [digest(each.fused()) for each in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert [digest(found) for found in pool.map(lambda each: each.fused(threads=2), cases)] == alone


SCRIPT = """
import nsm
from fused.test_bits import MEMORIES, case, digest
print(digest(case(MEMORIES[0]).fused()))
"""


def process(package=None, **environment):
    """Another process, with the package at another place if one is given."""
    paths = (str(Path(__file__).parent.parent), str(package or Path(nsm.__file__).parent.parent))
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "7", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(started):
    found, said = started.communicate()
    assert started.returncode == 0, said
    return found.strip(), said


def test_another_process_loads_the_cache_and_gives_the_same_bytes():
    here = digest(case(MEMORIES[0]).fused())  # first, so that the cache has them
    found, said = finish(process())
    assert found == here
    assert "compiling" not in said


@pytest.mark.thorough
def test_freshly_compiled_kernels_give_the_same_bytes_and_are_compiled_once_for_all(tmp_path):
    """By one of two processes that start together, and for a copy of the package that lies elsewhere."""
    here = digest(case(MEMORIES[0]).fused())
    cached = {"NSM_CACHE": str(tmp_path / "cache")}
    both = [finish(started) for started in [process(**cached), process(**cached)]]
    assert [found for found, _ in both] == [here, here]
    assert sum("compiling the fused kernels for NTM, once" in said for _, said in both) == 1
    assert sum("another process is compiling" in said for _, said in both) == 1

    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache/kernels/*/*.nbc")}
    assert files
    shutil.copytree(Path(nsm.__file__).parent, tmp_path / "elsewhere" / "nsm")
    found, said = finish(process(tmp_path / "elsewhere", **cached))
    assert found == here
    assert "compiling" not in said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache/kernels/*/*.nbc")} == files


INNER = """
from nsm.fused.cache import kernel

@kernel
def number():
    return {}
"""
OUTER = """
from nsm.fused.cache import compiled
from nsm.fused.inner import number

@compiled
def ask():
    return number()
"""


def test_an_edited_source_is_compiled_anew(tmp_path):
    """Wherever the edit is: an entry point that is not edited calls a kernel of another file that is."""
    package = shutil.copytree(Path(nsm.__file__).parent, tmp_path / "nsm")
    (package / "fused" / "outer.py").write_text(OUTER)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NSM_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "from nsm.fused.outer import ask; print(ask())"]
    for number in (1, 2):
        (package / "fused" / "inner.py").write_text(INNER.format(number))
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert int(asked.stdout) == number
