"""The memory kernels work in is bounded, whatever batches come: nothing grows from iteration to iteration."""

import gc

import numpy as np
import pytest
import torch

import nsm
from nsm.fused import plans, workspace
from nsm.fused.workspace import HELD, LARGE, Pool, pool
from nsm.tasks import Copy
from nsm.training.experiment import Experiment, Schedule
from nsm.training.learner import FusedLearner

MEMORIES = [nsm.NTM(slots=64, width=16), nsm.LRUA(slots=64, width=16), nsm.DNC(slots=64, width=16)]


@pytest.fixture
def small(monkeypatch):
    """Bounds that a small machine reaches."""
    monkeypatch.setattr(workspace, "HELD", 4 << 20)
    monkeypatch.setattr(workspace, "LARGE", 1 << 20)
    monkeypatch.setattr(Pool, "fill_value", None)
    # What is there already need not be looked through at every collection: with torch loaded that takes half a second.
    gc.collect()
    gc.freeze()
    yield 4 << 20
    gc.unfreeze()


def held():
    gc.collect()
    pool.take(1)
    return pool.bytes


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
def test_batches_of_any_shape_leave_no_more_than_the_bound(memory, small):
    machine = nsm.NUTM(5, 3, 2, controller=nsm.Controller(size=32), memory=memory, backend="fused")
    rng = np.random.default_rng(0)
    for _ in range(60):
        steps, batch = int(rng.integers(1, 60)), int(rng.integers(1, 20))
        state = machine.initial_state(batch, int(rng.integers(1, 100)))
        out, _ = machine(torch.randn(steps, batch, 5), state, lengths=rng.integers(1, steps + 1, batch))
        if rng.random() < 0.7:  # some graphs are dropped before their way back
            out.sum().backward()
        del out
        assert held() <= small


def test_training_on_random_tapes_and_lengths_leaves_no_more_than_the_bound(small):
    machine = nsm.NUTM(10, 8, 2, controller=nsm.Controller(size=32), memory=nsm.NTM(slots=128, width=20))
    schedule = Schedule(batch_size=4, random_slots=True, cell_noise=0.1)
    learner = FusedLearner(machine, Experiment(Copy(), machine.config, schedule=schedule), threads=2)
    for step in range(80):
        learner.step(Copy(), Copy().batch(0, 0, step, 4), step)
        assert held() <= small
    assert len(learner._states) <= 17
    assert len(learner.kernels._rooms) <= 1025
    assert plans.plans.cache_info().maxsize == 128


def test_a_block_that_somebody_has_is_nobody_elses():
    pool = Pool()  # not everybody's: what other tests left to the collector would come back to that one meanwhile
    first, second = pool.take(1000), pool.take(1000)
    assert not np.shares_memory(first, second)
    first[:] = 1
    address = first.ctypes.data
    del first
    gc.collect()
    third = pool.take(1000)
    assert third.ctypes.data == address
    assert third.ctypes.data % 64 == 0


def test_large_blocks_go_back_to_the_system():
    before = held()
    block = pool.take(LARGE)  # numbers, so four times as many bytes
    assert block.nbytes > LARGE
    del block
    assert held() <= max(before, HELD)
    assert not any(block.array.nbytes > LARGE for block in pool._free)
