"""The tasks by name, with the settings of the paper (appendix, "Details on Synthetic Tasks")."""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal, NamedTuple, get_args

from nsm.checks import UserError
from nsm.tasks import babi
from nsm.tasks.associative_recall import AssociativeRecall
from nsm.tasks.babi import Babi
from nsm.tasks.continual import Continual
from nsm.tasks.copy import Copy
from nsm.tasks.ngrams import NGrams
from nsm.tasks.omniglot import Omniglot
from nsm.tasks.priority_sort import PrioritySort
from nsm.tasks.repeat_copy import RepeatCopy
from nsm.tasks.sequencing import Sequencing
from nsm.tasks.task import Task

Protocol = Literal["paper", "authors"]


class TaskPair(NamedTuple):
    """A task as it is trained on, and as it is tested: longer."""

    train: Task
    test: Task


# As subtasks of all four, and of every combination the paper has no table row for.
SUBTASKS: dict[str, TaskPair] = {
    "copy": TaskPair(Copy(length=(1, 10)), Copy(length=(10, 20))),
    "repeat-copy": TaskPair(
        RepeatCopy(length=(1, 10), repeats=(1, 5), normalise=(1, 5)),
        RepeatCopy(length=(10, 20), repeats=(6, 6), normalise=(1, 5)),
    ),
    "associative-recall": TaskPair(
        AssociativeRecall(width=8, items=(2, 4), item_length=6),
        AssociativeRecall(width=8, items=(5, 5), item_length=6),
    ),
    "priority-sort": TaskPair(PrioritySort(items=10, sorted_items=8), PrioritySort(items=10, sorted_items=10)),
}


def _sequence(*subtasks: TaskPair) -> TaskPair:
    return TaskPair(
        Sequencing(tuple(subtask.train for subtask in subtasks)),
        Sequencing(tuple(subtask.test for subtask in subtasks)),
    )


def _few_shot(classes: int, length: int) -> TaskPair:
    """Tested on other characters, and on drawings as they are."""
    train = Omniglot(classes, length)
    return TaskPair(train, replace(train, purpose="test", quarters=False, angle=0.0, shift=0.0))


# What is tested is what was trained: `Continual.tasks`, one by one.
_CONTINUAL = Continual(
    (
        ("copy", Copy(length=(1, 10))),
        ("repeat-copy", RepeatCopy(length=(1, 5), repeats=(1, 5), normalise=(1, 5), end_marker=False)),
        ("associative-recall", AssociativeRecall(width=8, items=(2, 3), item_length=3)),
        ("priority-sort", PrioritySort(items=10, sorted_items=8)),
    )
)

TASKS: dict[str, TaskPair] = {
    "copy": TaskPair(Copy(length=(1, 20)), Copy(length=(120, 120))),
    "long-copy": TaskPair(Copy(length=(1, 40)), Copy(length=(200, 200))),
    "repeat-copy": TaskPair(
        RepeatCopy(length=(1, 10), repeats=(1, 10), normalise=(1, 10)),
        RepeatCopy(length=(10, 20), repeats=(10, 20), normalise=(1, 10)),
    ),
    "associative-recall": TaskPair(AssociativeRecall(items=(2, 6)), AssociativeRecall(items=(6, 20))),
    "ngrams": TaskPair(NGrams(length=50), NGrams(length=200)),
    "priority-sort": TaskPair(PrioritySort(items=20, sorted_items=16), PrioritySort(items=20, sorted_items=20)),
    "copy+repeat-copy": _sequence(
        SUBTASKS["copy"],
        TaskPair(
            RepeatCopy(length=(1, 10), repeats=(1, 10), normalise=(1, 10)),
            RepeatCopy(length=(10, 20), repeats=(10, 15), normalise=(1, 10)),
        ),
    ),
    "copy+associative-recall": _sequence(
        SUBTASKS["copy"],
        TaskPair(
            AssociativeRecall(width=8, items=(2, 4), item_length=8),
            AssociativeRecall(width=8, items=(4, 6), item_length=8),
        ),
    ),
    "copy+priority-sort": _sequence(SUBTASKS["copy"], SUBTASKS["priority-sort"]),
    "copy+repeat-copy+associative-recall+priority-sort": _sequence(*SUBTASKS.values()),
    "continual": TaskPair(_CONTINUAL, _CONTINUAL),
    "omniglot-5": _few_shot(classes=5, length=50),
    "omniglot-10": _few_shot(classes=10, length=75),
}


def get(name: str, protocol: Protocol = "paper") -> TaskPair:
    """The task of that name: one of `TASKS`, two or more of `SUBTASKS` joined by "+", or some tasks of bAbI.

    Args:
        name: say "copy", "priority-sort+repeat-copy", or "babi-1,4".
        protocol: "paper", or "authors" for what the published code does: repeat counts with another mean, and in a test
            with the test's own range to normalise by, so that a count no longer means what it meant in training; some
            lines and stories of bAbI left out.

    Raises:
        ValueError: there is no such task.
    """
    if protocol not in get_args(Protocol):
        raise UserError(f"protocol is {protocol!r}: it must be {' or '.join(map(repr, get_args(Protocol)))}.")
    if name in TASKS:
        pair = TASKS[name]
    elif "+" in name:
        pair = _combined(name)
    elif (numbers := babi.parse_name(name)) is not None:
        pair = TaskPair(Babi(numbers), Babi(numbers, "test"))
    else:
        raise _unknown("task", name, (*TASKS, babi.NAME))
    return _as_the_authors(pair) if protocol == "authors" else pair


def _combined(name: str) -> TaskPair:
    """A sequence of named subtasks, with the paper's settings if it has the same ones in another order."""
    parts = name.split("+")
    if "ngrams" in parts:
        raise UserError(f"{name!r} cannot be sequenced: ngrams asks between the bits it shows, so it is no subtask.")
    for part in parts:
        if part not in SUBTASKS:
            raise _unknown("subtask", part, SUBTASKS)
    if len(set(parts)) < len(parts):
        raise UserError(f"{name!r} names a subtask twice: name each once.")
    for known, pair in TASKS.items():
        names = known.split("+")
        if sorted(names) == sorted(parts):
            train, test = pair.train.singles(), pair.test.singles()
            return _sequence(*(TaskPair(train[names.index(part)], test[names.index(part)]) for part in parts))
    return _sequence(*(SUBTASKS[part] for part in parts))


def _as_the_authors(pair: TaskPair) -> TaskPair:
    def train(task: Task) -> Task:
        if isinstance(task, Babi):
            return replace(task, protocol="authors")
        return replace(task, count_mean="authors") if isinstance(task, RepeatCopy) else task

    def test(task: Task) -> Task:
        if isinstance(task, RepeatCopy):
            return replace(task, count_mean="authors", normalise=task.repeats)
        return train(task)

    return TaskPair(pair.train.mapped(train), pair.test.mapped(test))


def _unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    nearest = get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return UserError(f"There is no {kind} {name!r}: did you mean {nearest!r}? Known: {', '.join(known)}.")
