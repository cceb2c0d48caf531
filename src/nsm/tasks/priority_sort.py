"""Priority Sort."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nsm.checks import UserError
from nsm.tasks.layout import Phases, Segment
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import check_count
from nsm.tasks.task import PhasedTask

_VECTORS, _PRIORITIES = range(2)


@dataclass(frozen=True)
class PrioritySort(PhasedTask):
    """Sort random binary vectors by their priorities.

    Inputs: `items` vectors, each with a priority uniform in [−1, 1) on channel `width`; then zero steps.
    Targets: the `sorted_items` vectors of highest priority, in decreasing order; ties stay in input order.

    Attributes:
        width: bits of a vector.
        items: vectors to sort.
        sorted_items: vectors in the answer.
    """

    ranges: ClassVar[tuple[str, ...]] = ("items", "sorted_items")

    width: int = 8
    items: int = 20
    sorted_items: int = 16

    def __post_init__(self) -> None:
        for field in ("width", "items", "sorted_items"):
            check_count(self, field)
        if self.sorted_items > self.items:
            raise UserError(
                f"PrioritySort.sorted_items is {self.sorted_items}: it must be at most items, which is {self.items}."
            )

    @property
    def input_size(self) -> int:
        return self.width + 1

    @property
    def output_size(self) -> int:
        return self.width

    @property
    def max_length(self) -> int:
        return self.items + self.sorted_items

    def make_phases(self, draws: Draws) -> Phases:
        vectors = draws.bits(_VECTORS, self.items, self.width)
        priorities = (2.0 * draws.uniform(_PRIORITIES, self.items) - 1.0).astype(np.float32)
        # Rounding to float32 could give 1 itself. Sorting comes after rounding: the model can only sort what it sees.
        priorities = np.minimum(priorities, np.nextafter(np.float32(1), np.float32(0)))
        best = np.argsort(-priorities, axis=1, kind="stable")[:, : self.sorted_items]
        prioritised = np.concatenate((vectors, priorities[:, :, None]), axis=2, dtype=np.float32)
        ranked = np.take_along_axis(vectors, best[:, :, None], axis=1)
        return Phases(encoding=(Segment.of(prioritised),), decoding=(Segment.of(ranked),))
