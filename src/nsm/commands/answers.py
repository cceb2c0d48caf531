"""What a machine answers to a question about a story."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nsm.checks import UserError
from nsm.data.archive import read_file
from nsm.data.stories import parse_line, sentences, split, vocabulary
from nsm.machine import Machine
from nsm.tasks.classification import one_hot

MOST = 1 << 20
"""Bytes of a story: the longest of bAbI has 8,727."""


@dataclass(frozen=True)
class Word:
    """A word of an answer: how probable the machine finds it, and what it would have said next."""

    word: str
    probability: float
    runners_up: list[tuple[str, float]]


def ask_words(question: str) -> tuple[str, ...]:
    """The words of a question, which need not end with "?"."""
    try:
        words = split(question)
    except UserError as error:
        raise UserError(f"the question can't be asked: {error}") from None
    if not words or words == ("?",):
        raise UserError("the question is empty")
    return words if words[-1] == "?" else (*words, "?")


def read_story(path: Path) -> list[str]:
    """The words of a story, with a blank for every word of an answer."""
    try:
        text = read_file(path, MOST).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} can't be read: it is no text") from None
    shown: list[str] = []
    for position, sentence in sentences(text):
        try:
            line = parse_line(sentence)
        except UserError as error:
            raise UserError(f"{path}, line {position}: {error}") from None
        shown += line.shown if line.words[-1] in ".?" else (*line.shown, ".")
    return shown


@torch.no_grad()
def answer(machine: Machine, shown: list[str], words: int, runners_up: int) -> list[Word]:
    """What the machine says at the last `words` steps of what it is shown."""
    numbers = vocabulary()
    names = list(numbers)
    x = one_hot(np.array([numbers[word] for word in shown]), len(numbers))[:, None]
    logits, _ = machine.eval()(torch.from_numpy(x))
    said = []
    for probabilities in logits[-words:, 0].softmax(-1):
        ranked = probabilities.argsort(descending=True, stable=True)[: 1 + runners_up].tolist()
        first, *others = [(names[i], float(probabilities[i])) for i in ranked]
        said.append(Word(*first, others))
    return said
