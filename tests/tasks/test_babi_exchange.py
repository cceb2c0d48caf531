"""Exchanged stories: rules that solve a task solve them as they solve the stories they are made of."""

from itertools import product

import numpy as np
import pytest

from nsm.data.stories import BLANK, vocabulary
from nsm.data.symmetries import SYMMETRIES, exchanges
from nsm.tasks import Babi

TRAIN = 0
WORDS = list(vocabulary())
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
STEPS |= {"above": (0, 1), "below": (0, -1), "left": (-1, 0), "right": (1, 0)}
MOVES = {"went", "moved", "travelled", "journeyed"}


def drawn(task, exchange, stories=200, seed=0):
    """Stories of one task, each as its sentences and questions with their answers, in order."""
    batch = Babi((task,), weights=(1.0,), exchange=exchange).batch(seed, TRAIN, 0, stories)
    for sample, end in enumerate(batch.lengths):
        shown = [WORDS[number] for number in batch.inputs[:end, sample].argmax(-1)]
        right = [WORDS[number] for number in batch.targets[:end, sample].argmax(-1)]
        lines, line = [], []
        for word, answer in zip(shown, right, strict=True):
            if word == BLANK:
                lines[-1][1].append(answer)
                continue
            line.append(word)
            if word in ".?":
                lines.append((line[:-1], []))
                line = []
        yield lines


def place(told, asked):
    """Tasks 1, 11 to 13: where somebody went last."""
    where, subjects = {}, []
    for words in told:
        people = [word for word in words if word in {"mary", "john", "sandra", "daniel"}]
        subjects = people or subjects
        for one in subjects:
            where[one] = words[-1]
    return [where[asked[-1]]]


def relation(told, asked):
    """Task 4: what is DIRECTION of X, or what is X DIRECTION of."""
    facts = [(words[1], words[3], words[-1]) for words in told]
    facts += [(b, OPPOSITE[way], a) for a, way, b in facts]
    if asked[2] in STEPS:
        return [a for a, way, b in facts if (way, b) == (asked[2], asked[-1])]
    return [b for a, way, b in facts if (a, way) == (asked[3], asked[4])]


def fear(told, asked):
    """Task 15: what somebody's kind is afraid of."""
    singular = {"mice": "mouse", "wolves": "wolf", "cats": "cat", "sheep": "sheep"}
    afraid = {singular[words[0]]: singular[words[-1]] for words in told if "afraid" in words}
    kinds = {words[0]: words[-1] for words in told if "afraid" not in words}
    return [afraid[kinds[asked[2]]]]


def colour(told, asked):
    """Task 16: the colour of the last one named of the same kind."""
    kinds = {words[0]: words[-1] for words in told if words[2] == "a"}
    colours = {words[0]: words[-1] for words in told if words[2] != "a"}
    return [[colours[one] for one in kinds if kinds[one] == kinds[asked[-1]] and one in colours][-1]]


def position(told, asked):
    """Task 17: yes if one shape's place is to that side of the other's."""
    at = {}
    facts = [split(words[1:]) for words in told]
    first, *_ = facts[0]
    at[first] = (0, 0)
    for _ in facts:
        for a, way, b in facts:
            for known, new, sign in ((b, a, 1), (a, b, -1)):
                if known in at and new not in at:
                    at[new] = tuple(x + sign * dx for x, dx in zip(at[known], STEPS[way], strict=True))
    a, way, b = split(asked[2:])
    return ["yes" if any((x - y) * d > 0 for x, y, d in zip(at[a], at[b], STEPS[way], strict=True)) else "no"]


def split(words):
    """The two things of a relation and its direction: pink rectangle | above | red square."""
    (middle,) = (i for i, word in enumerate(words) if word in STEPS)
    filler = {"is", "to", "the", "of"}
    first, second = ([w for w in part if w not in filler] for part in (words[:middle], words[middle + 1 :]))
    return " ".join(first), words[middle], " ".join(second)


def path(told, asked):
    """Task 19: the two steps that lead from one place to another."""
    doors = {}
    for words in told:
        a, way, b = words[1], words[3], words[-1]
        doors[b, way], doors[a, OPPOSITE[way]] = a, b
    begin, end = asked[6], asked[-1]
    return [
        way[0]
        for steps in product(STEPS, repeat=2)
        if doors.get((doors.get((begin, steps[0])), steps[1])) == end
        for way in steps
    ]


RULES = {1: place, 4: relation, 11: place, 12: place, 13: place, 15: fear, 16: colour, 17: position, 19: path}


def score(task, exchange):
    """How many questions the rule answers rightly, of how many."""
    right = asked = 0
    for lines in drawn(task, exchange):
        told = []
        for words, answer in lines:
            if answer:
                right, asked = right + (RULES[task](told, words) == answer), asked + 1
            else:
                told.append(words)
    return right, asked


@pytest.mark.usefixtures("real_babi")
@pytest.mark.parametrize("task", RULES)
def test_what_is_right_is_exchanged_with_the_story(task):
    right, asked = score(task, exchange=False)
    assert right >= 0.99 * asked > 100  # else the rule is wrong, and says nothing about exchanged stories
    assert score(task, exchange=True) == (right, asked)


@pytest.mark.usefixtures("real_babi")
@pytest.mark.parametrize("task", SYMMETRIES)
def test_every_word_that_may_be_exchanged_is_in_the_task(task):
    seen = {word for lines in drawn(task, False, 1_000) for words, answer in lines for word in (*words, *answer)}
    named = {form for symmetry in SYMMETRIES[task] for forms in symmetry.words for form in forms}
    assert named <= seen | {"n", "s", "e", "w"}


def test_words_take_each_others_places():
    for task in SYMMETRIES:
        for table in exchanges(task):
            assert np.array_equal(np.sort(table), np.tile(np.arange(len(WORDS)), (len(table), 1)))
            assert len({tuple(way) for way in table}) == len(table)
            # A group: one exchange after another is one of them, so none is favoured however they are combined.
            ways = {tuple(way) for way in table}
            assert all(tuple(table[0][table[k]]) in ways for k in range(len(table)))


def test_only_training_stories_are_exchanged_and_a_block_is_its_batches_one_by_one():
    plain, task = Babi((1, 19)), Babi((1, 19), exchange=True)
    examined = [next(one.examination(0, 1, 20)).inputs for one in (plain, task)]
    assert np.array_equal(*examined)
    for one in (task, task.weighted((1.0, 3.0))):
        block = list(one.batches(0, TRAIN, 5, 9, 3))
        assert len(block) == 4
        for step, batch in enumerate(block, start=5):
            single = one.batch(0, TRAIN, step, 3)
            assert np.array_equal(batch.inputs, single.inputs)
            assert np.array_equal(batch.targets, single.targets)
    lengths = plain.batch(0, TRAIN, 0, 8).lengths
    batch = task.batch(0, TRAIN, 0, 8)
    assert np.array_equal(batch.lengths, lengths)
    assert not np.array_equal(batch.inputs, plain.batch(0, TRAIN, 0, 8).inputs)


def test_unchanged_stories_are_those_of_the_files():
    plain, exchanged = (Babi((1, 15), exchange=exchange) for exchange in (False, True))
    assert exchanged.unchanged() == plain
    first, second = (task.batch(0, TRAIN, 0, 20) for task in (plain, exchanged))
    assert not np.array_equal(first.inputs, second.inputs)
