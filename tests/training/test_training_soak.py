"""The soak command: a short one survives, and what it compares would show a loss."""

import importlib.util
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nsm import documents
from nsm.training import checkpoints
from nsm.training.loop import train
from training.small_runs import small

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.py"


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = sys.modules["soak"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak"]


def test_a_short_soak_loses_nothing():
    done = subprocess.run([sys.executable, SCRIPT, "--kills", "6"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6 kills survived in ")
    assert "nothing lost" in done.stdout


def test_every_part_of_a_run_is_compared(soak, tmp_path):
    experiment = small(keep_checkpoints=3, persistent=True)
    train(experiment, tmp_path / "straight", "fused")
    parts = soak.contents(tmp_path / "straight")
    assert len(parts) == 12
    runs = soak.Soak(tmp_path, "fused", random.Random(0))
    same = shutil.copytree(tmp_path / "straight", tmp_path / "same")
    runs.compare(same, tmp_path / "straight")
    assert runs.differences == []
    train(replace(experiment, seed=1), tmp_path / "other", "fused")
    runs.compare(tmp_path / "other", tmp_path / "straight")
    differing = {difference.removeprefix("other: ") for difference in runs.differences}
    tensors = {f"last {name}.safetensors" for name in ("model", "optimiser", "memory")}
    assert differing >= {"metrics.jsonl", "result.json", *tensors}
    # Nor is a file too many the same.
    runs.differences.clear()
    (newest := sorted((same / "checkpoints").iterdir())[-1]).joinpath("stray").touch()
    runs.compare(same, tmp_path / "straight")
    assert "same: last stray" in runs.differences
    (newest / "stray").unlink()
    # Times are no difference.
    documents.write(same / "result.json", documents.read_sealed(same / "result.json") | {"seconds": -1.0})
    runs.differences.clear()
    runs.compare(same, tmp_path / "straight")
    assert runs.differences == []


def test_damage_spares_the_only_valid_checkpoint(soak, tmp_path):
    train(small(checkpoint_every=1, keep_checkpoints=4, persistent=True), tmp_path, "fused")
    runs = soak.Soak(tmp_path, "fused", random.Random(0))
    saved = sorted((tmp_path / "checkpoints").iterdir())
    for _ in range(10):
        runs.damage(tmp_path)
    assert [soak.is_valid(path) for path in saved] == [True] + [False] * (len(saved) - 1)
    assert runs.corruptions == len(saved) - 1
    assert checkpoints.latest(tmp_path / "checkpoints").step == int(saved[0].name)
