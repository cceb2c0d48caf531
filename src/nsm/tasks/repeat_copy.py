"""Repeat Copy."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from nsm.checks import UserError
from nsm.tasks.layout import Phases, Segment, unroll
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import Range, check_count, check_range
from nsm.tasks.task import PhasedTask

_LENGTH, _REPEATS, _VECTORS = range(3)

CountMean = Literal["centre", "authors"]


@dataclass(frozen=True)
class RepeatCopy(PhasedTask):
    """Repeat a sequence of random binary vectors a given number of times.

    Inputs: a start flag on channel `width`, L vectors, the repeat count R on channel `width + 1`, zero steps.
    Targets: the vectors R times over, then an end marker on channel `width`.

    The count is normalised as (R − mean) / deviation of the uniform distribution on `normalise`, the training range.
    The test uses the same range: an input that meant 10 in training must not mean 20 in the test.

    Attributes:
        width: bits of a vector.
        length: range of L.
        repeats: range of R.
        normalise: the range whose mean and standard deviation normalise the count; a deviation of 0 counts as 1.
        count_mean: the mean is (low + high) / 2 for "centre", (high − low) / 2 as in the published code for "authors".
        end_marker: require a marker after the last repetition, on a separate output channel.
    """

    ranges: ClassVar[tuple[str, ...]] = ("length", "repeats")

    width: int = 8
    length: Range = (1, 10)
    repeats: Range = (1, 10)
    normalise: Range = (1, 10)
    count_mean: CountMean = "centre"
    end_marker: bool = True

    def __post_init__(self) -> None:
        check_count(self, "width")
        for field in ("length", "repeats", "normalise"):
            check_range(self, field)
        if self.count_mean not in get_args(CountMean):
            raise UserError(f'RepeatCopy.count_mean is {self.count_mean!r}: it must be "centre" or "authors".')

    @property
    def input_size(self) -> int:
        return self.width + 2

    @property
    def output_size(self) -> int:
        return self.width + self.end_marker

    @property
    def max_length(self) -> int:
        return 2 + self.length[1] + self.length[1] * self.repeats[1] + self.end_marker

    def make_phases(self, draws: Draws) -> Phases:
        lengths = draws.structure.integers(_LENGTH, self.length)
        repeats = draws.structure.integers(_REPEATS, self.repeats)
        vectors = draws.bits(_VECTORS, self.length[1], self.width)
        start = Segment.flag(draws.sequences, channel=self.width)
        count = Segment.signal((repeats - self._mean) / self._deviation, channel=self.width + 1)
        sequence, step = unroll(lengths * repeats)
        repetitions = Segment(vectors[sequence, step % lengths[sequence]], lengths * repeats)
        marker = (Segment.flag(draws.sequences, channel=self.width),) if self.end_marker else ()
        return Phases(encoding=(start, Segment.of(vectors, lengths), count), decoding=(repetitions, *marker))

    @property
    def _mean(self) -> float:
        low, high = self.normalise
        return (low + high) / 2 if self.count_mean == "centre" else (high - low) / 2

    @property
    def _deviation(self) -> float:
        low, high = self.normalise
        values = high - low + 1
        return float(np.sqrt((values**2 - 1) / 12)) if values > 1 else 1.0
