"""Persistent memory: a batch begins with what the one before left in it, and with nothing else of it."""

import json
from dataclasses import replace

import pytest
import torch

from cli.conftest import call
from nsm import DNC, LRUA, nested
from nsm.checks import UserError
from nsm.experiments.results import Key, keep_machine
from nsm.training import evaluation
from nsm.training.evaluation import TEST, evaluate
from nsm.training.learner import kept_memory
from nsm.training.loop import _batches, build, task_pair, train
from nsm.training.run import RunDirectory
from training.small_runs import TASK, small

BACKENDS = ["fused", "reference"]


def kept_config(memory=None, **changes):
    config = small(persistent=True, **changes)
    return config if memory is None else replace(config, machine=replace(config.machine, memory=memory))


def steps(learner, config, count, first=0):
    task = task_pair(config).train
    found = zip(range(first, first + count), _batches(task, config, first), strict=False)
    return [learner.step(task, batch, step) for step, batch in found]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_batch_begins_where_the_first_one_ended(backend):
    config = kept_config()
    task, learner = task_pair(config).train, build(config, backend)
    first, second = (task.batch(0, 0, step, 2) for step in range(2))
    machine = learner.machine

    def forward(batch, memory=None):
        state = machine.initial_state(2)
        state = state if memory is None else state._replace(memory=memory)
        logits, final = machine(torch.from_numpy(batch.inputs), state, lengths=batch.lengths.tolist())
        return task.loss(logits, batch).item(), nested.apply(torch.clone, final.memory)

    with torch.no_grad():
        fresh, left = forward(first)
    assert learner.step(task, first, 0) == pytest.approx(fresh, rel=1e-5)
    torch.testing.assert_close(tuple(learner.kept), tuple(left))
    with torch.no_grad():
        continued, _ = forward(second, left)
        wiped, _ = forward(second)
    assert learner.step(task, second, 1) == pytest.approx(continued, rel=1e-5)
    assert continued != pytest.approx(wiped, rel=1e-4), "what was left makes no difference here"


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_may_be_wiped_at_first(backend):
    config = kept_config(wiped_steps=2)
    wiped, persistent, both = (
        steps(build(c, backend), c, 4)
        for c in (replace(config, wiped_steps=0, persistent=False), replace(config, wiped_steps=0), config)
    )
    assert both[:2] == pytest.approx(wiped[:2], rel=1e-6)
    assert both[1] != pytest.approx(persistent[1], rel=1e-4)
    assert both[2] != pytest.approx(wiped[2], rel=1e-4)
    with pytest.raises(UserError, match="wiped_steps must be 0 unless memory is persistent, was 2"):
        small(wiped_steps=2)


def test_no_gradient_crosses_the_border():
    """The gradient of the second batch alone, its memory a constant, and that of both back ends."""
    config = kept_config()
    gradients = []
    for backend in BACKENDS:
        learner = build(config, backend)
        task = task_pair(config).train
        first, second = (task.batch(0, 0, step, 2) for step in range(2))
        learner._gradients(task, first, *learner._draw(task, first, 0))
        constant = nested.apply(lambda leaf: leaf.clone().requires_grad_(), learner.kept)
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
    config = kept_config(memory)
    losses = [steps(build(config, backend), config, 8) for backend in BACKENDS]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("memory", [None, LRUA(slots=8, width=4, read_heads=2), DNC(slots=8, width=4)])
def test_a_saved_learner_goes_on_as_if_nothing_had_happened(backend, memory):
    config = kept_config(memory)
    straight = build(config, backend)
    losses = steps(straight, config, 6)
    begun = build(config, backend)
    assert steps(begun, config, 3) == losses[:3]
    resumed = build(config, backend)
    resumed.machine.load_state_dict(begun.machine.state_dict())
    resumed.restore({name: tensor.clone() for name, tensor in begun.state().items()})
    assert steps(resumed, config, 3, first=3) == losses[3:]
    torch.testing.assert_close(resumed.flat, straight.flat, rtol=0, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_preparing_leaves_nothing_in_memory(backend):
    config = kept_config()
    learner = build(config, backend)
    learner.prepare(task_pair(config).train)
    assert learner.kept is None
    assert not any(name.startswith("kept.") for name in learner.state())


@pytest.mark.parametrize("backend", BACKENDS)
def test_wiped_memory_is_not_kept(backend):
    config = small()
    learner = build(config, backend)
    steps(learner, config, 2)
    assert learner.kept is None


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
    config = replace(kept_config(), batch_size=3, test_sequences=6)
    result = train(config, tmp_path, "reference")
    run = RunDirectory(tmp_path)
    machine, saved = run.machine("last", "reference").eval(), run.checkpoint("last").optimiser
    memory, total = kept_memory(machine, saved), None
    assert memory.memory.shape[0] == 3
    memory = nested.apply(lambda leaf: leaf[[0, 1, 2, 0]], memory)
    with torch.no_grad():
        for step, size in enumerate([4, 2]):
            batch = TASK.test.batch(config.seed, TEST, step, size)
            state = machine.initial_state(size)._replace(memory=nested.apply(lambda leaf, n=size: leaf[:n], memory))
            logits, final = machine(torch.from_numpy(batch.inputs), state, lengths=batch.lengths.tolist())
            memory = final.memory
            metrics = TASK.test.metrics(logits, batch)
            total = metrics if total is None else total + metrics
    assert result["last"] == {"step": config.iterations, **total.averages()}
    said = call("eval", tmp_path, "--which", "last", "--backend", "reference", "--json")
    assert json.loads(said.out)["loss"] == result["last"]["loss"]
    keep_machine(run, tmp_path / "kept", Key("fewshot", "default", "tiny-copy", "nutm", 0))
    best = RunDirectory(tmp_path / "kept").checkpoint("best").optimiser
    assert {name for name in saved if name.startswith("kept.")} == best.keys()


def test_a_tape_of_changing_size_cannot_be_kept():
    with pytest.raises(UserError, match="persistent and random_slots exclude each other"):
        small(persistent=True, random_slots=True)


def test_kept_memory_is_its_own():
    """The kernels use their buffers again: what is kept must not lie in one."""
    config = kept_config()
    learner = build(config, "fused")
    steps(learner, config, 1)
    before = nested.apply(torch.clone, learner.kept)
    task = task_pair(small()).train
    learner.config = small()  # the next batch keeps nothing
    learner.step(task, task.batch(5, 0, 9, 2), 1)
    torch.testing.assert_close(tuple(learner.kept), tuple(before), rtol=0, atol=0)
