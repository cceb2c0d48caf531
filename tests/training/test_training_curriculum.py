"""Curricula: parts one by one, or one first and then all by what is left to gain; stopped or not, the same run."""

import pytest

from nsm import DNC, Controller, MachineConfig, Programs
from nsm.checks import UserError
from nsm.data.stories import vocabulary
from nsm.tasks import AssociativeRecall, Babi, Copy, Mixture
from nsm.training.curriculum import LookUpFirst, OneByOne
from nsm.training.experiment import Experiment, Schedule
from nsm.training.loop import Stop, train
from nsm.training.run import RunDirectory
from nsm.training.signals import Interrupted
from training.small_runs import At, contents, small

TWO = Mixture((Copy(), AssociativeRecall(width=8)))
LOOK = LookUpFirst()


def figures(*errors, tasks=(1, 2, 3)):
    return {f"word_error/qa{task}": error for task, error in zip(tasks, errors, strict=True)}


# --- one by one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("iterations", "expected"), [(8, [0, 0, 0, 0, 1, 1, 1, 1]), (7, [0, 0, 0, 1, 1, 1, 1]), (1, [0])]
)
def test_every_part_has_its_share_and_the_last_one_what_is_left(iterations, expected):
    curriculum, drawn = OneByOne(), []
    weights = curriculum.start(TWO)
    for step in range(1, iterations + 1):
        assert sum(weights) == 1
        drawn.append(weights.index(1))
        weights = curriculum.at(weights, step, iterations)
    assert drawn == expected


def test_batches_are_of_the_part_that_is_on():
    for part, name in enumerate(TWO.part_names):
        weights = tuple(float(number == part) for number in range(2))
        drawn = TWO.weighted(weights).batch(0, 0, 3, 2)
        alone = TWO.parts[name].batch(0, 0, 3, 2)
        assert all((one == other).all() for one, other in zip(drawn, alone, strict=True))


def test_one_by_one_does_not_care_for_evaluations():
    assert OneByOne().evaluated(TWO, (1.0, 0.0), {"loss": 0.0}) == (1.0, 0.0)
    assert not OneByOne.comparable


# --- one first --------------------------------------------------------------------------------------------------------


def test_the_first_task_is_alone_until_it_is_known_and_never_again():
    task = Babi((1, 2, 3))
    weights = LOOK.start(task)
    assert weights == (1, 0, 0)
    weights = LOOK.evaluated(task, weights, figures(0.26, 1.0, 1.0))
    assert weights == (1, 0, 0)
    weights = LOOK.evaluated(task, weights, figures(0.24, 0.1, 0.9))
    assert weights == pytest.approx((LOOK.floor + 0.24, LOOK.floor + 0.1, LOOK.floor + LOOK.limit))
    assert min(LOOK.evaluated(task, weights, figures(0.9, 0.0, 0.0))) == LOOK.floor


def test_without_the_first_task_all_are_drawn_from_the_beginning():
    task, only = Babi((2, 3)), Babi((1,))
    assert LOOK.start(task) == (1, 1)
    found = LOOK.evaluated(task, (1.0, 1.0), figures(0.0, 0.1, tasks=(2, 3)))
    assert found == pytest.approx((LOOK.floor, LOOK.floor + 0.1))
    found = LOOK.evaluated(only, (1.0,), figures(0.5, tasks=(1,)))
    assert found == pytest.approx((LOOK.floor + LOOK.limit,))


def test_its_bounds_are_its_fields():
    task, strict = Babi((1, 2)), LookUpFirst(first="qa2", enough=0.05, floor=0.5, limit=0.1)
    assert strict.start(task) == (0, 1)
    assert strict.evaluated(task, (0.0, 1.0), figures(0.0, 0.06, tasks=(1, 2))) == (0, 1)
    assert strict.evaluated(task, (0.0, 1.0), figures(0.0, 0.04, tasks=(1, 2))) == pytest.approx((0.5, 0.54))


# --- in a run ---------------------------------------------------------------------------------------------------------


def answering(curriculum):
    words = len(vocabulary())
    machine = MachineConfig(words, words, Controller(size=8), DNC(slots=8, width=4, read_heads=2), Programs(2))
    schedule = Schedule(
        12, 4, curriculum, log_every=2, evaluate_every=3, validation_sequences=60, test_sequences=60, checkpoint_every=4
    )
    return Experiment(Babi((1, 2, 19), test=Babi((1, 2, 19), "test")), machine, schedule=schedule)


@pytest.mark.parametrize("step", [2, 3, 7])
def test_a_run_that_was_stopped_draws_the_same_stories(tmp_path, step):
    experiment, stop = answering(LookUpFirst(enough=1.1)), Stop()  # the second stage begins at the first evaluation
    train(experiment, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(experiment, tmp_path / "stopped", callbacks=[At(step, stop)], stop=stop)
    train(experiment, tmp_path / "stopped")
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
    assert 0 not in RunDirectory(tmp_path / "whole").checkpoint("last").state["weights"]


def test_while_the_first_task_is_not_known_no_other_is_drawn(tmp_path):
    train(answering(LookUpFirst(enough=0.0)), tmp_path)
    assert RunDirectory(tmp_path).checkpoint("last").state["weights"] == [1, 0, 0]


@pytest.mark.parametrize("curriculum", [OneByOne(), LookUpFirst()], ids=lambda curriculum: type(curriculum).__name__)
def test_a_task_that_is_one_thing_has_none(curriculum):
    with pytest.raises(UserError, match="a curriculum needs a task made of several: copy is one"):
        small(curriculum=curriculum)


def test_errors_of_every_part_are_needed_to_weigh_by_them():
    machine = MachineConfig(TWO.input_size, TWO.output_size, Controller(size=8))
    with pytest.raises(UserError, match="reports no error for each of its parts"):
        Experiment(TWO, machine, schedule=Schedule(curriculum=LookUpFirst()))
    Experiment(TWO, machine, schedule=Schedule(curriculum=OneByOne()))
