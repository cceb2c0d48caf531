"""Words that can be exchanged in a bAbI story, its answers included, without making it wrong.

Stories are generated from templates with random people and places. So exchanging Mary and John throughout a story and
its answers gives an equally valid story. Directions are constrained: north may become east only if south becomes west.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations, product

import numpy as np

from nsm.data.stories import Numbers, vocabulary


@dataclass(frozen=True)
class Symmetry:
    """Words that may take each other's place.

    Attributes:
        words: each with its forms: mouse and mice.
        allowed: all allowed permutations.
    """

    words: tuple[tuple[str, ...], ...]
    allowed: tuple[tuple[int, ...], ...]


def _any(words: str) -> Symmetry:
    """Words that may be permuted freely; a/b are forms of one word."""
    forms = tuple(tuple(word.split("/")) for word in words.split())
    return Symmetry(forms, tuple(permutations(range(len(forms)))))


def _compass() -> Symmetry:
    """Four directions under rotation and reflection."""
    ends = ((0, 1), (2, 3))  # north and south, west and east
    allowed = (
        (*first[::turn], *second[::other])
        for (first, second), turn, other in product(permutations(ends), (1, -1), (1, -1))
    )
    return Symmetry((("north", "n"), ("south", "s"), ("west", "w"), ("east", "e")), tuple(allowed))


_PEOPLE = _any("mary john sandra daniel")
_WOMEN, _MEN = _any("mary sandra"), _any("john daniel")
"""For stories that say she and he."""
_OTHERS = _any("mary fred bill julie")
_ROOMS = _any("bathroom hallway office kitchen garden bedroom")
_PLACES = _any("office bedroom kitchen school cinema park")
_THINGS = _any("milk apple football")

SYMMETRIES: dict[int, tuple[Symmetry, ...]] = {
    1: (_PEOPLE, _ROOMS),
    2: (_PEOPLE, _ROOMS, _THINGS),
    3: (_PEOPLE, _ROOMS, _THINGS),
    4: (_ROOMS, _compass()),
    5: (_any("mary fred bill jeff"), _ROOMS, _THINGS),
    6: (_PEOPLE, _ROOMS, _THINGS),
    7: (_PEOPLE, _ROOMS, _THINGS),
    8: (_PEOPLE, _ROOMS, _THINGS),
    9: (_PEOPLE, _ROOMS),
    10: (_OTHERS, _PLACES),
    11: (_WOMEN, _MEN, _ROOMS),
    12: (_PEOPLE, _ROOMS),
    13: (_PEOPLE, _ROOMS),
    14: (_OTHERS, _PLACES),
    # Sheep is both singular and plural, so no other animal can replace it.
    15: (_any("gertrude winona jessica emily"), _any("mouse/mice wolf/wolves cat/cats")),
    16: (_any("lily julius greg brian bernhard"), _any("swan rhino lion frog"), _any("yellow green gray white")),
    17: (_any("above below"), _any("left right"), _any("red blue pink yellow"), _any("square rectangle sphere")),
    # A box of chocolates and a chocolate are smaller than the rest, and "box" occurs in both roles.
    18: (_any("container chest suitcase"),),
    19: (_ROOMS, _compass()),
    # Motives and places are tied: the hungry always go to the kitchen.
    20: (_any("jason antoine yann sumit"),),
}
"""The symmetries of every task; they may be combined."""


@cache
def exchanges(task: int) -> tuple[Numbers, ...]:
    """For each symmetry of a task, a table (ways, words) of the word that replaces each word."""
    numbers = vocabulary()
    tables = []
    for symmetry in SYMMETRIES[task]:
        table = np.tile(np.arange(len(numbers)), (len(symmetry.allowed), 1))
        for way, order in zip(table, symmetry.allowed, strict=True):
            for word, other in enumerate(order):
                for form, replacement in zip(symmetry.words[word], symmetry.words[other], strict=True):
                    way[numbers[form]] = numbers[replacement]
        tables.append(table)
    return tuple(tables)
