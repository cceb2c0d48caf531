"""Evaluation: fixed sequences, the same figures every time, whatever is computed beside a sequence."""

from dataclasses import replace

import pytest
import torch

from nsm.programs import Programs
from nsm.tasks import Batch, Copy, with_ranges
from nsm.training import loop
from nsm.training.evaluation import TEST, VALIDATION, evaluate
from nsm.training.loop import TRAIN, build
from training.small_runs import TASK, small

BACKENDS = ["fused", "reference"]


@pytest.fixture(params=BACKENDS)
def machine(request):
    return build(small(size=16), request.param).machine


def single(batch: Batch, i: int) -> Batch:
    """One sequence of a batch, alone and without padding."""
    end = int(batch.lengths[i])
    cut = [array[:end, i : i + 1] for array in (batch.inputs, batch.targets, batch.mask)]
    return Batch(*cut, batch.lengths[i : i + 1], batch.decoding[i : i + 1], batch.subtask[:end, i : i + 1])


def test_the_same_figures_every_time(machine):
    assert evaluate(machine, TASK, 60) == evaluate(machine, TASK, 60)


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_that_are_drawn_in_training_are_not_in_evaluation(backend):
    experiment = small()
    hard = replace(experiment, machine=replace(experiment.machine, programs=Programs(6, attention="gumbel")))
    machine = build(hard, backend).machine.train()
    assert evaluate(machine, TASK, 20) == evaluate(machine, TASK, 20)


def test_a_published_test_draws_noise_the_same_every_time():
    experiment = small()
    programs = Programs(6, attention="gumbel-probabilities", temperature=0.1)
    drawn, calm = (
        build(replace(experiment, machine=replace(experiment.machine, programs=config))).machine
        for config in (programs, replace(programs, attention="key-value"))
    )
    calm.load_state_dict(drawn.state_dict())
    assert evaluate(drawn, TASK, 20, seed=3) == evaluate(drawn, TASK, 20, seed=3)
    assert evaluate(drawn, TASK, 20, seed=3).nats != evaluate(calm, TASK, 20, seed=3).nats


def test_figures_are_those_of_the_sequences_one_by_one(machine, monkeypatch):
    monkeypatch.setattr("nsm.tasks.task.EXAMINED", 8)
    together = evaluate(machine, TASK, 20, seed=3)
    alone = None
    for step, size in enumerate((8, 8, 4)):
        batch = TASK.batch(3, TEST, step, size)
        for i in range(size):
            one = single(batch, i)
            with torch.no_grad():
                logits, _ = machine.eval()(torch.from_numpy(one.inputs))
            metrics = TASK.metrics(logits, one)
            alone = metrics if alone is None else alone + metrics
    assert together.sequences == alone.sequences == 20
    assert (together.bits, together.bit_errors, together.perfect) == (alone.bits, alone.bit_errors, alone.perfect)
    assert together.nats == pytest.approx(alone.nats, rel=1e-5)
    assert together.l1_errors == pytest.approx(alone.l1_errors, rel=1e-5)


def test_more_sequences_are_the_same_ones_and_more():
    task = TASK
    first = [task.batch(0, TEST, 0, size) for size in (10, 50)]
    for i in range(10):
        for few, many in zip(single(first[0], i), single(first[1], i), strict=True):
            assert (few == many).all()


def test_streams_of_training_validation_and_test_sequences_differ():
    assert len({TRAIN, VALIDATION, TEST}) == 3
    longer = Copy(width=8, length=(10, 10))
    batches = [longer.batch(0, stream, 0, 1).inputs.tobytes() for stream in (TRAIN, VALIDATION, TEST)]
    assert len(set(batches)) == 3


def test_the_machine_is_left_as_it_was(machine):
    before = {name: tensor.clone() for name, tensor in machine.state_dict().items()}
    for training in (True, False):
        machine.train(training)
        evaluate(machine, TASK.test, 3)
        assert machine.training is training
    assert all(torch.equal(before[name], tensor) for name, tensor in machine.state_dict().items())
    assert all(parameter.requires_grad for parameter in machine.parameters())


def test_any_length_and_any_tape(machine):
    for length, slots in ((1, None), (30, 64), (4, 2)):
        figures = evaluate(machine, with_ranges(TASK.test, length=length), 5, slots=slots).averages()
        assert figures["sequences"] == 5
    short, long = (evaluate(machine, TASK.test, 5, slots=slots).nats for slots in (4, 64))
    assert short != long


def test_a_failure_in_the_middle_leaves_the_mode_as_it_was(machine, monkeypatch):
    machine.train()
    with pytest.raises(ValueError, match="slots"):
        evaluate(machine, TASK.test, 5, slots=0)
    assert machine.training


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("test", [None, Copy(width=2)], ids=["itself", "another"])
def test_test_sequences_have_lengths_of_their_own_whatever_training_does(ragged, test):
    task = Copy(width=2, ragged=ragged, test=test)
    assert len(set(task.batch(0, TRAIN, 0, 50).lengths)) == 1 or ragged
    lengths = {int(n) for n in with_ranges(task.tested, length=(1, 20)).batch(0, TEST, 0, 50).lengths}
    assert len(lengths) > 5


def test_validation_sequences_have_lengths_of_their_own_whatever_training_does(tmp_path, monkeypatch):
    seen = []

    def looking(machine, task, sequences, seed=0, stream=TEST, **options):
        seen.append((stream, task.ragged))
        return evaluate(machine, task, sequences, seed, stream, **options)

    monkeypatch.setattr(loop, "evaluate", looking)
    loop.train(small(task=replace(TASK, ragged=False)), tmp_path, "fused")
    assert {stream for stream, _ in seen} == {VALIDATION, TEST}
    assert all(ragged for _, ragged in seen)
