"""Learning with a repertoire: nothing moves but the program that learns, resuming is exact, no label is needed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import nsm
from nsm import Repertoire
from nsm.training.evaluation import VALIDATION, evaluate
from nsm.training.loop import build, train
from nsm.training.run import RunDirectory
from training.small_runs import contents, continual
from training.test_training_resume import interrupted_at

QUICK = Repertoire(count=5, youth=4, patience=2)


def growing(iterations, **changes):
    """Four tasks with a few iterations each, for machines that claim a program within two batches."""
    experiment = continual(iterations, **changes)
    return replace(experiment, machine=replace(experiment.machine, programs=None, repertoire=QUICK))


def of_task(experiment, part, number):
    weights = tuple(float(index == part) for index in range(4))
    return list(experiment.task.weighted(weights).batches(0, 0, 0, number, 16))


def weights_of(program):
    return torch.cat([parameter.detach().flatten().clone() for parameter in program.parameters()])


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_frozen_programs_do_not_change(backend):
    experiment = growing(100)
    learner = build(experiment, backend)
    programs = learner.machine.programs
    for step, batch in enumerate(of_task(experiment, 0, 6)):
        learner.step(experiment.task, batch, step)
    before = [weights_of(program) for program in programs]
    for step, batch in enumerate(of_task(experiment, 3, 6), start=6):
        learner.step(experiment.task, batch, step)
    after = [weights_of(program) for program in programs]
    assert int(learner.machine.claimed) == 2
    moved = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert moved == [False, True, False, False, False]


def test_a_batch_that_nobody_learns_from_moves_nothing_and_has_a_loss():
    experiment = growing(100)
    learner = build(experiment, "fused")
    for step, batch in enumerate(of_task(experiment, 0, 8)):
        learner.step(experiment.task, batch, step)
    before = {name: tensor.clone() for name, tensor in learner.machine.state_dict().items()}
    first = of_task(experiment, 3, 1)[0]
    loss = learner.step(experiment.task, first, 8)
    assert np.isfinite(loss)
    assert loss > 0.1
    changed = [name for name, tensor in learner.machine.state_dict().items() if not torch.equal(tensor, before[name])]
    assert changed == ["doubt"]


def test_which_task_is_drawn_is_not_told():
    """The same inputs under another name, target and weight of the mixture are routed alike."""
    experiment = growing(100)
    found = []
    for disguised in (False, True):
        learner = build(experiment, "fused")
        for step, batch in enumerate(of_task(experiment, 0, 6) + of_task(experiment, 3, 6)):
            told = batch._replace(subtask=np.full_like(batch.subtask, step % 3)) if disguised else batch
            learner.step(experiment.task.weighted((1.0, 1.0, 1.0, 1.0)) if disguised else experiment.task, told, step)
        found.append({name: tensor.clone() for name, tensor in learner.machine.state_dict().items()})
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())


def test_an_interrupted_run_equals_a_straight_one(tmp_path):
    experiment = growing(40, batch_size=16)
    train(experiment, tmp_path / "straight", "fused")
    assert int(RunDirectory(tmp_path / "straight").machine("last").claimed) > 2
    expected = contents(tmp_path / "straight")
    for step in (1, 10, 11, 12, 13, 20, 22, 31, 39):
        interrupted_at(step, experiment, tmp_path / f"at-{step}")
        train(experiment, tmp_path / f"at-{step}", "fused")
        assert contents(tmp_path / f"at-{step}") == expected, step


def test_a_run_of_it_is_tested_like_any_other(tmp_path):
    run = nsm.train(growing(40, batch_size=16), out=tmp_path)
    outcome = run.outcome()
    assert len(outcome.phases) == 4
    assert outcome.parameters == sum(p.numel() for p in run.machine("last").parameters())
    results = run.tests(sequences=20)
    assert list(results) == list(outcome.phases[0])


def test_a_task_that_asks_for_something_else_after_the_same_inputs_is_not_noticed():
    """It goes by inputs, and learns the new answers over the old (docs/howto/continual-learning.md)."""
    experiment = growing(100)
    learner = build(experiment, "fused")
    batches = of_task(experiment, 0, 40)
    for step, batch in enumerate(batches):
        other = batch if step < 20 else batch._replace(targets=1 - batch.targets)
        learner.step(experiment.task, other, step)
    assert int(learner.machine.claimed) == 1
    assert int(learner.machine.age) == 40


def labelled(iterations, **changes):
    experiment = growing(iterations, **changes)
    return replace(experiment, machine=replace(experiment.machine, repertoire=replace(QUICK, labels=True)))


def test_labels_give_every_task_a_program_from_its_first_batch_on():
    experiment = labelled(100)
    learner = build(experiment, "fused")
    programs = learner.machine.programs
    for part in (0, 2, 0):
        learner.part, before = part, [weights_of(program) for program in programs]
        (batch,) = of_task(experiment, part, 1)
        learner.step(experiment.task, batch, part)
        moved = [not torch.equal(a, weights_of(program)) for a, program in zip(before, programs, strict=True)]
        assert moved == [index == part for index in range(5)]
    heard = learner.machine.familiarity.counts.sum(dim=1) > 0
    assert heard.tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("labels", [False, True])
def test_the_loss_on_keys_starts_anew_with_every_program(labels):
    experiment = labelled(100) if labels else growing(100)
    learner = build(experiment, "fused")
    for step, batch in enumerate(of_task(experiment, 0, 6) + of_task(experiment, 3, 6)):
        learner.part = 0 if step < 6 else 1
        learner.step(experiment.task, batch, step)
    began = [program.began for program in learner.learners[:2]]
    # Without labels two batches pass before there is a second program, which learns from the second of them.
    assert began == [0, 6 if labels else 7]


def test_labels_choose_who_is_evaluated(tmp_path):
    """After each phase every task is answered by its own program, whatever the routing would say."""
    run = nsm.train(labelled(8, batch_size=16), out=tmp_path)
    programs = run.machine("last").programs
    last = run.outcome().phases[-1]
    for program, (name, task) in zip(programs, run.experiment.task.parts.items(), strict=False):
        figures = evaluate(program, task, 6, 0, VALIDATION).averages()
        assert figures["bit_accuracy"] == pytest.approx(last[name], abs=1e-6)


def test_an_interrupted_run_with_labels_equals_a_straight_one(tmp_path):
    train(labelled(12), tmp_path / "straight", "fused")
    interrupted_at(7, labelled(12), tmp_path / "resumed")
    train(labelled(12), tmp_path / "resumed", "fused")
    assert contents(tmp_path / "resumed") == contents(tmp_path / "straight")


def test_labels_need_one_task_after_another_and_enough_programs():
    experiment = labelled(8)
    with pytest.raises(nsm.UserError, match="task labels need a curriculum of one task after another"):
        replace(experiment, schedule=replace(experiment.schedule, curriculum=None))
    few = replace(experiment.machine, repertoire=Repertoire(count=3, labels=True))
    with pytest.raises(nsm.UserError, match="one program for each of the 4 tasks, and has 3"):
        replace(experiment, machine=few)


def test_persistent_memory_is_refused():
    with pytest.raises(nsm.UserError, match="persistent memory and a repertoire exclude each other"):
        replace(growing(8), schedule=replace(growing(8).schedule, persistent=True))
