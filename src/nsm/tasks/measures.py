"""What a task reports: its scores by name, what they are, and which direction is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Figures = Mapping[str, float]
"""The results of a test, by the names of measures."""


class Measure(NamedTuple):
    """One figure that a task reports."""

    name: str
    """In files: bit_errors."""
    words: str
    """For people: wrong bits per sequence."""
    better: Literal["lower", "higher", "neither"] = "lower"
    share: bool = False
    """Whether it is a fraction, shown in per cent."""
    column: str = ""
    """Its column in tables, beside the score that a task is judged by; empty: it has none."""

    def text(self, value: float | None, digits: int = 2) -> str:
        """The figure as text; a dash where there is none."""
        if value is None or value != value:
            return "–"
        return f"{value:.{max(0, digits - 1)}%}" if self.share else f"{value:,.{digits}f}"

    def best(self, values: list[float]) -> float:
        """The best of several values."""
        return max(values) if self.better == "higher" else min(values)


class Breakdown(NamedTuple):
    """The same score for every part of a task: by subtask, by presentation, by question."""

    words: str
    """wrong bits by subtask"""
    better: Literal["lower", "higher"]
    share: bool
    names: Mapping[str, str]
    """Names of scores by part, in order: {"copy": "bit_errors/copy", …}."""
    aside: tuple[str, ...] = ()
    """Parts with doubtful data: the mean over all parts is also reported without them."""

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
