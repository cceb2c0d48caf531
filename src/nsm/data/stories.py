"""Stories with questions: the text format of bAbI, and stories as numbers.

A line is a number, then a sentence, or a question with its answer and its supporting lines, separated by tabs. Numbers
start at 1 in every story. Words are lower case; "." and "?" are words, too.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsm.checks import UserError, brief

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.int16]

BLANK = "-"
"""The input at a step whose output is a word of the answer."""
_DIGITS = 6
"""The most digits a line number may have."""


@cache
def vocabulary() -> dict[str, int]:
    """The 159 words of bAbI, "-", "." and "?" among them, and their numbers."""
    words = (files("nsm.data") / "babi-words.txt").read_text(encoding="utf-8").split()
    return {word: number for number, word in enumerate(words)}


class Line(NamedTuple):
    """A sentence, or a question with its answer."""

    words: tuple[str, ...]
    answer: tuple[str, ...] = ()
    """The words of the answer; none for a sentence."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The input: the words, then a blank for every word of the answer."""
        return self.words + (BLANK,) * len(self.answer)


Story = list[Line]


def split(sentence: str) -> tuple[str, ...]:
    """The words of a sentence; each must be known.

    Raises:
        UserError: it contains something that is not a word of bAbI.
    """
    words = tuple(sys.intern(found[0]) for found in re.finditer(r"[a-z]+|[^a-z\s]", sentence.lower()))
    for word in words:
        if word == BLANK or word not in vocabulary():
            kind = "word" if word.isalpha() else "character"
            raise UserError(f"the {kind} {brief(word)!r} is not one of the {len(vocabulary())} words of bAbI")
    return words


def parse_line(text: str) -> Line:
    """A line without its number."""
    sentence, *rest = text.split("\t")
    words = split(sentence)
    if not words:
        raise UserError("the line is empty after its number")
    asks = words[-1] == "?"
    if len(rest) > 2:
        raise UserError(f"it has {len(rest)} tabs: a question has two, before its answer and its supporting lines")
    if not rest:
        if asks:
            raise UserError("it is a question without an answer: add a tab and the answer")
        return Line(words)
    if not asks:
        raise UserError("it has an answer but is not a question: it does not end with '?'")
    answer = tuple(word for part in rest[0].split(",") for word in split(part))
    if not answer:
        raise UserError("it is a question with an empty answer")
    return Line(words, answer)


def parse(text: str, name: str) -> list[Story]:
    """The stories of a file.

    Args:
        text: the file's content; blank lines are ignored, Windows line endings allowed.
        name: the file's name, for error messages.

    Raises:
        UserError: the file is malformed; the message names the file, the line and the problem.
    """
    stories: list[Story] = []
    last = 0
    known: dict[str, Line] = {}  # files repeat the same few thousand lines
    for position, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line:
            continue
        number, _, content = line.partition(" ")
        try:
            if not number.isdecimal():
                raise UserError("it does not begin with a number")
            if len(number) > _DIGITS:
                raise UserError(f"its number has {len(number):,} digits")
            if int(number) == 1:
                stories.append([])
            elif int(number) != last + 1:
                expected = f"1 or {last + 1}" if last else "1"
                raise UserError(f"its number is {number}, expected {expected}")
            last = int(number)
            if content not in known:
                known[content] = parse_line(content)
        except UserError as error:
            raise UserError(f"{name}, line {position}: {error}") from None
        stories[-1].append(known[content])
    if not stories:
        raise UserError(f"{name} contains no story")
    return stories


def without_repetitions(story: Story) -> Story:
    """The story without lines that repeat the line before them."""
    return [line for before, line in zip([None, *story], story, strict=False) if line != before]


def length(story: Story) -> int:
    """The number of input words."""
    return sum(len(line.shown) for line in story)


@dataclass(frozen=True, eq=False)
class EncodedStories:
    """Many stories as numbers, one after another.

    Attributes:
        shown: the input, the number of a word at every step of every story.
        answers: the number of the right answer where `shown` is a blank, −1 elsewhere.
        starts: where each story begins, and where the last one ends.
        task: the number of the task each story belongs to.
    """

    shown: Words
    answers: Words
    starts: Numbers
    task: Numbers

    @property
    def lengths(self) -> Numbers:
        """The steps of each story."""
        return np.diff(self.starts)

    @property
    def questions(self) -> int:
        """The number of questions; the blanks of one answer are consecutive."""
        asked = self.answers >= 0
        return int(asked[0] + (asked[1:] & ~asked[:-1]).sum()) if asked.size else 0

    def __len__(self) -> int:
        return len(self.task)

    def select(self, chosen: npt.NDArray[np.bool_]) -> EncodedStories:
        """The stories for which `chosen` is true, in order."""
        steps = np.repeat(chosen, self.lengths)
        starts = np.concatenate([[0], np.cumsum(self.lengths[chosen])])
        return EncodedStories(self.shown[steps], self.answers[steps], starts, self.task[chosen])


def encode(stories: Iterable[tuple[int, Story]]) -> EncodedStories:
    """Stories, each with the number of its task, as numbers."""
    numbers = vocabulary()
    encoded: dict[Line, tuple[array[int], array[int]]] = {}

    def lines(line: Line) -> tuple[array[int], array[int]]:
        if line not in encoded:
            answers = array("h", [-1]) * len(line.words) + array("h", (numbers[word] for word in line.answer))
            encoded[line] = array("h", (numbers[word] for word in line.shown)), answers
        return encoded[line]

    # Arrays, not lists: a number takes two bytes here, eight there.
    shown, answers = array("h"), array("h")
    starts, tasks = array("q", [0]), array("q")
    for task, story in stories:
        for line in story:
            seen, right = lines(line)
            shown += seen
            answers += right
        starts.append(len(shown))
        tasks.append(task)
    return EncodedStories(
        np.array(shown, np.int16), np.array(answers, np.int16), np.array(starts, np.int64), np.array(tasks, np.int64)
    )


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a text with their positions, without the numbers they may begin with."""
    for position, line in enumerate(text.split("\n"), start=1):
        content = re.sub(r"^\s*\d+\s", "", line).strip()
        if content:
            yield position, content
