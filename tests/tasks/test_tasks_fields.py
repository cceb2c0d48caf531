"""Fields of tasks: changed ranges, and mistakes answered with a sentence."""

import pytest
from paper_tasks import get

from nsm.tasks import (
    AssociativeRecall,
    Copy,
    Mixture,
    NGrams,
    Padded,
    PrioritySort,
    RepeatCopy,
    Sequencing,
    with_ranges,
)


def test_with_ranges_changes_what_is_named_and_nothing_else():
    assert with_ranges(Copy(width=3), length=(5, 9)) == Copy(3, (5, 9))
    assert with_ranges(Copy(), length=50) == Copy(8, (50, 50))
    assert with_ranges(RepeatCopy(), repeats=(20, 30)) == RepeatCopy(8, (1, 10), (20, 30), (1, 10))
    assert with_ranges(NGrams(), length=(80, 80)) == NGrams(6, 80)
    assert with_ranges(PrioritySort(), items=30, sorted_items=30) == PrioritySort(8, 30, 30)
    assert with_ranges(Copy(ragged=False), length=3) == Copy(8, (3, 3), ragged=False)


def test_with_ranges_reaches_every_part():
    sequence = with_ranges(get("copy+repeat-copy+priority-sort").tested, length=(2, 3), repeats=4)
    assert sequence == Sequencing(
        (Copy(8, (2, 3)), RepeatCopy(8, (2, 3), (4, 4), normalise=(1, 5)), PrioritySort(8, 10, 10))
    )
    everything = with_ranges(get("copy+repeat-copy+associative-recall+priority-sort"), items=(9, 9))
    assert everything.singles()[2:] == (AssociativeRecall(8, (9, 9), 6), PrioritySort(8, 9, 8))
    assert with_ranges(Padded(Copy(), 11, 9), length=7) == Padded(Copy(8, (7, 7)), 11, 9)
    continual = with_ranges(get("continual").tested, length=(3, 4))
    assert [single for single in continual.singles() if hasattr(single, "length")] == [
        Copy(8, (3, 4)),
        RepeatCopy(8, (3, 4), (1, 5), (1, 5), end_marker=False),
    ]


@pytest.mark.parametrize(
    ("task", "ranges", "message"),
    [
        (Copy(), {"items": 3}, r"^This task has no range 'items': it has length\.$"),
        (Copy(), {"width": 3}, r"^This task has no range 'width'"),
        (get("copy+repeat-copy"), {"lenght": 3}, r"'lenght': it has length, repeats\.$"),
        (get("copy+priority-sort"), {"items": (3, 9)}, r"^PrioritySort.items is one number: .* \(3, 9\)\.$"),
        (PrioritySort(), {"items": 10}, r"^PrioritySort.sorted_items is 16: it must be at most items, which is 10\.$"),
        (Copy(), {"length": (9, 3)}, r"^Copy.length is \(9, 3\)"),
    ],
)
def test_ranges_that_cannot_be(task, ranges, message):
    with pytest.raises(ValueError, match=message):
        with_ranges(task, **ranges)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Copy(length=(5, 4)),
            r"^Copy.length is \(5, 4\): it must be two whole numbers \(low, high\) with 1 <= low <= high\.$",
        ),
        (lambda: Copy(length=(0, 4)), r"^Copy.length is \(0, 4\)"),
        (lambda: Copy(length=5), r"^Copy.length is 5"),
        (lambda: Copy(length=(1, 2, 3)), r"^Copy.length is \(1, 2, 3\)"),
        (lambda: Copy(length=(1.0, 2.0)), r"^Copy.length is \(1.0, 2.0\)"),
        (lambda: Copy(width=0), r"^Copy.width is 0: it must be a whole number of at least 1\.$"),
        (lambda: Copy(blank=1.5), r"^Copy.blank is 1.5: it must be a number from 0 to 1\.$"),
        (lambda: Copy(blank=float("nan")), r"^Copy.blank is nan"),
        (lambda: Copy(blank="half"), r"^Copy.blank is 'half'"),
        (lambda: RepeatCopy(width=-1), r"^RepeatCopy.width is -1"),
        (lambda: RepeatCopy(length=(2, 1)), r"^RepeatCopy.length is \(2, 1\)"),
        (lambda: RepeatCopy(repeats=(0, 1)), r"^RepeatCopy.repeats is \(0, 1\)"),
        (lambda: RepeatCopy(normalise=(3, 1)), r"^RepeatCopy.normalise is \(3, 1\)"),
        (
            lambda: RepeatCopy(count_mean="middle"),
            r"^RepeatCopy.count_mean is 'middle': it must be \"centre\" or \"authors\"\.$",
        ),
        (lambda: AssociativeRecall(items=(1, 4)), r"^AssociativeRecall.items is \(1, 4\): .* with 2 <= low <= high\.$"),
        (lambda: AssociativeRecall(item_length=0), r"^AssociativeRecall.item_length is 0"),
        (lambda: AssociativeRecall(width=0), r"^AssociativeRecall.width is 0"),
        (lambda: NGrams(order=1), r"^NGrams.order is 1: it must be a whole number of at least 2\.$"),
        (lambda: NGrams(length=5), r"^NGrams.length is 5: it must be at least order, which is 6"),
        (lambda: PrioritySort(items=0), r"^PrioritySort.items is 0"),
        (lambda: PrioritySort(sorted_items=0), r"^PrioritySort.sorted_items is 0"),
        (lambda: PrioritySort(items=4, sorted_items=5), r"^PrioritySort.sorted_items is 5: it must be at most items"),
        (lambda: PrioritySort(width=0), r"^PrioritySort.width is 0"),
        (lambda: Sequencing((Copy(),)), r"^Sequencing.subtasks has 1: it must have at least 2 tasks\.$"),
        (
            lambda: Sequencing((Copy(), NGrams())),
            r"^Sequencing.subtasks\[1\] is NGrams: it must be a task whose input is complete",
        ),
        (lambda: Sequencing((Sequencing((Copy(), Copy())), Copy())), r"^Sequencing.subtasks\[0\] is Sequencing"),
        (lambda: Sequencing((Copy(width=1),) * 4), r"^Sequencing.subtasks has 4: it must have at most 3 tasks, one"),
        (lambda: Mixture(()), r"^Mixture.mixed has the names \(\): it must have at least one"),
        (lambda: Mixture((Copy(), Copy(width=2))), r"^Mixture.mixed has the names \('copy', 'copy'\)"),
        (lambda: Padded(Copy(), 9, 8), r"^Padded.inputs is 9: it must be at least the 10 of Copy\.$"),
        (lambda: Padded(Copy(), 10, 7), r"^Padded.outputs is 7: it must be at least the 8 of Copy\.$"),
        (lambda: Copy().batch(0, 0, 0, 0), r"^batch_size is 0"),
        (lambda: Copy().block(0, 0, 0, 0, 1), r"^steps is 0"),
        (lambda: Copy().batch(-1, 0, 0, 1), r"^seed is -1"),
    ],
)
def test_fields_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()
