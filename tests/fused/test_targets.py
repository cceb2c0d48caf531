"""Kernels compiled for other processors than this one, any x86-64 and AVX2: the same numbers, on any threads."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from llvmlite import binding as llvm

import nsm
from fused.compare import Case, assert_equal
from nsm.fused import cache

TARGETS = {
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+sse4.2,+bmi,+bmi2"},
}
MEMORIES = [nsm.NTM(slots=19, width=6, write_heads=2), nsm.LRUA(slots=19, width=6), nsm.DNC(19, 6, links=True)]
SCRIPT = "from fused.test_targets import compare; compare()"


def compare():
    """Every memory with a controller and attention of its own, one and two threads."""
    kinds = zip(MEMORIES, ("lstm", "gru", "rnn"), ("key-value", "gumbel", "direct"), strict=True)
    for memory, controller, attention in kinds:
        torch.manual_seed(0)
        machine = nsm.NUTM(
            5,
            3,
            nsm.Programs(2, attention=attention),
            controller=nsm.Controller(controller, size=20, layer_norm=controller == "lstm"),
            memory=memory,
            interface=nsm.Interface(norm=controller == "lstm"),
        )
        for fresh in (False, True):
            case = Case(machine, 7, 9, lengths=[1 + b % 7 for b in range(9)], fresh=fresh)
            assert_equal(case, threads=1)
            one, two = case.fused(threads=1), case.fused(threads=2)
            assert all((one[name] == two[name]).all() for name in one)
    print(cache.target()[0], cache.directory().name)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="targets are those of x86-64")
@pytest.mark.parametrize("target", TARGETS)
def test_the_same_numbers_on_another_processor(target):
    if target == "avx2" and not llvm.get_host_cpu_features().get("avx2"):
        pytest.skip("this processor has no AVX2 to run it with")
    paths = (str(Path(__file__).parent.parent), str(Path(nsm.__file__).parent.parent))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **TARGETS[target]}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    name, directory = ran.stdout.split()
    assert name == TARGETS[target]["NUMBA_CPU_NAME"]
    host = {name: os.environ[name] for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if name in os.environ}
    if host != TARGETS[target]:
        assert directory != cache.directory().name


def test_this_processor_is_known():
    name, features = cache.target()
    assert name
    assert all(feature[0] in "+-" for feature in features.split(",") if feature)
