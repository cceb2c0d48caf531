"""A data set of torch's as a task: the order of its items, where a run goes on, workers, and what it is judged by."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import nsm
from nsm import NTM, NUTM, Controller, Optimiser, Schedule
from nsm.checks import UserError
from nsm.tasks import DatasetTask, Mixture, Padded
from nsm.training.evaluation import TEST, VALIDATION

TRAIN = 0
SPLITS = {"train": 23, "validation": 60, "test": 12}


class Numbered(Dataset):
    """Item i has i on its first channel, so that it can be told which it is, and i % 4 + 1 steps."""

    def __init__(self, items, first):
        self.items, self.first = items, first

    def __len__(self):
        return self.items

    def __getitem__(self, index):
        if not 0 <= index < self.items:
            raise IndexError(index)
        steps = index % 4 + 1
        inputs = torch.zeros(steps, 2)
        inputs[:, 0], inputs[:, 1] = self.first + index, 1
        return inputs, torch.ones(steps, 1)


@dataclass(frozen=True)
class Numbers(DatasetTask):
    items: int = SPLITS["train"]

    def dataset(self, split):
        first = 1_000 * list(SPLITS).index(split)
        return Numbered(self.items if split == "train" else SPLITS[split], first)


def numbers(batch):
    """Which items a batch has."""
    return batch.inputs[0, :, 0].astype(int).tolist()


def bits(batches):
    return [[array.tobytes() for array in batch] for batch in batches]


def test_sizes_and_name_are_those_of_the_items():
    task = Numbers()
    assert (task.input_size, task.output_size, task.max_length, task.name) == (2, 1, 4, "numbers")
    batch = task.batch(0, TRAIN, 0, 5)
    assert batch.inputs.dtype == np.float32
    assert [number % 4 + 1 for number in numbers(batch)] == batch.lengths.tolist()
    assert (batch.mask.sum(0) == batch.lengths).all()
    assert all(array.ctypes.data % 64 == 0 for array in batch[:3])


def test_an_epoch_has_every_item_once_and_its_last_batch_is_smaller():
    task = Numbers()
    epochs = [task.block(5, TRAIN, 6 * epoch, 6, 4) for epoch in range(3)]
    for batches in epochs:
        assert [batch.mask.shape[1] for batch in batches] == [4, 4, 4, 4, 4, 3]
        assert sorted(number for batch in batches for number in numbers(batch)) == list(range(23))
    orders = [tuple(number for batch in batches for number in numbers(batch)) for batches in epochs]
    assert len(set(orders)) == 3
    assert orders[0] != tuple(range(23))


def test_the_order_follows_from_the_seed():
    task = Numbers()
    assert bits(task.block(5, TRAIN, 0, 9, 4)) == bits(Numbers().block(5, TRAIN, 0, 9, 4))
    assert bits(task.block(5, TRAIN, 0, 9, 4)) != bits(task.block(6, TRAIN, 0, 9, 4))


def test_a_batch_larger_than_the_data_set_is_all_of_it():
    assert sorted(numbers(Numbers().batch(0, TRAIN, 7, 100))) == list(range(23))


def test_a_run_that_was_stopped_goes_on_with_the_item_it_would_have_come_to():
    task = Numbers()
    whole = bits(task.batches(5, TRAIN, 0, 20, 4))
    assert len(whole) == 20
    for stopped in (1, 5, 6, 13):
        assert bits(task.batches(5, TRAIN, stopped, 20, 4)) == whole[stopped:]
    assert bits(task.block(5, TRAIN, 0, 20, 4)) == whole
    assert bits([task.batch(5, TRAIN, step, 4) for step in range(20)]) == whole


def test_batches_are_loaded_as_they_are_asked_for():
    """A run of many iterations does not begin with a list of all items it will ever see."""
    batches = Numbers().batches(5, TRAIN, 0, 1 << 31, 4)
    assert len(numbers(next(batches))) == 4


def test_workers_give_the_same_bytes():
    alone, helped = Numbers(), Numbers(workers=2)
    assert bits(helped.batches(5, TRAIN, 3, 12, 4)) == bits(alone.batches(5, TRAIN, 3, 12, 4))
    assert bits(helped.examination(5, TEST, 100)) == bits(alone.examination(5, TEST, 100))
    for batch in helped.batches(5, TRAIN, 0, 3, 4):
        assert all(array.ctypes.data % 64 == 0 for array in batch)
    with pytest.raises(UserError, match="workers must be an integer of at least 0"):
        Numbers(workers=-1)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_random_numbers_of_the_process_are_left_alone(workers):
    """A loader of torch's draws a seed for its workers, from the process's own generator unless it is given one."""
    before = torch.get_rng_state()
    task = Numbers(workers=workers)
    assert len(list(task.batches(5, TRAIN, 0, 3, 4))) == 3
    assert list(task.examination(5, TEST, 100))
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_judged_by_the_items_of_the_split_in_order():
    task = Numbers()
    validation = list(task.examination(5, VALIDATION, 1_000))
    assert [batch.mask.shape[1] for batch in validation] == [50, 10]
    assert [number for batch in validation for number in numbers(batch)] == list(range(1_000, 1_060))
    (test,) = task.examination(9, TEST, 1_000)
    assert numbers(test) == list(range(2_000, 2_012))
    (some,) = task.examination(9, TEST, 5)
    assert numbers(some) == list(range(2_000, 2_005))
    filled = list(task.examination(5, VALIDATION, 1_000, filling=2))
    assert bits(filled[2:]) == bits(validation)
    assert bits(filled[:2]) == bits(validation[:1] * 2)


def test_batches_that_are_not_learned_from_go_round_their_own_split():
    task = Numbers()
    assert numbers(task.batch(0, TEST, 0, 5)) == numbers(task.batch(7, TEST, 0, 5)) == list(range(2_000, 2_005))
    assert numbers(task.batch(0, TEST, 2, 5)) == [2_010, 2_011, 2_000, 2_001, 2_002]
    assert numbers(task.batch(0, VALIDATION, 0, 2)) == [1_000, 1_001]


def test_inside_a_mixture_all_of_it_is_learned_from():
    task = Mixture((Numbers(items=200),))
    seen = {number for batch in task.block(0, TRAIN, 0, 50, 4) for number in numbers(batch)}
    assert seen == set(range(200))
    assert [numbers(batch) for batch in task.examination(0, TEST, 100)] == [list(range(2_000, 2_012))]
    (wide,) = Padded(Numbers(), 4, 3).examination(0, TEST, 100)
    assert wide.inputs.shape[1:] == (12, 4)
    assert numbers(wide) == list(range(2_000, 2_012))


class Chosen(DatasetTask, nsm.Classification):
    """Items of which one of three is to be chosen."""

    def dataset(self, split):
        return TensorDataset(torch.ones(9, 2, 1), torch.eye(3)[torch.arange(18) % 3].reshape(9, 2, 3))


def test_it_may_be_a_classification():
    task = Chosen()
    batch = task.batch(0, TRAIN, 0, 9)
    assert task.metrics(torch.from_numpy(batch.targets) * 9, batch).averages()["error"] == 0
    assert task.choice


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.ones(3, 2), torch.ones(3, 2)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], r"Wrong\.dataset\('train'\) is empty"),
        (3, r"Wrong\.dataset\('train'\) must have a length and items by number, was of type int"),
        (Endless(), r"must have a length and items by number"),
        ([torch.ones(3, 2)], r"an item of Wrong\.dataset must be \(inputs, targets\)"),
        ([(torch.ones(3), torch.ones(3, 1))], r"an item of Wrong\.dataset must be arrays of shape"),
        ([(torch.ones(3, 1, requires_grad=True), torch.ones(3, 1))], r"must be arrays of numbers"),
        ([(torch.ones(3, 1), 3 * torch.ones(3, 1))], r"must have targets of zeros and ones"),
    ],
)
def test_what_is_wrong_with_a_data_set_is_said_in_a_sentence(items, message):
    class Wrong(DatasetTask):
        def dataset(self, split):
            return items

    for ask in (lambda: Wrong().input_size, lambda: Wrong().batch(0, TRAIN, 0, 1)):
        with pytest.raises(UserError, match=message):
            ask()


def test_a_task_without_a_data_set_says_so():
    class Nothing(DatasetTask):
        pass

    with pytest.raises(UserError, match=r"Nothing has no method dataset\(split\)"):
        Nothing().batch(0, TRAIN, 0, 1)


class Bits(DatasetTask):
    """Small numbers for a machine: a bit, to be said at once."""

    def dataset(self, split):
        shown = torch.randint(0, 2, (30, 3, 2), generator=torch.Generator().manual_seed(list(SPLITS).index(split)))
        return TensorDataset(shown.float(), shown.float())


@pytest.mark.parametrize("workers", [0, 2])
def test_it_trains_and_resumes_to_the_same_weights(tmp_path, workers):
    machine = NUTM(2, 2, controller=Controller(size=4), memory=NTM(slots=4, width=2))
    schedule = Schedule(25, batch_size=4, evaluate_every=10, checkpoint_every=10, test_sequences=20)
    options = {"optimiser": Optimiser("adam"), "schedule": schedule}

    class Stopped(nsm.Callback):
        def on_step(self, *arguments):
            if len(steps) == 13:
                raise KeyboardInterrupt
            steps.append(arguments)

    steps = []
    whole = nsm.train(Bits(workers=workers), machine, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        nsm.train(Bits(workers=workers), machine, out=tmp_path / "parts", callbacks=[Stopped()], **options)
    resumed = nsm.train(Bits(workers=workers), machine, out=tmp_path / "parts", **options)
    for ours, theirs in zip(resumed.machine().parameters(), whole.machine().parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert resumed.result.figures == whole.result.figures
    assert whole.test()["sequences"] == 20
    assert nsm.open(tmp_path / "whole").experiment.task == Bits(workers=workers)


@dataclass(frozen=True)
class Listed(DatasetTask):
    names: list[str] = field(default_factory=list)

    def dataset(self, split):
        raise AssertionError("it is refused before")


def test_fields_that_can_change_are_refused_in_a_sentence():
    with pytest.raises(UserError, match="Listed must have hashable fields, for example a tuple instead of a list"):
        Listed().batch(0, TRAIN, 0, 1)
