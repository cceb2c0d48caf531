"""The same seed gives the same bytes: run after run, on one thread or two, freshly compiled or from the cache."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

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


def in_another_process(**environment):
    paths = (os.path.dirname(os.path.dirname(file)) for file in (__file__, nsm.__file__))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "7", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def test_another_process_loads_the_cache_and_gives_the_same_bytes():
    here = digest(case(MEMORIES[0]).fused())  # first, so that the cache has them
    found, said = in_another_process()
    assert found == here
    assert "compiling" not in said


def test_freshly_compiled_kernels_give_the_same_bytes_and_say_that_they_compile(tmp_path):
    found, said = in_another_process(NSM_CACHE=str(tmp_path))
    assert found == digest(case(MEMORIES[0]).fused())
    assert said.count("compiling the fused kernels") == 1
    assert list(tmp_path.glob("kernels/*/**/*.nbc"))
