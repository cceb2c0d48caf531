"""What a task reports: its figures by name, what they are, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Figures = Mapping[str, float]
"""What a test found, by the names of measures."""


class Measure(NamedTuple):
    """One figure that a task reports."""

    name: str
    """In files: bit_errors."""
    words: str
    """For people: wrong bits per sequence."""
    better: Literal["lower", "higher", "neither"] = "lower"
    share: bool = False
    """Whether it is a share of something, shown in per cent."""
    column: str = ""
    """What heads it in tables, where it stands beside the figure that a task is judged by; nothing: it does not."""

    def text(self, value: float | None, digits: int = 2) -> str:
        """The figure as text; a dash where there is none."""
        if value is None or value != value:
            return "–"
        return f"{value:.{max(0, digits - 1)}%}" if self.share else f"{value:,.{digits}f}"

    def best(self, values: list[float]) -> float:
        """The best of some."""
        return max(values) if self.better == "higher" else min(values)


class Breakdown(NamedTuple):
    """The same figure for every part of a task: by subtask, by presentation, by question."""

    words: str
    """wrong bits by subtask"""
    better: Literal["lower", "higher"]
    share: bool
    names: Mapping[str, str]
    """Names of figures by what they are of, in order: {"copy": "bit_errors/copy", …}."""
    aside: tuple[str, ...] = ()
    """Parts that a mean over all of them is also given without, because their data are in doubt."""

    @property
    def measure(self) -> Measure:
        return Measure("", self.words, self.better, self.share)


LOSS = Measure("loss", "loss (nats)")
BIT_ERRORS = Measure("bit_errors", "wrong bits per sequence")
BITS = (
    BIT_ERRORS,
    Measure("l1_errors", "Σ|p−y| per sequence", column="Σ|p−y|"),
    Measure("perfect", "sequences without an error", "higher", share=True),
    Measure("bit_accuracy", "bit accuracy", "higher", share=True),
    Measure("cross_entropy_bits", "bits of cross-entropy per sequence"),
)
ERROR = Measure("error", "wrong answers", share=True)
