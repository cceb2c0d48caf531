"""Associative Recall."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nsm.tasks.layout import Phases, Segment
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import Range, check_count, check_range
from nsm.tasks.task import PhasedTask

_ITEMS, _VECTORS, _QUERY = range(3)


@dataclass(frozen=True)
class AssociativeRecall(PhasedTask):
    """Given a list of items and one of them, output the item that followed it.

    Inputs: for each of K items a delimiter on channel `width` and the item's vectors; then the query between two
    delimiters on channel `width + 1`; then zero steps. The query is any item but the last.
    Targets: the vectors of the item after the query.

    Items are independent, so two may be equal by chance; the query is the one that was drawn.

    Attributes:
        width: bits of a vector.
        items: range of K.
        item_length: vectors of an item.
    """

    ranges: ClassVar[tuple[str, ...]] = ("items", "item_length")

    width: int = 6
    items: Range = (2, 6)
    item_length: int = 3

    def __post_init__(self) -> None:
        check_count(self, "width")
        check_range(self, "items", least=2)
        check_count(self, "item_length")

    @property
    def input_size(self) -> int:
        return self.width + 2

    @property
    def output_size(self) -> int:
        return self.width

    @property
    def max_length(self) -> int:
        return self.items[1] * (1 + self.item_length) + (2 + self.item_length) + self.item_length

    def make_phases(self, draws: Draws) -> Phases:
        count = draws.structure.integers(_ITEMS, self.items)
        most = self.items[1]
        items = draws.bits(_VECTORS, most, self.item_length, self.width)
        query = draws.integers(_QUERY, (0, count - 2))

        # One more step in front of an item and one more channel: the delimiter.
        delimited = np.zeros((draws.sequences, most, 1 + self.item_length, self.width + 1), dtype=np.uint8)
        delimited[:, :, 0, self.width] = 1
        delimited[:, :, 1:, : self.width] = items
        listed = Segment.of(delimited.reshape(draws.sequences, -1, self.width + 1), count * (1 + self.item_length))

        every = np.arange(draws.sequences)
        bound = Segment.flag(draws.sequences, channel=self.width + 1)
        return Phases(
            encoding=(listed, bound, Segment.of(items[every, query]), bound),
            decoding=(Segment.of(items[every, query + 1]),),
        )
