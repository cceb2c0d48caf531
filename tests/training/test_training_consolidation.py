"""Elastic weight consolidation: the penalty's gradient, the Fisher information, runs that resume."""

from dataclasses import replace

import pytest
import torch

import nsm
from nsm.training import learner as learning
from nsm.training.consolidation import FISHER, Consolidation
from nsm.training.loop import build, train
from training.small_runs import contents, continual, small
from training.test_training_resume import interrupted_at

FEW = 12
"""Sequences that F is measured on here."""


def held(iterations, strength=50.0, **changes):
    return continual(iterations, consolidation=strength, **changes)


def test_the_pull_is_the_gradient_of_the_penalty():
    """Of L = λ/2 Σ_k Σ_i F_k,i (θ_i − θ*_k,i)² for two tasks, by autograd."""
    generator = torch.Generator().manual_seed(0)
    fishers, anchors = torch.rand(2, 7, generator=generator), torch.randn(2, 7, generator=generator)
    weights = anchors[0].clone()
    consolidation = Consolidation(3.0, weights)
    for fisher, anchor in zip(fishers, anchors, strict=True):
        weights.copy_(anchor)
        consolidation.hold(fisher)
    weights.copy_(torch.randn(7, generator=generator))
    theta = weights.clone().requires_grad_()
    (1.5 * (fishers * (theta - anchors) ** 2).sum()).backward()
    gradient = torch.ones(7)
    consolidation.pull(gradient)
    torch.testing.assert_close(gradient, 1 + theta.grad)


def test_nothing_pulls_before_the_first_task_has_ended():
    weights = torch.randn(5)
    gradient = torch.zeros(5)
    Consolidation(10.0, weights).pull(gradient)
    assert not gradient.any()


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_fisher_information_is_the_mean_squared_gradient_of_single_sequences(backend, monkeypatch):
    monkeypatch.setattr(learning, "SEQUENCES", FEW)
    experiment = held(100)
    learner = build(experiment, backend)
    task = experiment.task.weighted((1.0, 0.0, 0.0, 0.0))
    learner.consolidate(task, 20)
    machine = learner.machine
    machine.backend = "reference"
    parameters = list(machine.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in task.batches(experiment.seed, FISHER, 20, 20 + FEW, 1):
        logits, _ = machine(torch.from_numpy(batch.inputs), lengths=batch.lengths.tolist())
        gradients = torch.autograd.grad(task.loss(logits, batch), parameters)
        total = [sum_ + gradient**2 / FEW for sum_, gradient in zip(total, gradients, strict=True)]
    fisher = learner.optimiser_tensors()["fisher"]
    learner.gradient.copy_(fisher)  # parameters' gradients are views of it
    for parameter, expected in zip(parameters, total, strict=True):
        assert expected.max() > 0
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-3, atol=1e-4 * float(expected.max()))
    torch.testing.assert_close(learner.optimiser_tensors()["anchored"], fisher * learner.flat)


def test_a_strong_hold_keeps_the_weights_where_they_were():
    """Gradients are divided by their size: what holds is the direction, back to where the weights were."""
    moved = {}
    for strength in (1e-9, 1e6):
        learner = build(held(100, strength), "fused")
        task = learner.experiment.task
        first, second = (task.weighted(tuple(float(i == part) for i in range(4))) for part in (0, 3))
        for step, batch in enumerate(first.batches(0, 0, 0, 20, 4)):
            learner.step(task, batch, step)
        learner.consolidate(first, 20)
        before = learner.flat.clone()
        needed = learner.optimiser_tensors()["fisher"] > 0
        for step, batch in enumerate(second.batches(0, 0, 20, 60, 4), start=20):
            learner.step(task, batch, step)
        moved[strength] = float((learner.flat - before)[needed].abs().mean())
    assert moved[1e6] < 0.5 * moved[1e-9]


def test_an_interrupted_run_equals_a_straight_one(tmp_path):
    train(held(20), tmp_path / "straight", "fused")
    expected = contents(tmp_path / "straight")
    for step in (4, 5, 6, 13):
        interrupted_at(step, held(20), tmp_path / f"at-{step}")
        train(held(20), tmp_path / f"at-{step}", "fused")
        assert contents(tmp_path / f"at-{step}") == expected, step


def test_it_changes_a_run_only_after_its_first_task(tmp_path):
    ways = {"held": held(8, strength=1e4), "free": continual(8)}
    runs = {name: train(experiment, tmp_path / name, "fused") for name, experiment in ways.items()}
    assert runs["held"].phases[0] == runs["free"].phases[0]
    weights = [nsm.open(tmp_path / name).machine("last").output.weight for name in ways]
    assert not torch.equal(*weights)


def test_it_needs_phases_and_a_single_machine():
    with pytest.raises(nsm.UserError, match="consolidation must be 0 without a curriculum"):
        small(consolidation=1.0)
    with pytest.raises(nsm.UserError, match="consolidation must be 0 with persistent memory"):
        held(8, persistent=True)
    machine = replace(held(8).machine, programs=None, repertoire=nsm.Repertoire())
    with pytest.raises(nsm.UserError, match="consolidation must be 0 with a repertoire"):
        replace(held(8), machine=machine)
