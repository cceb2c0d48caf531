"""A batch is a function of (seed, stream, step): in blocks or one by one, in any process, whatever the batch size."""

import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_tasks import TASKS, get

from nsm.tasks import Batch, Copy, Mixture, NGrams, Omniglot, Padded, PrioritySort, RepeatCopy, Sequencing

VARIOUS_LENGTHS = {
    **{name: task for name, task in TASKS.items() if not isinstance(task, NGrams | PrioritySort | Omniglot)},
    "continual": TASKS["continual"].weighted((1.0, 1.0, 0.0, 0.0)),  # the others have two lengths or one
}


def fingerprint(batch: Batch) -> str:
    digest = sha256()
    for array in batch:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(sorted(TASKS)),
    seed=st.integers(0, 2**32 - 1),
    stream=st.integers(0, 2**32 - 1),
    first_step=st.integers(0, 2**31),
    steps=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    ragged=st.booleans(),
)
def test_a_block_equals_its_steps_made_one_by_one(name, seed, stream, first_step, steps, batch_size, ragged):
    task = replace(TASKS[name], ragged=ragged)
    block = task.block(seed, stream, first_step, steps, batch_size)
    assert len(block) == steps
    for offset, batch in enumerate(block):
        assert fingerprint(batch) == fingerprint(task.batch(seed, stream, first_step + offset, batch_size))


def test_a_block_across_tasks_equals_its_steps():
    task = Mixture((Copy(), NGrams(), PrioritySort()), weights=(1.0, 2.0, 3.0))
    assert len({len(batch.inputs) for batch in task.block(1, 2, 0, 11, 2)}) > 2
    for step, batch in enumerate(task.block(1, 2, 0, 11, 2)):
        assert fingerprint(batch) == fingerprint(task.batch(1, 2, step, 2))


@pytest.mark.parametrize("name", TASKS)
def test_a_sequence_is_the_same_in_every_batch_it_is_in(name):
    task = TASKS[name]
    large = task.batch(0, 0, 9, 7)
    small = task.batch(0, 0, 9, 3)
    for index in range(3):
        length = int(small.lengths[index])
        assert length == large.lengths[index]
        assert small.decoding[index] == large.decoding[index]
        for ours, theirs in zip(small[:3], large[:3], strict=True):
            np.testing.assert_array_equal(ours[:length, index], theirs[:length, index])
        np.testing.assert_array_equal(small.subtask[:length, index], large.subtask[:length, index])


PRINT_FINGERPRINTS = """
from test_tasks_position import TASKS, fingerprint
for name, task in TASKS.items():
    print(name, fingerprint(task.batch(12, 3, 45_678, 3)))
"""


def test_another_process_gives_the_same_bytes():
    other = subprocess.run(
        [sys.executable, "-c", PRINT_FINGERPRINTS],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    here = [f"{name} {fingerprint(task.batch(12, 3, 45_678, 3))}" for name, task in TASKS.items()]
    assert other.stdout.splitlines() == here


def test_the_stream_of_numbers_is_frozen():
    """Another digest means that every run made before is no longer reproducible: never change it lightly."""
    assert fingerprint(Copy().batch(1, 2, 3, 4)) == "dbcf78786b39fff9682ef9593f80e5a40652fbe7f8ffb6c8d25cf4513e443866"


@pytest.mark.parametrize("name", TASKS)
def test_seed_stream_step_and_sample_all_matter(name):
    task = TASKS[name]
    positions = [(1, 2, 3), (2, 2, 3), (1, 1, 3), (1, 2, 4), (2, 1, 3)]
    batches = [task.batch(*position, 8) for position in positions]
    contents = {batch.inputs[:, index].tobytes() for batch in batches for index in range(8)}
    assert len(contents) > 0.9 * 8 * len(positions)  # the shortest sequences may coincide
    assert len({fingerprint(batch) for batch in batches}) == len(positions)


@pytest.mark.parametrize("name", VARIOUS_LENGTHS)
def test_a_batch_that_is_not_ragged_shares_the_structure_of_its_first_sequence(name):
    ragged, shared = VARIOUS_LENGTHS[name], replace(VARIOUS_LENGTHS[name], ragged=False)
    various = set()
    for own, alike in zip(ragged.block(0, 0, 0, 12, 6), shared.block(0, 0, 0, 12, 6), strict=True):
        assert len(set(alike.lengths.tolist())) == len(set(alike.decoding.tolist())) == 1
        assert (alike.subtask == alike.subtask[:, :1]).all()
        length = int(own.lengths[0])
        np.testing.assert_array_equal(own.inputs[:length, 0], alike.inputs[:, 0])
        assert len({alike.inputs[:, index].tobytes() for index in range(6)}) > 1
        various.add(length)
        assert len(set(own.lengths.tolist())) > 1
    assert len(various) > 1


def test_the_order_of_subtasks_is_shared_as_well():
    task = replace(get("copy+priority-sort"), ragged=False)
    orders = set()
    for batch in task.block(0, 0, 0, 10, 5):
        assert (batch.inputs[0] == batch.inputs[0, :1]).all()
        orders.add(batch.inputs[0, 0].tobytes())
    assert len(orders) == 2


@pytest.mark.parametrize(
    "around",
    [
        lambda task: Padded(task, 12, 12),
        lambda task: Mixture((task,)),
        lambda task: Sequencing((task, PrioritySort(items=2, sorted_items=1))),
    ],
)
def test_a_task_inside_another_keeps_its_shared_structure(around):
    lengths = around(RepeatCopy(ragged=False)).batch(0, 0, 0, 20).lengths
    assert len(set(lengths.tolist())) == 1
    assert len(set(around(RepeatCopy()).batch(0, 0, 0, 20).lengths.tolist())) > 1
    outer = replace(around(RepeatCopy()), ragged=False)
    assert len(set(outer.batch(0, 0, 0, 20).lengths.tolist())) == 1


@pytest.mark.parametrize("name", TASKS)
def test_every_batch_of_a_block_is_contiguous_and_aligned(name):
    for batch in TASKS[name].block(0, 0, 0, 5, 3):
        for array in (batch.inputs, batch.targets, batch.mask, batch.subtask):
            assert array.flags.c_contiguous
            assert array.ctypes.data % 64 == 0


def test_batches_of_a_block_do_not_overlap():
    block = TASKS["copy"].block(0, 0, 0, 4, 2)
    before = [fingerprint(batch) for batch in block]
    for array in block[1][:3]:
        array.fill(7.0)
    assert [fingerprint(batch) == old for batch, old in zip(block, before, strict=True)] == [True, False, True, True]
