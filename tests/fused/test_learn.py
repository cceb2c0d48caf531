"""Training takes a batch chunk by chunk, there and back: the gradient is that of the whole batch, on any threads."""

import copy

import numpy as np
import pytest
import torch

import nsm
from fused.compare import TIMES, TOLERANCE, errors
from nsm.fused import kernels
from nsm.tasks import Batch, Copy
from nsm.training.experiment import Experiment, Schedule
from nsm.training.learner import FusedLearner

MEMORIES = [nsm.NTM(slots=20, width=6), nsm.LRUA(slots=20, width=6), nsm.DNC(slots=20, width=6)]
LENGTHS = np.array([3, 9, 1, 7, 7, 2, 9, 5, 4, 8, 6])


def batch():
    rng = np.random.default_rng(0)
    shape = int(LENGTHS.max()), LENGTHS.size
    inputs, targets = (rng.integers(0, 2, (*shape, width)).astype(np.float32) for width in (4, 3))
    running = np.arange(shape[0])[:, None] < LENGTHS
    mask = (running & (rng.random(shape) < 0.6)).astype(np.float32)
    return Batch(inputs, targets, mask, LENGTHS, LENGTHS // 2, np.zeros(shape, np.int64))


def learner(memory, threads=1, parts=("interface",)):
    generator, stored = torch.Generator().manual_seed(0), nsm.Programs(2, parts=parts)
    machine = nsm.NUTM(4, 3, stored, controller=nsm.Controller(size=16), memory=memory, generator=generator)
    return FusedLearner(machine, Experiment(Copy(), machine.config, schedule=Schedule(key_loss=0.0)), threads)


def learned(made):
    """The loss, and its gradient by parameter."""
    made.gradient.zero_()
    loss = made._gradients(Copy(), batch(), None, nsm.Noise())
    return {"loss": np.array(loss), **{n: p.grad.numpy().copy() for n, p in made.machine.named_parameters()}}


def reference(machine, dtype):
    machine, given = copy.deepcopy(machine).to(dtype), batch()
    machine.backend = "reference"
    x, targets = torch.from_numpy(given.inputs).to(dtype), torch.from_numpy(given.targets).to(dtype)
    logits, _ = machine(x, lengths=given.lengths.tolist())
    loss = Copy().loss(logits, given._replace(targets=targets.numpy()))
    gradients = torch.autograd.grad(loss, list(machine.parameters()))
    names = [name for name, _ in machine.named_parameters()]
    return {"loss": loss.detach().numpy(), **{n: g.numpy() for n, g in zip(names, gradients, strict=True)}}


@pytest.mark.parametrize("limit", [kernels.LIMIT, 20_000])
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
@pytest.mark.parametrize("parts", [("interface",), ("interface", "state", "output")], ids="+".join)
def test_the_gradient_is_the_whole_batchs(parts, memory, limit, monkeypatch):
    """Of chunks of unequal size and weight in the loss, with the learned initial state's, in stretches or not."""
    monkeypatch.setattr(kernels, "LIMIT", limit)
    made = learner(memory, parts=parts)
    exact = reference(made.machine, torch.float64)
    assert any(".initial." in name for name in exact)
    ours = errors(learned(made), exact)
    theirs = errors(reference(made.machine, torch.float32), exact)
    assert not {name: error for name, error in ours.items() if not error < max(TOLERANCE, TIMES * theirs[name])}


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
def test_threads_change_no_bit(memory):
    first = learned(learner(memory))
    for threads in (2, 3, 8):
        again = learner(memory, threads)
        for _ in range(3):
            found = learned(again)
            assert all((found[name] == value).all() for name, value in first.items())


def test_an_error_in_one_chunk_reaches_the_caller_and_leaves_nothing_behind():
    made, expected = learner(MEMORIES[0], threads=2), learned(learner(MEMORIES[0]))
    calls = []

    class Failing(Copy):
        def loss(self, logits, batch):
            calls.append(batch)
            raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        made._gradients(Failing(), batch(), None, nsm.Noise())
    assert 1 <= len(calls) <= 2
    found = learned(made)
    assert all((found[name] == value).all() for name, value in expected.items())
