"""Every generator against an oracle that works the answers out from the inputs alone."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from paper_tasks import TASKS, get
from task_oracles import check_sequence, read_order

from nsm.checks import UserError
from nsm.tasks import (
    AssociativeRecall,
    Batch,
    Copy,
    Draws,
    Mixture,
    NGrams,
    Omniglot,
    Padded,
    PrioritySort,
    RepeatCopy,
    Sequencing,
    Task,
)
from nsm.training.curriculum import OneByOne

VARIANTS: dict[str, Task] = {
    **{f"{name}, train": task for name, task in TASKS.items()},
    **{f"{name}, test": task.tested for name, task in TASKS.items()},
    "narrow copy": Copy(width=1, length=(1, 2)),
    "copy with blank vectors": Copy(width=4, length=(1, 6), blank=0.4),
    "repeat copy without a marker": RepeatCopy(width=3, length=(1, 3), repeats=(1, 3), end_marker=False),
    "repeat copy of the authors": get("repeat-copy", "authors").tested,
    "repeat copy, one count": RepeatCopy(length=(1, 2), repeats=(4, 4), normalise=(4, 4)),
    "ambiguous items": AssociativeRecall(width=1, items=(2, 4), item_length=1),
    "sort of one": PrioritySort(width=2, items=1, sorted_items=1),
    "three subtasks": get("priority-sort+associative-recall+repeat-copy").tested,
    "the same subtask twice": Sequencing((Copy(width=2, length=(1, 2)), Copy(width=4, length=(2, 3)))),
}
SHOW_THEN_ASK = {name: task for name, task in VARIANTS.items() if not isinstance(task, NGrams | Mixture | Omniglot)}


@pytest.mark.parametrize("name", SHOW_THEN_ASK)
def test_answers_follow_from_the_inputs(name):
    task = SHOW_THEN_ASK[name]
    for batch in task.block(seed=11, stream=0, first_step=5, steps=6, batch_size=5):
        for index in range(5):
            check_sequence(task, batch, index)


@pytest.mark.parametrize("name", VARIANTS)
def test_shapes_padding_and_longest_sequence(name):
    task = VARIANTS[name]
    for batch in task.block(seed=3, stream=1, first_step=0, steps=8, batch_size=6):
        longest = int(batch.lengths.max())
        assert longest <= task.max_length
        assert batch.inputs.shape == (longest, 6, task.input_size)
        assert batch.targets.shape == (longest, 6, task.output_size)
        assert batch.mask.shape == batch.subtask.shape == (longest, 6)
        assert batch.lengths.shape == batch.decoding.shape == (6,)
        assert {array.dtype for array in (batch.inputs, batch.targets, batch.mask)} == {np.dtype(np.float32)}
        assert {array.dtype for array in (batch.lengths, batch.decoding, batch.subtask)} == {np.dtype(np.int64)}
        padding = np.arange(longest)[:, None] >= batch.lengths
        for array in (batch.inputs, batch.targets, batch.mask):
            assert not array[padding].any()
        assert (batch.subtask[padding] == -1).all()
        assert (batch.mask.argmax(axis=0) == batch.decoding).all()
        assert (batch.mask.sum(axis=0) > 0).all()


@pytest.mark.parametrize(
    "task",
    [
        Copy(length=(1, 3)),
        RepeatCopy(length=(1, 3), repeats=(1, 3)),
        RepeatCopy(length=(1, 3), repeats=(1, 3), end_marker=False),
        AssociativeRecall(items=(2, 3), item_length=2),
        PrioritySort(items=5, sorted_items=3),
        NGrams(order=3, length=9),
        Sequencing((Copy(length=(1, 2)), RepeatCopy(length=(1, 2), repeats=(1, 2)))),
    ],
)
def test_the_longest_possible_sequence_occurs(task):
    assert max(int(batch.lengths.max()) for batch in task.block(0, 0, 0, 50, 4)) == task.max_length


def evenly(counts: Counter, kinds: int) -> bool:
    """χ² of equal probabilities no more than four of its standard deviations above its mean."""
    expected = counts.total() / kinds
    missing = kinds - len(counts)
    chi_square = sum((count - expected) ** 2 for count in counts.values()) / expected + missing * expected
    return len(counts) <= kinds and chi_square <= (kinds - 1) + 4 * (2 * (kinds - 1)) ** 0.5


def test_lengths_are_even_over_the_whole_range():
    batches = Copy(length=(3, 9)).block(0, 0, 0, 300, 14)
    lengths = Counter(int(length) - 2 for batch in batches for length in batch.decoding)
    assert set(lengths) == set(range(3, 10))
    assert evenly(lengths, 7)


def test_a_share_of_the_vectors_is_made_blank_and_the_rest_is_as_it_was():
    plain, task = Copy(length=(10, 10)), Copy(length=(10, 10), blank=0.05)
    pairs = zip(plain.block(0, 0, 0, 200, 10), task.block(0, 0, 0, 200, 10), strict=True)
    places = [(before.inputs[1:11, :, :8], after.inputs[1:11, :, :8]) for before, after in pairs]
    before, after = (np.concatenate(found, axis=1) for found in zip(*places, strict=True))
    changed = (before != after).any(axis=2)
    assert not after[changed].any()
    # 20,000 vectors of which 1 in 256 is blank already: five deviations on either side.
    assert changed.mean() == pytest.approx(0.05 * 255 / 256, abs=5 * (0.05 * 0.95 / 20_000) ** 0.5)
    assert (changed.mean(axis=1) > 0.02).all(), "some place is never blank"
    twice = (~after.any(axis=2)[1:] & ~after.any(axis=2)[:-1]).mean()
    assert twice == pytest.approx((0.05 + 0.95 / 256) ** 2, rel=0.4), "blanks are not independent"


def test_lengths_and_repeats_are_even_and_independent():
    batches = RepeatCopy(length=(1, 4), repeats=(2, 6)).block(0, 0, 0, 200, 20)
    pairs = Counter(
        (int(encoding) - 2, (int(length) - int(encoding) - 1) // (int(encoding) - 2))
        for batch in batches
        for encoding, length in zip(batch.decoding, batch.lengths, strict=True)
    )
    assert set(pairs) == {(length, repeats) for length in range(1, 5) for repeats in range(2, 7)}
    assert evenly(pairs, 20)


def test_every_item_but_the_last_is_queried_equally_often():
    task = AssociativeRecall(width=16, items=(2, 5), item_length=2)
    queried: dict[int, Counter] = {items: Counter() for items in range(2, 6)}
    for batch in task.block(0, 0, 0, 200, 20):
        for index, decoding in enumerate(batch.decoding.tolist()):
            items = (decoding - 4) // 3
            query = batch.inputs[decoding - 3 : decoding - 1, index]
            shown = [batch.inputs[3 * item + 1 : 3 * item + 3, index] for item in range(items)]
            queried[items][next(item for item in range(items) if (shown[item] == query).all())] += 1
    for items, counts in queried.items():
        assert set(counts) == set(range(items - 1))
        assert evenly(counts, items - 1)
    assert evenly(Counter({items: counts.total() for items, counts in queried.items()}), 4)


@pytest.mark.parametrize("subtasks", [2, 3, 4])
def test_every_order_of_subtasks_is_equally_likely(subtasks):
    task = Sequencing((Copy(length=(1, 1)),) * subtasks)
    orders = Counter(
        tuple(read_order(subtasks, batch.inputs[0, index].tolist()))
        for batch in task.block(0, 0, 0, 120, 20)
        for index in range(20)
    )
    assert set(orders) == set(permutations(range(subtasks)))
    assert evenly(orders, len(orders))


def test_the_order_step_of_two_subtasks():
    task = get("copy+repeat-copy")
    seen = set()
    for batch in task.block(0, 0, 0, 10, 1):
        step, first = batch.inputs[0, 0].tolist(), int(batch.subtask[1, 0])
        assert step == ([1.0] + [0.0] * 9 if first == 0 else [0.0] * 9 + [1.0])
        seen.add(first)
    assert seen == {0, 1}


def test_equal_subtasks_of_a_sequence_differ():
    task = Sequencing((Copy(length=(4, 4)), Copy(length=(4, 4))))
    inputs = task.batch(0, 0, 0, 1).inputs[:, 0]
    assert (inputs[2:6] != inputs[8:12]).any()


def test_priorities_are_continuous_and_whole_rows_are_sorted():
    task = PrioritySort(width=8, items=20, sorted_items=20)
    batches = task.block(0, 0, 0, 50, 10)
    priorities = np.stack([batch.inputs[:20, :, 8] for batch in batches])
    assert np.unique(priorities).size > 0.99 * priorities.size
    assert -1 <= priorities.min() < -0.999
    assert 0.999 < priorities.max() < 1
    counts, _ = np.histogram(priorities, bins=10, range=(-1, 1))
    assert evenly(Counter(dict(enumerate(counts.tolist()))), 10)
    columns_sorted_apart = 0
    for batch in batches:
        for index in range(10):
            shown = batch.inputs[:20, index]
            answers = [tuple(row) for row in batch.targets[20:, index].tolist()]
            assert Counter(answers) == Counter(tuple(row) for row in shown[:, :8].tolist())
            # The well-known bug permutes each column by itself; that keeps the columns' sums but breaks up the rows.
            columns_sorted_apart += answers == [tuple(row) for row in (-np.sort(-shown[:, :8], axis=0)).tolist()]
    assert columns_sorted_apart == 0


def test_equal_priorities_keep_the_order_shown(monkeypatch):
    def three_levels(draws: Draws, purpose: int, count: int) -> np.ndarray:
        return np.tile(np.resize([0.25, 0.75, 1 - 2.0**-53], count), (draws.sequences, 1))

    monkeypatch.setattr(Draws, "uniform", three_levels)
    batch = PrioritySort(items=60, sorted_items=60).batch(0, 0, 0, 1)
    shown = batch.inputs[:60, 0]
    assert 0.999 < shown[:, 8].max() < 1  # the highest would round to 1 in float32
    np.testing.assert_array_equal(batch.targets[60:, 0], np.concatenate((shown[2::3], shown[1::3], shown[::3]))[:, :8])


MIXED = Copy(width=2, length=(1, 2)), PrioritySort(width=4, items=3, sorted_items=2)


def part_of(batch: Batch) -> int:
    """Which of MIXED a batch is of: a copy begins with its flag, a sort has no channel but its own."""
    return int(not (batch.inputs[0, :, 2] == 1).all() or bool(batch.inputs[..., 4].any()))


def test_a_batch_of_a_mixture_is_of_one_of_its_tasks_and_the_same_as_that_task_alone():
    task = Mixture(MIXED)
    assert (task.input_size, task.output_size, task.max_length) == (5, 4, 6)
    seen = Counter()
    for step, batch in enumerate(task.block(0, 0, 0, 40, 3)):
        part = MIXED[part_of(batch)]
        plain = part.batch(0, 0, step, 3)
        np.testing.assert_array_equal(batch.inputs[..., : part.input_size], plain.inputs)
        np.testing.assert_array_equal(batch.targets[..., : part.output_size], plain.targets)
        np.testing.assert_array_equal(batch.mask, plain.mask)
        assert batch.inputs.shape[2] == 5
        assert batch.targets.shape[2] == 4
        assert not batch.inputs[..., part.input_size :].any()
        assert not batch.targets[..., part.output_size :].any()
        seen[part.name] += 1
    assert set(seen) == {"copy", "priority-sort"}


@pytest.mark.parametrize("batch_size", [1, 6])
def test_tasks_of_a_mixture_are_drawn_by_their_weights(batch_size):
    task = Mixture(MIXED, weights=(3.0, 1.0))
    drawn = [part_of(batch) for batch in task.block(0, 0, 0, 2_000, batch_size)]
    assert abs(np.mean(drawn) - 0.25) < 4 * (0.25 * 0.75 / 2_000) ** 0.5
    pairs = np.mean(np.array(drawn[1:]) & np.array(drawn[:-1]))
    assert abs(pairs - 0.25**2) < 0.03  # one step does not tell of the next
    assert {part_of(batch) for batch in task.weighted((0.0, 0.1)).block(0, 0, 0, 50, batch_size)} == {1}
    assert abs(np.mean([part_of(batch) for batch in Mixture(MIXED).block(0, 0, 0, 2_000, 1)]) - 0.5) < 0.05


def test_a_mixture_is_judged_by_as_many_sequences_of_each_task_that_is_drawn():
    task = Mixture(MIXED, weights=(9.0, 1.0))
    assert Counter(part_of(batch) for batch in task.examination(0, 1, 100)) == {0: 1, 1: 1}
    assert [batch.mask.shape[1] for batch in task.examination(0, 1, 160)] == [50, 30, 50, 30]
    alone = list(task.weighted((0.0, 1.0)).examination(0, 1, 100))
    assert [(part_of(batch), batch.mask.shape[1]) for batch in alone] == [(1, 50), (1, 50)]
    filled = list(task.examination(0, 1, 20, filling=2))
    assert len(filled) == 2 * 3


def test_one_by_one_a_mixture_goes_from_task_to_task_and_stays_with_the_last():
    task, rule = Mixture(MIXED), OneByOne()
    weights = rule.start(task)
    assert weights == (1, 0)
    parts = [rule.at(task, weights, step, 10).index(1) for step in (0, 4, 5, 9, 10, 1000)]
    assert parts == [0, 0, 1, 1, 1, 1]
    assert [rule.at(task, (1, 0, 0), step, 11).index(1) for step in range(11)] == [0] * 3 + [1] * 3 + [2] * 5
    for step in (0, 5):
        batch = task.weighted(rule.at(task, weights, step, 10)).batch(0, 0, step, 3)
        assert part_of(batch) == (step == 5)


def test_a_mixture_offers_its_tasks_for_evaluation():
    task = TASKS["continual"]
    assert isinstance(task, Mixture)
    assert list(task.parts) == list(task.part_names) == ["copy", "repeat-copy", "associative-recall", "priority-sort"]
    for index, (name, part) in enumerate(task.parts.items()):
        assert (part.input_size, part.output_size) == (10, 8)
        assert part.name == name
        alone = task.weighted(tuple(float(number == index) for number in range(4)))
        for ours, theirs in zip(alone.batch(1, 2, 20_007, 3), part.batch(1, 2, 20_007, 3), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, -1.0), (0.0, 0.0), (1.0, 1.0, 1.0)])
def test_weights_that_do_not_fit_a_mixture_are_refused(weights):
    with pytest.raises(UserError, match="weights must be one for each of the 2 tasks"):
        Mixture(MIXED, weights=weights)
    with pytest.raises(UserError, match="weights must be one for each of the 2 tasks"):
        Mixture(MIXED).weighted(weights)


def test_a_task_that_is_no_mixture_has_nothing_to_weigh():
    assert (Copy().part_names, list(Copy().parts)) == ((), ["copy"])
    with pytest.raises(UserError, match="copy is not a mixture of tasks"):
        Copy().weighted((1.0,))
    with pytest.raises(UserError, match="a curriculum needs a mixture of tasks"):
        OneByOne().check(Copy())


def test_padded_keeps_the_order_step_where_it_was():
    task = get("copy+priority-sort")
    plain, padded = task.batch(0, 0, 0, 4), Padded(task, 13, 9).batch(0, 0, 0, 4)
    np.testing.assert_array_equal(padded.inputs[..., :10], plain.inputs)
    assert not padded.inputs[..., 10:].any()
    np.testing.assert_array_equal(padded.targets[..., :8], plain.targets)


@pytest.mark.parametrize(
    ("task", "slots"),
    [
        (Copy(length=(20, 20)), 22),
        (RepeatCopy(length=(5, 5), repeats=(9, 9)), 7),
        (AssociativeRecall(items=(6, 6), item_length=3), 6 * 4 + 5),
        (PrioritySort(items=20, sorted_items=4), 20),
        (NGrams(order=6), 32),
        (Padded(NGrams(order=5), 3, 3), 16),
        (Sequencing((Copy(length=(4, 4)), PrioritySort(items=3, sorted_items=1))), 1 + 6 + 3),
    ],
)
def test_the_smallest_tape(task, slots):
    assert task.min_slots(task.batch(0, 0, 0, 2)) == slots


def test_the_smallest_tape_is_that_of_the_longest_sequence():
    task = Copy(length=(1, 20))
    batch = task.batch(0, 0, 0, 30)
    assert batch.decoding.min() < task.min_slots(batch) == (int(batch.lengths.max()) - 2) // 2 + 2


def test_a_task_that_chooses_one_answer_is_neither_padded_nor_mixed():
    choosing = TASKS["omniglot-5"]
    with pytest.raises(UserError, match=r"Padded\.task is a Omniglot: blank channels would be answers to choose"):
        Padded(choosing, choosing.input_size + 1, choosing.output_size)
    with pytest.raises(UserError, match=r"Mixture\.mixed has 'omniglot-5', which chooses one answer"):
        Mixture((Copy(length=(1, 2)), choosing))


def test_a_mixture_needs_as_many_slots_as_the_task_that_needs_most():
    tasks = Copy(length=(1, 2)), NGrams(order=5)
    batch = tasks[1].batch(0, 0, 0, 2)
    assert Mixture(tasks).min_slots(batch) == max(task.min_slots(batch) for task in tasks) > tasks[0].min_slots(batch)
