"""Names, the paper's settings, changed ranges, and mistakes answered with a sentence."""

from itertools import permutations

import pytest

from nsm.tasks import (
    SUBTASKS,
    TASKS,
    AssociativeRecall,
    Continual,
    Copy,
    NGrams,
    Padded,
    PrioritySort,
    RepeatCopy,
    Sequencing,
    get,
    with_ranges,
)

# Channels as they follow from the paper's parameter counts.
SIZES = {
    "copy": (10, 8),
    "long-copy": (10, 8),
    "repeat-copy": (10, 9),
    "associative-recall": (8, 6),
    "ngrams": (1, 1),
    "priority-sort": (9, 8),
    "copy+repeat-copy": (10, 9),
    "copy+associative-recall": (10, 8),
    "copy+priority-sort": (10, 8),
    "copy+repeat-copy+associative-recall+priority-sort": (10, 9),
    "continual": (10, 8),
    "omniglot-5": (405, 5),
    "omniglot-10": (410, 10),
}


def test_every_task_has_the_channels_of_the_paper_in_training_and_test():
    assert set(SIZES) == set(TASKS)
    for name, sizes in SIZES.items():
        for task in get(name):
            assert (task.input_size, task.output_size) == sizes


def test_the_settings_of_single_tasks():
    assert get("copy") == (Copy(8, (1, 20)), Copy(8, (120, 120)))
    assert get("long-copy") == (Copy(8, (1, 40)), Copy(8, (200, 200)))
    assert get("repeat-copy") == (
        RepeatCopy(8, (1, 10), (1, 10), normalise=(1, 10)),
        RepeatCopy(8, (10, 20), (10, 20), normalise=(1, 10)),
    )
    assert get("associative-recall") == (AssociativeRecall(6, (2, 6), 3), AssociativeRecall(6, (6, 20), 3))
    assert get("ngrams") == (NGrams(6, 50), NGrams(6, 200))
    assert get("priority-sort") == (PrioritySort(8, 20, 16), PrioritySort(8, 20, 20))


def test_the_settings_of_sequencing_tasks():
    copy, longer = Copy(8, (1, 10)), Copy(8, (10, 20))
    assert get("copy+repeat-copy") == (
        Sequencing((copy, RepeatCopy(8, (1, 10), (1, 10), (1, 10)))),
        Sequencing((longer, RepeatCopy(8, (10, 20), (10, 15), (1, 10)))),
    )
    assert get("copy+associative-recall") == (
        Sequencing((copy, AssociativeRecall(8, (2, 4), 8))),
        Sequencing((longer, AssociativeRecall(8, (4, 6), 8))),
    )
    assert get("copy+priority-sort") == (
        Sequencing((copy, PrioritySort(8, 10, 8))),
        Sequencing((longer, PrioritySort(8, 10, 10))),
    )
    assert get("copy+repeat-copy+associative-recall+priority-sort") == (
        Sequencing(
            (copy, RepeatCopy(8, (1, 10), (1, 5), (1, 5)), AssociativeRecall(8, (2, 4), 6), PrioritySort(8, 10, 8))
        ),
        Sequencing(
            (longer, RepeatCopy(8, (10, 20), (6, 6), (1, 5)), AssociativeRecall(8, (5, 5), 6), PrioritySort(8, 10, 10))
        ),
    )


def test_the_settings_of_continual_learning():
    train, test = get("continual")
    assert train == test
    assert train == Continual(
        (
            ("copy", Copy(8, (1, 10))),
            ("repeat-copy", RepeatCopy(8, (1, 5), (1, 5), (1, 5), end_marker=False)),
            ("associative-recall", AssociativeRecall(8, (2, 3), 3)),
            ("priority-sort", PrioritySort(8, 10, 8)),
        ),
        iterations_per_phase=20_000,
    )


def test_any_subset_in_any_order_can_be_sequenced():
    for size in (2, 3, 4):
        for names in permutations(SUBTASKS, size):
            pair = get("+".join(names))
            for task in pair:
                assert isinstance(task, Sequencing)
                assert task.subtask_names == names


def test_another_order_keeps_the_settings_of_the_table():
    table, turned = get("copy+repeat-copy"), get("repeat-copy+copy")
    assert turned.train.singles() == table.train.singles()[::-1]
    assert turned.test.singles() == table.test.singles()[::-1]
    assert turned.test.singles() != get("repeat-copy+copy+priority-sort").test.singles()[:2]


def test_the_authors_protocol_changes_only_how_counts_are_shown():
    train, test = get("repeat-copy", protocol="authors")
    assert train == RepeatCopy(8, (1, 10), (1, 10), normalise=(1, 10), count_mean="authors")
    assert test == RepeatCopy(8, (10, 20), (10, 20), normalise=(10, 20), count_mean="authors")
    assert get("copy", protocol="authors") == get("copy")
    sequence = get("copy+repeat-copy", protocol="authors").test.singles()
    assert sequence == (Copy(8, (10, 20)), RepeatCopy(8, (10, 20), (10, 15), (10, 15), count_mean="authors"))
    phase = get("continual", protocol="authors").train.singles()[1]
    assert phase == RepeatCopy(8, (1, 5), (1, 5), (1, 5), count_mean="authors", end_marker=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coppy", r"^There is no task 'coppy': did you mean 'copy'\? Known: copy, long-copy,"),
        ("n-grams", r"did you mean 'ngrams'"),
        ("prioritysort", r"did you mean 'priority-sort'"),
        ("", r"^There is no task '': did you mean"),
        ("copy+repeatcopy", r"^There is no subtask 'repeatcopy': did you mean 'repeat-copy'\? Known: copy, repeat"),
        ("copy+", r"^There is no subtask ''"),
        ("long-copy+priority-sort", r"^There is no subtask 'long-copy': did you mean 'copy'"),
        ("copy+copy", r"^'copy\+copy' names a subtask twice"),
        ("copy+ngrams", r"^'copy\+ngrams' cannot be sequenced: ngrams asks between the bits"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError, match=message):
        get(name)


def test_unknown_protocol():
    with pytest.raises(ValueError, match=r"^protocol is 'theirs': it must be 'paper' or 'authors'\.$"):
        get("copy", protocol="theirs")  # type: ignore[arg-type]


def test_with_ranges_changes_what_is_named_and_nothing_else():
    assert with_ranges(Copy(width=3), length=(5, 9)) == Copy(3, (5, 9))
    assert with_ranges(Copy(), length=50) == Copy(8, (50, 50))
    assert with_ranges(RepeatCopy(), repeats=(20, 30)) == RepeatCopy(8, (1, 10), (20, 30), (1, 10))
    assert with_ranges(NGrams(), length=(80, 80)) == NGrams(6, 80)
    assert with_ranges(PrioritySort(), items=30, sorted_items=30) == PrioritySort(8, 30, 30)
    assert with_ranges(Copy(ragged=False), length=3) == Copy(8, (3, 3), ragged=False)


def test_with_ranges_reaches_every_part():
    sequence = with_ranges(get("copy+repeat-copy+priority-sort").test, length=(2, 3), repeats=4)
    assert sequence == Sequencing(
        (Copy(8, (2, 3)), RepeatCopy(8, (2, 3), (4, 4), normalise=(1, 5)), PrioritySort(8, 10, 10))
    )
    everything = with_ranges(get("copy+repeat-copy+associative-recall+priority-sort").train, items=(9, 9))
    assert everything.singles()[2:] == (AssociativeRecall(8, (9, 9), 6), PrioritySort(8, 9, 8))
    assert with_ranges(Padded(Copy(), 11, 9), length=7) == Padded(Copy(8, (7, 7)), 11, 9)
    continual = with_ranges(get("continual").test, length=(3, 4))
    assert [single for single in continual.singles() if hasattr(single, "length")] == [
        Copy(8, (3, 4)),
        RepeatCopy(8, (3, 4), (1, 5), (1, 5), end_marker=False),
    ]


@pytest.mark.parametrize(
    ("task", "ranges", "message"),
    [
        (Copy(), {"items": 3}, r"^This task has no range 'items': it has length\.$"),
        (Copy(), {"width": 3}, r"^This task has no range 'width'"),
        (get("copy+repeat-copy").train, {"lenght": 3}, r"'lenght': it has length, repeats\.$"),
        (get("copy+priority-sort").train, {"items": (3, 9)}, r"^PrioritySort.items is one number: .* \(3, 9\)\.$"),
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
        (lambda: Sequencing((Copy(),)), r"^Sequencing.subtasks has 1 of them: it must have at least 2\.$"),
        (
            lambda: Sequencing((Copy(), NGrams())),
            r"^Sequencing.subtasks\[1\] is NGrams: it must be a task that shows everything before it asks",
        ),
        (lambda: Sequencing((Sequencing((Copy(), Copy())), Copy())), r"^Sequencing.subtasks\[0\] is Sequencing"),
        (lambda: Sequencing((Copy(width=1),) * 4), r"^Sequencing.subtasks has 4 of them: .* the 3 input channels"),
        (lambda: Continual(()), r"^Continual.phases has the names \[\]: it must have at least one"),
        (lambda: Continual((("a", Copy()), ("a", NGrams()))), r"^Continual.phases has the names \['a', 'a'\]"),
        (lambda: Continual((("a", Copy()),), iterations_per_phase=0), r"^Continual.iterations_per_phase is 0"),
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
