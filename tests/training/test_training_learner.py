"""One iteration: what enters the gradient, what is drawn for it, and that all of it follows from seed and step."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nsm.checks import UserError
from nsm.experiments import recipes
from nsm.experiments.choice import MODELS
from nsm.experiments.paper import EXPERIMENTS, SEQUENCING, cells
from nsm.programs import Programs
from nsm.training.experiment import Optimiser
from nsm.training.loop import TRAIN, build
from training.small_runs import small

BACKENDS = ["fused", "reference"]


def batches(experiment, count):
    task = experiment.task
    return task, task.block(experiment.seed, TRAIN, 0, count, experiment.schedule.batch_size)


def gradient_at(step, experiment, backend, monkeypatch):
    """The gradient that the update of a step would use."""
    learner = build(experiment, backend)
    task, block = batches(experiment, 1)
    monkeypatch.setattr(learner.optimiser, "step", lambda rate: None)
    learner.step(task, block[0], step)
    return learner, learner.gradient.clone()


# --- l_p --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", [0, 1, 20])
def test_the_annealed_key_loss_is_in_the_gradient(monkeypatch, backend, step):
    _, without = gradient_at(step, small(key_loss=0.0), backend, monkeypatch)
    learner, gradient = gradient_at(step, small(key_loss=0.5, key_loss_decay=0.8), backend, monkeypatch)
    learner.gradient.zero_()
    learner.machine.program_loss().backward()
    expected = 0.5 * 0.8**step * learner.gradient
    assert expected.abs().max() > 1e-5
    torch.testing.assert_close(gradient - without, expected, rtol=1e-4, atol=1e-7)


def test_the_key_loss_is_left_out_only_when_it_is_too_small_to_matter(monkeypatch):
    experiment = small()
    called = []
    learner = build(experiment, "fused")
    true_loss = learner.machine.program_loss
    monkeypatch.setattr(learner.machine, "program_loss", lambda: called.append(True) or true_loss())
    task, block = batches(experiment, 1)
    for step in (0, 100, 400):
        learner.step(task, block[0], step)
    assert len(called) == 2
    assert 0.1 * 0.9**400 < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mann_has_no_key_loss(monkeypatch, backend):
    _, some = gradient_at(0, small(programs=None, key_loss=0.5), backend, monkeypatch)
    _, none = gradient_at(0, small(programs=None, key_loss=0.0), backend, monkeypatch)
    assert torch.equal(some, none)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_starts_from_zero_every_time(monkeypatch, backend):
    experiment = small(key_loss=0.0)
    learner = build(experiment, backend)
    task, block = batches(experiment, 1)
    monkeypatch.setattr(learner.optimiser, "step", lambda rate: None)
    gradients = []
    for _ in range(2):
        learner.step(task, block[0], 3)
        gradients.append(learner.gradient.clone())
    assert torch.equal(*gradients)


def test_what_is_returned_is_the_tasks_loss_alone():
    experiment = small(key_loss=5.0)
    learner, (task, block) = build(experiment, "fused"), batches(experiment, 1)
    x, lengths = torch.from_numpy(block[0].inputs), block[0].lengths.tolist()
    logits, _ = learner.machine(x, lengths=lengths)
    expected = task.loss(logits, block[0]).item()
    assert learner.step(task, block[0], 0) == pytest.approx(expected, rel=1e-5)


# --- tape size and noise ----------------------------------------------------------------------------------------------


def drawn_slots(experiment, count=2000):
    learner = build(experiment, "fused")
    task, block = batches(replace(experiment, seed=0), 1)  # the same batch, whatever the seed of the draws
    return task.min_slots(block[0]), np.array([learner._draw(task, block[0], step)[0] for step in range(count)])


def wide(**changes):
    experiment = small(**changes)
    return replace(experiment, machine=replace(experiment.machine, memory=replace(experiment.machine.memory, slots=64)))


def test_tape_sizes_are_log_uniform_between_what_is_needed_and_what_there_is():
    needed, slots = drawn_slots(wide(random_slots=True))
    assert slots.min() == needed
    assert slots.max() == 64
    # Log-uniform: as many in each of four equal parts of the logarithm, up to rounding to whole slots and chance.
    places = np.log(slots / needed) / math.log(64 / needed)
    counts, _ = np.histogram(places, bins=4, range=(0, 1))
    assert counts == pytest.approx(500, abs=110)
    assert np.median(slots) == pytest.approx(math.sqrt(needed * 64), rel=0.1)


def test_tape_sizes_follow_from_seed_and_step():
    _, slots = drawn_slots(wide(random_slots=True), 50)
    _, again = drawn_slots(wide(random_slots=True, cell_noise=0.3), 50)
    _, other = drawn_slots(wide(random_slots=True, seed=1), 50)
    assert (slots == again).all(), "noise on the cell must not move the draws of the tape"
    assert (slots != other).any()
    assert len(set(slots)) > 10


def test_a_sequence_that_needs_more_than_there_is_gets_all():
    experiment = small(random_slots=True)
    learner = build(experiment, "fused")
    task, block = batches(experiment, 1)
    learner.machine.memory.slots = task.min_slots(block[0]) - 1
    assert {learner._draw(task, block[0], step)[0] for step in range(20)} == {task.min_slots(block[0]) - 1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_drawn_tape_is_the_one_that_is_used(monkeypatch, backend):
    experiment = wide(random_slots=True)
    learner = build(experiment, backend)
    task, block = batches(experiment, 1)
    used, initial_state = [], learner.machine.initial_state
    monkeypatch.setattr(
        learner.machine, "initial_state", lambda batch, slots=None: used.append(slots) or initial_state(batch, slots)
    )
    expected = learner._draw(task, block[0], 7)[0]
    learner.step(task, block[0], 7)
    assert used[0] == expected != 64


def test_noise_has_the_deviation_asked_for_and_follows_from_seed_and_step():
    experiment = small(cell_noise=0.3, batch_size=50, size=16)
    learner = build(experiment, "fused")
    task, block = batches(experiment, 1)
    slots, noise = learner._draw(task, block[0], 0)
    assert slots is None
    assert noise.programs is None
    assert noise.cell.shape == (*block[0].mask.shape, 16)
    assert noise.cell.std() == pytest.approx(0.3, rel=0.05)
    assert noise.cell.mean() == pytest.approx(0, abs=0.02)
    assert (noise.cell == learner._draw(task, block[0], 0)[1].cell).all()
    assert (noise.cell != learner._draw(task, block[0], 1)[1].cell).any()


def test_gumbel_noise_is_drawn_for_gumbel_programs_only():
    experiment = small(batch_size=50)
    hard = replace(experiment, machine=replace(experiment.machine, programs=Programs(3, attention="gumbel")))
    learner = build(hard, "fused")
    task, block = batches(hard, 1)
    noise = learner._draw(task, block[0], 0)[1].programs
    assert noise.shape == (*block[0].mask.shape, 2, 3)
    # Gumbel: mean 0.577, variance π²/6.
    assert noise.mean() == pytest.approx(0.577, abs=0.05)
    assert noise.var() == pytest.approx(math.pi**2 / 6, rel=0.1)
    assert build(experiment, "fused")._draw(task, block[0], 0) == (None, (None, None))


@pytest.mark.parametrize("backend", BACKENDS)
def test_noise_changes_the_loss_in_training_and_never_in_evaluation(backend):
    from nsm.training.evaluation import evaluate

    quiet, noisy = small(), small(cell_noise=2.0)
    task, block = batches(quiet, 1)
    assert build(quiet, backend).step(task, block[0], 0) != build(noisy, backend).step(task, block[0], 0)
    figures = [evaluate(build(experiment, backend).machine, task, 10) for experiment in (quiet, noisy)]
    assert figures[0] == figures[1]


NAMES = (*recipes.RECIPES, *SEQUENCING, "omniglot-10", "babi-1")


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_the_presets_of_the_paper_have_neither(preset):
    for name in NAMES:
        for model in MODELS:
            experiment = recipes.find(name)(model, preset)
            assert not experiment.schedule.random_slots
            assert experiment.schedule.cell_noise == 0
            assert experiment.schedule.rewind == 0
            assert experiment.optimiser == Optimiser()
            assert not experiment.task.ragged or experiment.task.choice, "episodes and stories are as long as they are"
    for table in EXPERIMENTS:
        schedules = [cell.experiment.schedule for cell in cells(table, preset)]
        assert not any(schedule.random_slots or schedule.cell_noise for schedule in schedules)


def test_the_default_preset_has_both_where_they_help():
    assert recipes.copy().schedule.random_slots
    assert recipes.copy().schedule.cell_noise == 0.3
    assert recipes.associative_recall().schedule.random_slots
    assert recipes.associative_recall().schedule.cell_noise == 0, "noise keeps Associative Recall from learning"
    for recipe in recipes.SINGLE:
        assert recipe("nutm").schedule != recipe("nutm", "paper").schedule, "every single task has settings of ours"


@pytest.mark.parametrize("recipe", [recipes.copy, recipes.long_copy])
def test_copying_is_trained_and_judged_with_blank_vectors_and_tested_without(recipe):
    for model in ("ntm", "nutm"):
        task = recipe(model).task
        validation, longest = task.validation, task.length[1]
        assert (task.blank, validation.blank, task.test.blank) == (0.05, 0.05, 0.0)
        assert validation.length == (3 * longest, 3 * longest)
        assert validation.length[1] < task.test.length[0], "what chooses a machine is not what it is tested by"
        assert recipe(model, "paper").task == replace(task, blank=0.0, validation=None)


def test_sorting_starts_from_a_random_tape_and_comes_back_when_it_is_thrown_off():
    for name in ("priority-sort", "copy+priority-sort"):
        for model in ("ntm", "nutm"):
            experiment = recipes.find(name)(model)
            memory = experiment.machine.memory
            assert (memory.initial_memory, memory.initial_address) == ("random", "zeros")
            assert experiment.schedule.rewind == 0.05
    assert recipes.find("copy+repeat-copy")().machine.memory.initial_memory == "constant"


# --- batches of anybody's ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch._replace(mask=batch.mask.astype(bool)),
        lambda batch: batch._replace(inputs=np.asfortranarray(batch.inputs)),
        lambda batch: batch._replace(inputs=batch.inputs.astype(np.float64), targets=batch.targets[:, ::-1][:, ::-1]),
    ],
)
def test_other_types_and_orders_of_numbers_change_nothing(backend, change):
    experiment = small(batch_size=3)
    task, (batch,) = batches(experiment, 1)
    losses = [build(experiment, backend).step(task, made, 0) for made in (batch, change(batch))]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "change",
    [
        lambda batch: {"inputs": batch.inputs[..., :3]},
        lambda batch: {"targets": batch.targets[:-1]},
        lambda batch: {"mask": batch.mask[..., None]},
        lambda batch: {"lengths": batch.lengths + 1},
        lambda batch: {"lengths": 0 * batch.lengths},
        lambda batch: {"lengths": batch.lengths[:1]},
    ],
)
def test_a_batch_that_does_not_fit_is_refused(backend, change):
    experiment = small(batch_size=3)
    task, (batch,) = batches(experiment, 1)
    with pytest.raises(UserError, match=r"a batch must have inputs \(T, B, 4\), targets \(T, B, 2\), a mask"):
        build(experiment, backend).step(task, batch._replace(**change(batch)), 0)
