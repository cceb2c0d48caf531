"""A machine's answer to a question about a story, and the sentences it read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch

from nsm.checks import UserError, at_least, fits
from nsm.data.archive import read_file
from nsm.data.stories import BLANK, parse_line, sentences, split, vocabulary
from nsm.machine import Machine
from nsm.plots.heads import Array, HeadTrace
from nsm.tasks.classification import one_hot

MOST = 1 << 20
"""Maximum size of a story in bytes; bAbI's longest has 8,727."""
PATH_QUESTION = ("how", "do", "you", "go")

Sentence = tuple[str, ...]
"""Words and the final sign; in a question, also a blank for every word of the answer."""


@dataclass(frozen=True)
class Word:
    """A word of an answer, its probability, and the next most probable words."""

    word: str
    probability: float
    runners_up: list[tuple[str, float]]


@dataclass(frozen=True)
class Answer:
    """A machine's answer, and the sentences it read to give it."""

    words: list[Word]
    looked_at: list[tuple[int, float]]
    """Sentences of the story, numbered from 0, with their shares of what was read; the largest first."""

    @property
    def text(self) -> str:
        return ", ".join(word.word for word in self.words)

    @property
    def probability(self) -> float:
        return prod(word.probability for word in self.words)


def read_story(path: Path) -> list[Sentence]:
    """The sentences of a text file, one per line."""
    try:
        text = read_file(path, MOST).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} can't be read: it is not UTF-8 text") from None
    story = []
    for position, line in sentences(text):
        try:
            story.append(statement(line))
        except UserError as error:
            raise UserError(f"{path}, line {position}: {error}") from None
    return story


def statement(text: str) -> Sentence:
    """A line of a story; the final "." may be missing. A question has its answer after a tab."""
    line = parse_line(text)
    return line.shown if line.words[-1] in ".?" else (*line.shown, ".")


def question(text: str, words: int | None = None) -> Sentence:
    """A question, with a blank for every word of its answer; the final "?" may be missing.

    In bAbI the question determines the number of words in its answer: one by default, two for a path.
    """
    try:
        asked = split(text)
    except UserError as error:
        raise UserError(f"the question is not understood: {error}") from None
    if not asked or asked == ("?",):
        raise UserError("the question is empty")
    if words is None:
        words = 2 if asked[: len(PATH_QUESTION)] == PATH_QUESTION else 1
    # Every step has an input and an output for each known word.
    fits(f"an answer of {words:,} words", 8 * len(vocabulary()) * at_least("words", words, 1))
    return (*asked, *(() if asked[-1] == "?" else ("?",)), *[BLANK] * words)


@torch.no_grad()
def answer(machine: Machine, story: Sequence[Sentence], asked: Sentence, runners_up: int) -> Answer:
    """The machine's outputs at the blanks of a question about a story."""
    numbers = vocabulary()
    names = list(numbers)
    shown = [word for sentence in (*story, asked) for word in sentence]
    x = one_hot(np.array([numbers[word] for word in shown]), len(numbers))[:, None]
    logits, _, trace = machine.eval()(torch.from_numpy(x), trace=True)
    blanks = asked.count(BLANK)
    said = []
    for probabilities in logits[-blanks:, 0].softmax(-1):
        ranked = probabilities.argsort(descending=True, stable=True)[: 1 + runners_up].tolist()
        first, *others = [(names[i], float(probabilities[i])) for i in ranked]
        said.append(Word(*first, others))
    return Answer(said, _looked_at(read_from(trace.head_traces()), story, len(asked)))


def _looked_at(read: Array, story: Sequence[Sentence], asking: int) -> list[tuple[int, float]]:
    """The sentences that were read during the question and its answer, with their shares."""
    owner = np.repeat(np.arange(len(story)), [len(sentence) for sentence in story])
    shares = np.bincount(owner, read[-asking:, : len(owner)].sum(axis=0), minlength=len(story))
    total = shares.sum()
    if not total > 0:
        return []
    return [(int(n), float(shares[n] / total)) for n in np.argsort(-shares, kind="stable")]


def read_from(heads: Sequence[HeadTrace]) -> Array:
    """(T, T): at step t, how much of what was read had been written at step s; a sum over the read heads.

    A write of weight w replaces that share of what a slot holds.
    """
    reading = sum(head.address for head in heads if head.kind == "read")
    assert isinstance(reading, np.ndarray)
    steps, slots = reading.shape
    written = np.zeros((slots, steps), np.float32)
    found = np.zeros((steps, steps), np.float32)
    for step in range(steps):
        for head in heads:
            if head.kind == "write":
                written *= 1 - head.address[step, :, None]
                written[:, step] += head.address[step]
        found[step] = reading[step] @ written
    return found
