"""What every test runs under: one thread, no chance in the property tests, and uninitialised memory that shows.

And which of them are thorough: those that `./check --all` adds.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from data import glyphs, small_babi
from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface

torch.set_num_threads(1)
# Under deterministic algorithms torch.empty is filled with NaN: a weight that nobody draws can't pass for a number.
torch.use_deterministic_algorithms(True)

settings.register_profile("deterministic", derandomize=True, database=None, deadline=None, max_examples=40)
settings.load_profile("deterministic")

TESTS = Path(__file__).parent
REAL_DATA = Path(os.environ.get("NSM_DATA", "."))
"""Where the real data lies, if it does."""


THOROUGH_FILES = (
    "cli/test_cli_ray.py",
    "fused/test_cache.py",  # compiles, over and over
    "fused/test_targets.py",
    "reports/test_reports_published.py",
    "training/test_training_soak.py",
    "test_attack.py",
    "test_examples.py",
)
THOROUGH_FIXTURES = {"browser", "two"}
"""A Chromium, and runs under torchrun."""


def pytest_collection_modifyitems(items):
    """Mark what takes a browser, a cluster, several processes or minutes; single tests mark themselves."""
    for item in items:
        if item.path.relative_to(TESTS).as_posix() in THOROUGH_FILES or THOROUGH_FIXTURES & set(item.fixturenames):
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session", autouse=True)
def made_up_data(tmp_path_factory):
    """The data directory of every test: a small set in the layout of the real one."""
    root = tmp_path_factory.mktemp("data")
    glyphs.write(root)
    small_babi.write(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSM_DATA", str(root))
        yield root


@pytest.fixture
def real_omniglot(monkeypatch):
    """The data directory with the real set; tests that need it are skipped where it is not."""
    if not (REAL_DATA / "omniglot" / "images_background.zip").exists():
        pytest.skip("Omniglot is not here: NSM_DATA names no directory with it")
    monkeypatch.setenv("NSM_DATA", str(REAL_DATA))
    return REAL_DATA


@pytest.fixture
def real_babi(monkeypatch):
    """The same for bAbI."""
    if not (REAL_DATA / "babi" / "tasks_1-20_v1-2.tar.gz").exists():
        pytest.skip("bAbI is not here: NSM_DATA names no directory with it")
    monkeypatch.setenv("NSM_DATA", str(REAL_DATA))
    return REAL_DATA


MEMORIES = {
    "ntm": NTM(slots=6, width=3),
    "ntm-heads": NTM(slots=6, width=3, read_heads=2, write_heads=2, order="write-first", shift_range=2),
    "lrua": LRUA(slots=6, width=3, read_heads=2),
    "lrua-read-first": LRUA(slots=6, width=3, read_heads=2, write_heads=2, order="read-first"),
    "dnc": DNC(slots=6, width=3, read_heads=2),
    "dnc-links": DNC(slots=6, width=3, read_heads=2, links=True),
    "dnc-masked": DNC(slots=6, width=3, read_heads=2, masked=True, erase_freed=True),
}


@pytest.fixture(params=MEMORIES)
def memory(request):
    """A small configuration of every data memory, on a tape whose slots differ."""
    return replace(MEMORIES[request.param], initial_memory="random")


@pytest.fixture(params=[MANN, NUTM], ids=lambda kind: kind.__name__)
def machine(request, memory):
    """A small machine of either kind over every memory: 3 inputs, 2 outputs, float64, weights that matter."""
    generator = torch.Generator().manual_seed(0)
    interface = Interface(gain=3, fan="head")
    options = {"controller": Controller(size=5), "memory": memory, "interface": interface}
    return request.param(3, 2, **options, backend="reference", generator=generator).double()


@pytest.fixture
def randn():
    """Normal random numbers in float64, the same in every run."""
    generator = torch.Generator().manual_seed(1234)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
