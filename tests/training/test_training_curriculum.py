"""Curricula: parts one by one, or more in every stage by what is left to gain; stopped or not, the same run."""

import pytest

from nsm import DNC, Controller, MachineConfig, Programs
from nsm.checks import UserError
from nsm.data.stories import vocabulary
from nsm.tasks import AssociativeRecall, Babi, Copy, Mixture
from nsm.training.curriculum import InStages, OneByOne
from nsm.training.experiment import Experiment, Schedule
from nsm.training.loop import Stop, train
from nsm.training.run import RunDirectory
from nsm.training.signals import Interrupted
from training.small_runs import At, contents, small

TWO = Mixture((Copy(), AssociativeRecall(width=8)))


def figures(*errors):
    return {f"word_error/qa{task}": error for task, error in enumerate(errors, start=1)}


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
        weights = curriculum.at(TWO, weights, step, iterations)
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


# --- in stages --------------------------------------------------------------------------------------------------------


def test_each_stage_lasts_until_what_joined_in_it_is_known():
    task, curriculum = Babi((1, 2, 3, 4)), InStages(("qa1", "qa3+qa2"), enough=0.25, floor=0.02, limit=0.3)
    weights = curriculum.start(task)
    assert weights == (1, 0, 0, 0)
    weights = curriculum.evaluated(task, weights, figures(0.26, 1.0, 1.0, 1.0))
    assert weights == pytest.approx((0.28, 0, 0, 0))
    weights = curriculum.evaluated(task, weights, figures(0.24, 0.9, 0.4, 1.0))
    assert weights == pytest.approx((0.26, 0.32, 0.32, 0))
    weights = curriculum.evaluated(task, weights, figures(0.9, 0.1, 0.5, 1.0))  # 0.3 on average
    assert weights == pytest.approx((0.32, 0.12, 0.32, 0))
    weights = curriculum.evaluated(task, weights, figures(0.0, 0.1, 0.3, 0.9))
    assert weights == pytest.approx((0.02, 0.12, 0.32, 0.32))
    weights = curriculum.evaluated(task, weights, figures(0.9, 0.9, 0.9, 0.0))
    assert weights == pytest.approx((0.32, 0.32, 0.32, 0.02))


def test_what_joined_last_has_its_share_until_all_have_joined():
    task, curriculum = Babi((1, 2, 3, 4)), InStages(("qa1", "qa3+qa2"), enough=0.25, focus=0.9)
    weights = curriculum.evaluated(task, curriculum.start(task), figures(0.3, 1.0, 1.0, 1.0))
    assert weights == pytest.approx((0.32, 0, 0, 0))  # nothing else is drawn yet
    weights = curriculum.evaluated(task, weights, figures(0.08, 0.08, 0.9, 1.0))
    assert weights == pytest.approx((0.1, 0.9 * 10 / 42, 0.9 * 32 / 42, 0))
    weights = curriculum.evaluated(task, weights, figures(0.0, 1.0, 1.0, 1.0))  # more than its share already
    assert weights == pytest.approx((0.02, 0.32, 0.32, 0))
    weights = curriculum.evaluated(task, weights, figures(0.08, 0.08, 0.3, 1.0))
    assert weights == pytest.approx((0.1, 0.1, 0.32, 0.32))


@pytest.mark.parametrize("focus", [-0.1, 1.0])
def test_a_focus_that_leaves_nothing_for_the_others_is_refused(focus):
    with pytest.raises(UserError, match="focus must be at least 0 and below 1"):
        InStages(focus=focus)


@pytest.mark.parametrize(
    ("name", "value"), [("floor", 0.0), ("floor", -0.5), ("limit", -0.1), ("enough", -1.0), ("share", float("nan"))]
)
def test_weights_are_positive_numbers_whatever_the_errors(name, value):
    with pytest.raises(UserError, match=f"{name} must be"):
        InStages(**{name: value})


def test_the_focus_ends_when_its_share_of_the_iterations_does():
    curriculum = InStages(share=0.5, focus=0.9)
    task, most = Babi((1, 15, 19)), curriculum.floor + curriculum.limit
    assert curriculum.at(task, (0.1, 3.0, 0.0), 5, 10) == pytest.approx((0.1, most, most))


def test_stages_of_tasks_that_are_not_there_are_left_out():
    one, other = Babi((3,)), Babi((2, 3))
    assert InStages(("qa1", "qa3")).start(one) == (1,)
    assert InStages(("qa1", "qa3")).start(other) == (0, 1)
    assert InStages(("qa1",)).start(other) == (1, 1)
    assert InStages(("qa1", "qa3")).evaluated(one, (1.0,), {"word_error/qa3": 0.1}) == pytest.approx((0.12,))


def test_after_its_share_of_the_iterations_all_parts_are_drawn():
    curriculum, task, weights = InStages(share=0.5), Babi((1, 15)), (0.1, 0.0)
    assert curriculum.at(task, weights, 4, 10) == weights
    assert curriculum.at(task, weights, 5, 10) == pytest.approx((0.1, curriculum.floor + curriculum.limit))
    assert curriculum.at(task, (0.1, 0.2), 9, 10) == (0.1, 0.2)
    assert InStages(share=0.0).at(task, weights, 0, 10) != weights


def test_a_stage_that_is_not_learned_ends_in_time_for_the_others():
    """Three stages in 60 of 100 iterations: the second begins at 30 at the latest, and has its focus."""
    curriculum, task = InStages(("qa1", "qa15", "qa19"), share=0.6, focus=0.75), Babi((1, 15, 19))
    most = curriculum.floor + curriculum.limit
    alone = (most, 0.0, 0.0)
    assert curriculum.at(task, alone, 29, 100) == alone
    assert curriculum.at(task, alone, 30, 100) == pytest.approx((most, 3 * most, 0))
    begun = (0.1, 0.3, 0.0)  # earlier: the weights stay
    assert curriculum.at(task, begun, 30, 100) == begun
    assert curriculum.at(task, begun, 59, 100) == begun
    assert curriculum.at(task, begun, 60, 100) == pytest.approx((0.1, 0.3, most))
    assert curriculum.at(task, alone, 60, 100) == pytest.approx((most, most, most))


def test_skills_are_looked_for_without_noise_until_the_widest_stage_joins():
    task = Babi((1, 2, 3, 15, 19))
    curriculum = InStages(("qa1", "qa15", "others", "qa19"))  # 2 and 3 are the others
    assert not curriculum.augmented(task, (1.0, 0, 0, 0, 0))
    assert not curriculum.augmented(task, (0.1, 0, 0, 0.3, 0))
    assert curriculum.augmented(task, (0.1, 0.3, 0.3, 0.1, 0))
    assert curriculum.augmented(task, (0.1, 0.3, 0.3, 0.1, 0.3))
    assert InStages(("others", "qa19")).augmented(task, (1.0, 1.0, 1.0, 1.0, 0))
    assert not InStages().augmented(Babi((1, 2)), (1.0, 0.0))
    assert InStages().augmented(Babi((1, 2)), (0.3, 0.1))
    assert InStages().augmented(Babi((1,)), (1.0,))
    assert OneByOne().augmented(TWO, (1.0, 0.0))


def test_others_are_the_parts_that_are_not_named():
    everything = InStages()._joining(Babi())
    assert [len(parts) for parts in everything] == [1, 1, 14, 1, 1, 2]
    assert {part for parts in everything for part in parts} == set(Babi().part_names)
    assert InStages(("qa2", "others", "qa1"))._joining(Babi((1, 2, 3))) == [["qa2"], ["qa3"], ["qa1"]]
    assert InStages(("qa2", "qa1"))._joining(Babi((1, 2, 3))) == [["qa2"], ["qa1"], ["qa3"]]


# --- in a run ---------------------------------------------------------------------------------------------------------


def answering(curriculum):
    words = len(vocabulary())
    machine = MachineConfig(words, words, Controller(size=8), DNC(slots=8, width=4, read_heads=2), Programs(2))
    schedule = Schedule(
        12,
        4,
        curriculum,
        log_every=2,
        evaluate_every=3,
        validation_sequences=60,
        test_sequences=60,
        checkpoint_every=4,
        cell_noise=0.3,
    )
    return Experiment(Babi((1, 2, 19), test=Babi((1, 2, 19), "test")), machine, schedule=schedule)


@pytest.mark.parametrize("step", [2, 3, 7])
def test_a_run_that_was_stopped_draws_the_same_stories(tmp_path, step):
    experiment, stop = (
        answering(InStages(("qa1",), enough=1.1)),
        Stop(),
    )  # the second stage begins at the first evaluation
    train(experiment, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(experiment, tmp_path / "stopped", callbacks=[At(step, stop)], stop=stop)
    train(experiment, tmp_path / "stopped")
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
    assert 0 not in RunDirectory(tmp_path / "whole").checkpoint("last").state["weights"]


def test_while_the_first_task_is_not_known_no_other_is_drawn(tmp_path):
    train(answering(InStages(enough=0.0, share=9.0)), tmp_path)
    assert RunDirectory(tmp_path).checkpoint("last").state["weights"][1:] == [0, 0]


@pytest.mark.parametrize("curriculum", [OneByOne(), InStages()], ids=lambda curriculum: type(curriculum).__name__)
def test_a_task_that_is_one_thing_has_none(curriculum):
    with pytest.raises(UserError, match="a curriculum needs a mixture of tasks"):
        small(curriculum=curriculum)


def test_errors_of_every_part_are_needed_to_weigh_by_them():
    machine = MachineConfig(TWO.input_size, TWO.output_size, Controller(size=8))
    with pytest.raises(UserError, match="reports no error for each of its parts"):
        Experiment(TWO, machine, schedule=Schedule(curriculum=InStages()))
    Experiment(TWO, machine, schedule=Schedule(curriculum=OneByOne()))
