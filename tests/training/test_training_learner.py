"""One iteration: what enters the gradient, what is drawn for it, and that all of it follows from seed and step."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nsm.experiments.models import models
from nsm.experiments.paper import EXPERIMENTS, cells
from nsm.experiments.recipes import FEW_SHOT, RELIABLE, recipe
from nsm.programs import Programs
from nsm.tasks import TASKS
from nsm.training.loop import TRAIN, build, task_pair
from training.small_runs import small

BACKENDS = ["fused", "reference"]


def batches(config, count):
    task = task_pair(config).train
    return task, task.block(config.seed, TRAIN, 0, count, config.batch_size)


def gradient_at(step, config, backend, monkeypatch):
    """The gradient that the update of a step would use."""
    learner = build(config, backend)
    task, block = batches(config, 1)
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
    config = small()
    called = []
    learner = build(config, "fused")
    true_loss = learner.machine.program_loss
    monkeypatch.setattr(learner.machine, "program_loss", lambda: called.append(True) or true_loss())
    task, block = batches(config, 1)
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
    config = small(key_loss=0.0)
    learner = build(config, backend)
    task, block = batches(config, 1)
    monkeypatch.setattr(learner.optimiser, "step", lambda rate: None)
    gradients = []
    for _ in range(2):
        learner.step(task, block[0], 3)
        gradients.append(learner.gradient.clone())
    assert torch.equal(*gradients)


def test_what_is_returned_is_the_tasks_loss_alone():
    config = small(key_loss=5.0)
    learner, (task, block) = build(config, "fused"), batches(config, 1)
    x, lengths = torch.from_numpy(block[0].inputs), block[0].lengths.tolist()
    logits, _ = learner.machine(x, lengths=lengths)
    expected = task.loss(logits, block[0]).item()
    assert learner.step(task, block[0], 0) == pytest.approx(expected, rel=1e-5)


# --- tape size and noise ----------------------------------------------------------------------------------------------


def drawn_slots(config, count=2000):
    learner = build(config, "fused")
    task, block = batches(replace(config, seed=0), 1)  # the same batch, whatever the seed of the draws
    return task.min_slots(block[0]), np.array([learner._draw(task, block[0], step)[0] for step in range(count)])


def wide(**changes):
    config = small(**changes)
    return replace(config, machine=replace(config.machine, memory=replace(config.machine.memory, slots=64)))


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
    config = small(random_slots=True)
    learner = build(config, "fused")
    task, block = batches(config, 1)
    learner.machine.memory.slots = task.min_slots(block[0]) - 1
    assert {learner._draw(task, block[0], step)[0] for step in range(20)} == {task.min_slots(block[0]) - 1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_drawn_tape_is_the_one_that_is_used(monkeypatch, backend):
    config = wide(random_slots=True)
    learner = build(config, backend)
    task, block = batches(config, 1)
    used, initial_state = [], learner.machine.initial_state
    monkeypatch.setattr(
        learner.machine, "initial_state", lambda batch, slots=None: used.append(slots) or initial_state(batch, slots)
    )
    expected = learner._draw(task, block[0], 7)[0]
    learner.step(task, block[0], 7)
    assert used[0] == expected != 64


def test_noise_has_the_deviation_asked_for_and_follows_from_seed_and_step():
    config = small(cell_noise=0.3, batch_size=50, size=16)
    learner = build(config, "fused")
    task, block = batches(config, 1)
    slots, noise = learner._draw(task, block[0], 0)
    assert slots is None
    assert noise.programs is None
    assert noise.cell.shape == (*block[0].mask.shape, 16)
    assert noise.cell.std() == pytest.approx(0.3, rel=0.05)
    assert noise.cell.mean() == pytest.approx(0, abs=0.02)
    assert (noise.cell == learner._draw(task, block[0], 0)[1].cell).all()
    assert (noise.cell != learner._draw(task, block[0], 1)[1].cell).any()


def test_gumbel_noise_is_drawn_for_gumbel_programs_only():
    config = small(batch_size=50)
    hard = replace(config, machine=replace(config.machine, programs=Programs(3, attention="gumbel")))
    learner = build(hard, "fused")
    task, block = batches(hard, 1)
    noise = learner._draw(task, block[0], 0)[1].programs
    assert noise.shape == (*block[0].mask.shape, 2, 3)
    # Gumbel: mean 0.577, variance π²/6.
    assert noise.mean() == pytest.approx(0.577, abs=0.05)
    assert noise.var() == pytest.approx(math.pi**2 / 6, rel=0.1)
    assert build(config, "fused")._draw(task, block[0], 0) == (None, (None, None))


@pytest.mark.parametrize("backend", BACKENDS)
def test_noise_changes_the_loss_in_training_and_never_in_evaluation(backend):
    from nsm.training.evaluation import evaluate

    quiet, noisy = small(), small(cell_noise=2.0)
    task, block = batches(quiet, 1)
    assert build(quiet, backend).step(task, block[0], 0) != build(noisy, backend).step(task, block[0], 0)
    figures = [evaluate(build(config, backend).machine, task, 10) for config in (quiet, noisy)]
    assert figures[0] == figures[1]


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_the_presets_of_the_paper_have_neither(preset):
    for task in TASKS:
        if task == "tiny-copy":
            continue
        for model in models(task):
            config = recipe(task, model, preset)
            assert not config.random_slots
            assert config.cell_noise == 0
            assert config.rewind == 0
            assert config.optimiser.final_rate == 1
            assert config.ragged is False or task in FEW_SHOT, "all episodes are equally long"
    for experiment in EXPERIMENTS:
        assert not any(cell.config.random_slots or cell.config.cell_noise for cell in cells(experiment, preset))


def test_the_default_preset_has_both_where_they_help():
    assert recipe("copy", "nutm").random_slots
    assert recipe("copy", "nutm").cell_noise == 0.3
    assert recipe("associative-recall", "nutm").random_slots
    assert recipe("associative-recall", "nutm").cell_noise == 0, "noise keeps Associative Recall from learning"
    ours, alone = ({task for task in known if "+" not in task} for known in (RELIABLE, TASKS))
    assert ours == alone - {"tiny-copy", *FEW_SHOT}


def test_sorting_starts_from_a_random_tape_and_comes_back_when_it_is_thrown_off():
    for task in ("priority-sort", "copy+priority-sort"):
        for model in models(task):
            config = recipe(task, model)
            assert (config.machine.memory.initial_memory, config.machine.memory.initial_address) == ("random", "zeros")
            assert config.rewind == 0.05
    assert recipe("copy+repeat-copy", "nutm").machine.memory.initial_memory == "constant"
