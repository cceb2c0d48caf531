"""A curriculum: one task first, then all by what is left to gain; stopped or not, the same run."""

import numpy as np
import pytest

from nsm import DNC, Controller, MachineConfig, Programs
from nsm.checks import UserError
from nsm.data.stories import vocabulary
from nsm.training import curriculum
from nsm.training.config import RunConfig
from nsm.training.curriculum import FLOOR, LIMIT, first_weights, next_weights
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from nsm.training.signals import Interrupted

pytestmark = pytest.mark.usefixtures("made_up_data")


def figures(*errors, tasks=(1, 2, 3)):
    return {f"word_error/qa{task}": error for task, error in zip(tasks, errors, strict=True)}


def test_the_first_task_is_alone_until_it_is_known_and_never_again():
    tasks = (1, 2, 3)
    weights = first_weights(tasks)
    assert weights == (1, 0, 0)
    weights = next_weights(tasks, weights, figures(0.26, 1.0, 1.0))
    assert weights == (1, 0, 0)
    weights = next_weights(tasks, weights, figures(0.24, 0.1, 0.9))
    assert weights == pytest.approx((FLOOR + 0.24, FLOOR + 0.1, FLOOR + LIMIT))
    assert min(next_weights(tasks, weights, figures(0.9, 0.0, 0.0))) == FLOOR


def test_without_the_first_task_all_are_drawn_from_the_beginning():
    assert first_weights((2, 3)) == (1, 1)
    assert next_weights((2, 3), (1.0, 1.0), figures(0.0, 0.1, tasks=(2, 3))) == pytest.approx((FLOOR, FLOOR + 0.1))
    assert next_weights((1,), (1.0,), figures(0.5, tasks=(1,))) == pytest.approx((FLOOR + LIMIT,))


def small(**changes):
    words = len(vocabulary())
    machine = MachineConfig(words, words, Controller(size=8), DNC(slots=8, width=4, read_heads=2), Programs(2))
    values = dict(iterations=12, batch_size=4, log_every=2, evaluate_every=3, evaluate_sequences=60, checkpoint_every=4)
    return RunConfig("babi-1,2,19", machine, curriculum=True, **(values | changes))


def test_a_run_that_was_stopped_draws_the_same_stories(tmp_path, monkeypatch):
    monkeypatch.setattr(curriculum, "ENOUGH", 1.1)  # the second stage begins at the first evaluation
    train(small(), tmp_path / "whole")

    def stop(progress, line):
        if progress.step == 7:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(small(), tmp_path / "stopped", report=stop)
    train(small(), tmp_path / "stopped")
    whole, stopped = (RunDirectory(tmp_path / name).checkpoint("last") for name in ("whole", "stopped"))
    assert whole.state["weights"] == stopped.state["weights"]
    assert 0 not in whole.state["weights"]
    for name, tensor in whole.model.items():
        assert np.array_equal(tensor, stopped.model[name])


def test_only_question_answering_has_one(tmp_path):
    machine = MachineConfig(10, 8, Controller(size=8))
    with pytest.raises(UserError, match="curriculum must be False for copy"):
        train(RunConfig("copy", machine, curriculum=True), tmp_path / "run")
