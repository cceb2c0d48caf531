"""Persistent memory: a batch begins with what the one before left in it, and with nothing else of it."""

import json
from dataclasses import replace

import pytest
import torch

from cli.conftest import call
from nsm import DNC, LRUA
from nsm.checks import UserError
from nsm.experiments.results import Key, publish_machine
from nsm.pytree import tree_map
from nsm.training import checkpoints, evaluation
from nsm.training.checkpoints import Checkpoint
from nsm.training.evaluation import TEST, evaluate
from nsm.training.learner import memory_state
from nsm.training.loop import TRAIN, build, train
from nsm.training.result import Score
from nsm.training.run import RunDirectory
from training.small_runs import TASK, small

BACKENDS = ["fused", "reference"]


def persistent(memory=None, **changes):
    experiment = small(persistent=True, **changes)
    return experiment if memory is None else replace(experiment, machine=replace(experiment.machine, memory=memory))


def steps(learner, experiment, count, first=0):
    task = experiment.task
    batches = task.batches(experiment.seed, TRAIN, first, first + count, experiment.schedule.batch_size)
    return [learner.step(task, batch, step) for step, batch in enumerate(batches, first)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_batch_begins_where_the_first_one_ended(backend):
    experiment = persistent()
    task, learner = experiment.task, build(experiment, backend)
    first, second = (task.batch(0, 0, step, 2) for step in range(2))
    machine = learner.machine

    def forward(batch, memory=None):
        state = machine.initial_state(2)
        state = state if memory is None else state._replace(memory=memory)
        logits, final = machine(torch.from_numpy(batch.inputs), state, lengths=batch.lengths.tolist())
        return task.loss(logits, batch).item(), tree_map(torch.clone, final.memory)

    with torch.no_grad():
        fresh, left = forward(first)
    assert learner.step(task, first, 0) == pytest.approx(fresh, rel=1e-5)
    torch.testing.assert_close(tuple(learner.memory), tuple(left))
    with torch.no_grad():
        continued, _ = forward(second, left)
        wiped, _ = forward(second)
    assert learner.step(task, second, 1) == pytest.approx(continued, rel=1e-5)
    assert continued != pytest.approx(wiped, rel=1e-4), "what was left makes no difference here"


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_may_be_wiped_at_first(backend):
    experiment = persistent(wiped_steps=2)
    wiped, kept, both = (steps(build(c, backend), c, 4) for c in (small(), persistent(), experiment))
    assert both[:2] == pytest.approx(wiped[:2], rel=1e-6)
    assert both[1] != pytest.approx(kept[1], rel=1e-4)
    assert both[2] != pytest.approx(wiped[2], rel=1e-4)
    with pytest.raises(UserError, match="wiped_steps must be 0 unless memory is persistent, was 2"):
        small(wiped_steps=2)


def test_no_gradient_crosses_the_border():
    """The gradient of the second batch alone, its memory a constant, and that of both back ends."""
    experiment = persistent()
    gradients = []
    for backend in BACKENDS:
        learner = build(experiment, backend)
        task = experiment.task
        first, second = (task.batch(0, 0, step, 2) for step in range(2))
        learner._gradients(task, first, *learner._draw(task, first, 0))
        constant = tree_map(lambda leaf: leaf.clone().requires_grad_(), learner.memory)
        learner.gradient.zero_()
        learner._gradients(task, second, *learner._draw(task, second, 1))
        gradients.append(learner.gradient.clone())
        learner.gradient.zero_()
        state = learner.machine.initial_state(2)._replace(memory=constant)
        logits, _ = learner.machine(torch.from_numpy(second.inputs), state, lengths=second.lengths.tolist())
        task.loss(logits, second).backward()
        assert constant.memory.grad.any(), "there would have been one"
        torch.testing.assert_close(gradients[-1], learner.gradient, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("memory", [None, LRUA(slots=8, width=4, read_heads=2), DNC(slots=8, width=4)])
def test_both_back_ends_learn_alike(memory):
    experiment = persistent(memory)
    losses = [steps(build(experiment, backend), experiment, 8) for backend in BACKENDS]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("memory", [None, LRUA(slots=8, width=4, read_heads=2), DNC(slots=8, width=4)])
def test_a_saved_learner_goes_on_as_if_nothing_had_happened(tmp_path, backend, memory):
    experiment = persistent(memory)
    straight = build(experiment, backend)
    losses = steps(straight, experiment, 6)
    begun = build(experiment, backend)
    assert steps(begun, experiment, 3) == losses[:3]
    resumed = build(experiment, backend)
    parts = begun.machine.state_dict(), begun.optimiser.state(), begun.memory_tensors()
    path = checkpoints.save(tmp_path, Checkpoint(3, *parts, {"best_step": None}))
    resumed.resume(path, checkpoints.load(path))
    assert steps(resumed, experiment, 3, first=3) == losses[3:]
    torch.testing.assert_close(resumed.flat, straight.flat, rtol=0, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_preparing_leaves_nothing_in_memory(backend):
    experiment = persistent()
    learner = build(experiment, backend)
    learner.prepare(experiment.task)
    assert learner.memory is None
    assert learner.memory_tensors() == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_wiped_memory_is_not_kept(backend):
    experiment = small()
    learner = build(experiment, backend)
    steps(learner, experiment, 2)
    assert learner.memory is None


def test_evaluation_fills_memory_before_it_counts(monkeypatch):
    monkeypatch.setattr("nsm.tasks.task.EXAMINED", 4)
    monkeypatch.setattr(evaluation, "FILLING", 2)
    machine = build(small(size=16), "reference").machine.eval()
    found = evaluate(machine, TASK.test, 10, seed=3, persistent=True)
    memory, total = None, None
    with torch.no_grad():
        for step, size in enumerate([4, 4, 4, 4, 2]):
            batch = TASK.test.batch(3, TEST, step, size)
            state = machine.initial_state(size)
            if memory is not None:
                state = state._replace(memory=type(memory)(*(leaf[:size] for leaf in memory)))
            logits, final = machine(torch.from_numpy(batch.inputs), state, lengths=batch.lengths.tolist())
            memory = final.memory
            if step >= 2:
                metrics = TASK.test.metrics(logits, batch)
                total = metrics if total is None else total + metrics
    assert found == total
    assert found.sequences == 10
    assert found != evaluate(machine, TASK.test, 10, seed=3)


def test_evaluation_goes_on_with_the_memory_that_training_left(monkeypatch, tmp_path):
    """Three samples' memory for batches of four: the first sample's is used twice, and nothing is filled."""
    monkeypatch.setattr("nsm.tasks.task.EXAMINED", 4)
    experiment = persistent(batch_size=3, test_sequences=6)
    outcome = train(experiment, tmp_path, "reference")
    run = RunDirectory(tmp_path)
    machine, saved = run.machine("last", "reference"), run.checkpoint("last").memory
    memory, total = memory_state(machine, saved), None
    assert memory.memory.shape[0] == 3
    memory = tree_map(lambda leaf: leaf[[0, 1, 2, 0]], memory)
    with torch.no_grad():
        for step, size in enumerate([4, 2]):
            batch = TASK.test.batch(experiment.seed, TEST, step, size)
            state = machine.initial_state(size)._replace(memory=tree_map(lambda leaf, n=size: leaf[:n], memory))
            logits, final = machine(torch.from_numpy(batch.inputs), state, lengths=batch.lengths.tolist())
            memory = final.memory
            metrics = TASK.test.metrics(logits, batch)
            total = metrics if total is None else total + metrics
    assert outcome.last == Score(experiment.schedule.iterations, total.averages())
    said = call("eval", tmp_path, "--which", "last", "--backend", "reference", "--json")
    assert json.loads(said.out)["figures"]["loss"] == outcome.last.figures["loss"]
    publish_machine(run, tmp_path / "published", Key("fewshot", "default", "copy", "nutm", 0))
    published = RunDirectory(tmp_path / "published").checkpoint("best")
    assert published.optimiser == {}
    for name, leaf in run.checkpoint("best").memory.items():
        assert torch.equal(published.memory[name], leaf), name


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_batches_of_another_size_do_not_fit_the_memory(backend):
    experiment = small(persistent=True)
    learner, task = build(experiment, backend), experiment.task
    learner.step(task, task.batch(0, 0, 0, 4), 0)
    with pytest.raises(UserError, match="batches of one size: it has 4 sequences, and batch 2 has 3"):
        learner.step(task, task.batch(0, 0, 1, 3), 1)


def test_a_tape_of_changing_size_cannot_be_kept():
    with pytest.raises(UserError, match="persistent and random_slots can't be combined"):
        small(persistent=True, random_slots=True)


def test_persistent_memory_is_its_own():
    """The kernels use their buffers again: what is kept must not lie in one."""
    experiment = persistent()
    learner = build(experiment, "fused")
    steps(learner, experiment, 1)
    before = tree_map(torch.clone, learner.memory)
    task = small().task
    learner.schedule = small().schedule  # the next batch keeps nothing
    learner.step(task, task.batch(5, 0, 9, 2), 1)
    torch.testing.assert_close(tuple(learner.memory), tuple(before), rtol=0, atol=0)
