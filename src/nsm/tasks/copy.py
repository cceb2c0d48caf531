"""Copy, and Long Copy, which is Copy at twice the length."""

from dataclasses import dataclass
from typing import ClassVar

from nsm.tasks.layout import Phases, Segment
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import Range, check_count, check_range, check_share
from nsm.tasks.task import PhasedTask

_LENGTH, _VECTORS, _BLANK = range(3)


@dataclass(frozen=True)
class Copy(PhasedTask):
    """Repeat a sequence of random binary vectors after it has ended.

    Inputs: a start flag on channel `width`, L vectors, an end flag on channel `width + 1`, L zero steps.
    Targets: the vectors, in the zero steps.

    Attributes:
        width: bits of a vector.
        length: range of L.
        blank: share of vectors that are set to all zeros, besides the one in 2^width that is zero by chance. Such a
            step looks like a step of the answer phase, and random vectors have two in a row only once in 65,536.
    """

    ranges: ClassVar[tuple[str, ...]] = ("length",)

    width: int = 8
    length: Range = (1, 20)
    blank: float = 0.0

    def __post_init__(self) -> None:
        check_count(self, "width")
        check_range(self, "length")
        check_share(self, "blank")

    @property
    def input_size(self) -> int:
        return self.width + 2

    @property
    def output_size(self) -> int:
        return self.width

    @property
    def max_length(self) -> int:
        return 2 + 2 * self.length[1]

    def make_phases(self, draws: Draws) -> Phases:
        lengths = draws.structure.integers(_LENGTH, self.length)
        bits = draws.bits(_VECTORS, self.length[1], self.width)
        if self.blank:
            bits[draws.uniform(_BLANK, self.length[1]) < self.blank] = 0
        vectors = Segment.of(bits, lengths)
        start = Segment.flag(draws.sequences, channel=self.width)
        end = Segment.flag(draws.sequences, channel=self.width + 1)
        return Phases(encoding=(start, vectors, end), decoding=(vectors,))
