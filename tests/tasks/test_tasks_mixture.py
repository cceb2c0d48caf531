"""A mixture draws its tasks by weight and nothing else: what each of them is drawn with is as if it were alone."""

from collections import Counter

import numpy as np
import pytest
import torch

from nsm.checks import UserError
from nsm.tasks import Copy, Mixture, NGrams, Padded, PrioritySort, RepeatCopy, Sequencing

COPY, SORT = Copy(width=2, length=(1, 10)), PrioritySort(width=2, items=15, sorted_items=1)


def copied(task, steps=3_000):
    """The lengths of the first sequence of every batch of Copy: a sort shows its fifteen items."""
    decoding = (int(batch.decoding[0]) for batch in task.block(0, 0, 0, steps, 2))
    return Counter(shown - 2 for shown in decoding if shown != 15)


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("weights", [(), (1.0, 4.0), (4.0, 1.0)])
@pytest.mark.parametrize("turned", [False, True])
def test_how_long_sequences_are_does_not_depend_on_how_often_their_task_is_drawn(weights, turned, ragged):
    """A draw that decided both would leave the short ones to the task that comes first, and the long to the last."""
    mixed = (SORT, COPY) if turned else (COPY, SORT)
    lengths = copied(Mixture(mixed, weights, ragged=ragged))
    assert set(lengths) == set(range(1, 11))
    expected = lengths.total() / 10
    chi_square = sum((count - expected) ** 2 for count in lengths.values()) / expected
    assert chi_square < 9 + 4 * 18**0.5


@pytest.mark.parametrize("weights", [(1.0, 2.0, 5.0), (0.0, 3.0, 1.0), (10.0, 10.0, 0.0)])
def test_tasks_are_drawn_in_proportion_to_unequal_weights(weights):
    task = Mixture((COPY, SORT, NGrams(order=2, length=3)), weights)
    of = {15: 1, 1: 2}  # by the first step that counts; a copy's is later than its flags and one vector
    drawn = Counter(of.get(int(batch.decoding[0]), 0) for batch in task.block(1, 0, 0, 3_000, 1))
    for part, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(drawn[part] / 3_000 - share) <= 4 * (share * (1 - share) / 3_000) ** 0.5


@pytest.mark.parametrize(
    "around",
    [
        lambda task: Mixture((task, SORT)),
        lambda task: Padded(task, 12, 12),
        lambda task: Sequencing((task, SORT)),
    ],
    ids=["mixture", "padded", "sequence"],
)
def test_progress_is_judged_by_sequences_of_all_lengths_of_every_part(around):
    task = around(RepeatCopy(ragged=False)).like_training()
    assert all(single.ragged for single in task.singles())
    longest = next(iter(task.examination(0, 1, 40)))
    assert len(set(longest.lengths.tolist())) > 1


def test_a_mixture_of_mixtures_is_refused():
    with pytest.raises(UserError, match=r"Mixture\.mixed has 'mixture', itself made of several"):
        Mixture((NGrams(), Mixture((COPY, SORT))))


def test_what_its_tasks_need_a_mixture_needs_and_what_they_have_to_say_it_says():
    class Noted(Copy):
        notes = ("these are not the usual bits",)

        def require(self):
            raise UserError("the bits are not here")

    task = Mixture((SORT, Noted()))
    assert task.notes == task.parts["noted"].notes == ("these are not the usual bits",)
    for form in (task, task.parts["noted"]):
        with pytest.raises(UserError, match="the bits are not here"):
            form.require()
    task.parts["priority-sort"].require()


def test_every_task_of_a_mixture_has_its_own_measures_and_the_mixture_the_common_one():
    tasks = NGrams(order=2, length=9), Sequencing((COPY, SORT)), COPY
    task = Mixture(tasks)
    assert task.measures[0].name == "bit_accuracy"
    assert {measure.name for measure in task.measures} == {measure.name for measure in COPY.measures}
    for part, own in zip(task.parts.values(), tasks, strict=True):
        assert (part.measures, part.solvable, part.breakdown) == (own.measures, own.solvable, own.breakdown)
        batch = next(iter(part.examination(0, 1, 4)))
        figures = part.metrics(torch.zeros(batch.targets.shape), batch).averages()
        assert part.sentence(figures) == own.sentence(figures)


def test_the_blank_channels_of_a_narrower_task_count_as_zeros():
    task = Mixture((COPY, PrioritySort(width=4)))
    narrow = task.parts["copy"]
    batch = next(iter(narrow.examination(0, 1, 3)))
    assert batch.targets.shape[2] == 4
    logits = torch.from_numpy(np.where(batch.targets > 0, 9.0, -9.0))
    assert narrow.metrics(logits, batch).averages()["bit_accuracy"] == 1
    logits[..., 3] = 9.0
    assert narrow.metrics(logits, batch).averages()["bit_accuracy"] == pytest.approx(0.75)
