"""The loop learns, the same way in every process and, as far as rounding allows, on both back ends."""

import hashlib
import json

import numpy as np
import pytest

from nsm.training.experiment import Optimiser
from nsm.training.loop import TRAIN, build, train
from nsm.training.run import RunDirectory
from training.small_runs import contents, in_another_process, learnable, small


def test_a_tiny_copy_is_learned_and_another_process_learns_the_very_same(tmp_path):
    outcome = train(learnable(), tmp_path / "here", "fused")
    lines = RunDirectory(tmp_path / "here").lines()
    assert lines[0]["loss"] > 0.5
    assert outcome.validation_loss < 0.04
    assert lines[-1]["validation"]["bit_errors"] < 0.1
    code = "from nsm.training.loop import train; train(learnable(), sys.argv[1], 'fused')"
    done = in_another_process(code, str(tmp_path / "there"))
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def losses(experiment, backend, iterations):
    task, learner = experiment.task, build(experiment, backend)
    batches = task.block(experiment.seed, TRAIN, 0, iterations, experiment.schedule.batch_size)
    return np.array([learner.step(task, batch, step) for step, batch in enumerate(batches)])


@pytest.mark.parametrize("options", [{}, {"programs": None}, {"cell_noise": 0.3, "random_slots": True}], ids=str)
def test_the_curves_of_both_back_ends_agree(options):
    """Loss by loss: within rounding at first, and apart as slowly as rounding errors grow when one learns from them."""
    experiment = small(size=16, batch_size=4, optimiser=Optimiser(learning_rate=1e-3), **options)
    fused, reference = (losses(experiment, backend, 150) for backend in ("fused", "reference"))
    assert fused[-10:].mean() < 0.85 * fused[:10].mean(), "nothing was learned: the comparison would be empty"
    gap = np.abs(fused - reference) / reference
    for iterations, tolerance in ((1, 5e-7), (20, 1e-6), (50, 1e-5), (100, 5e-4), (150, 1e-2)):
        assert gap[:iterations].max() < tolerance, f"in the first {iterations} iterations"


def test_a_seed_decides_everything_and_another_seed_something_else(tmp_path):
    def digest(name, seed):
        train(small(seed=seed, cell_noise=0.1, random_slots=True), tmp_path / name, "fused")
        return hashlib.sha256((tmp_path / name / "metrics.jsonl").read_bytes()).hexdigest()

    assert digest("a", 1) == digest("b", 1) != digest("c", 2)


def test_threads_change_nothing(tmp_path):
    experiment = small(batch_size=20)
    for threads in (1, 2):
        train(experiment, tmp_path / str(threads), "fused", threads=threads)
    one, two = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "12")
    assert one == two
    assert json.loads(one.splitlines()[0])["step"] == 2
