"""Tasks whose answer is one of several choices: the softmax loss, and counts that add up over batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from nsm.checks import UserError
from nsm.tasks.arrays import Floats
from nsm.tasks.batch import Batch
from nsm.tasks.measures import ERROR, Figures, Measure
from nsm.tasks.metrics import counted
from nsm.tasks.task import Task

if TYPE_CHECKING:
    import torch


class Share(NamedTuple):
    """A part of a whole."""

    part: int
    whole: int

    def __add__(self, other: Share) -> Share:  # type: ignore[override]
        return Share(self.part + other.part, self.whole + other.whole)


class EpisodeShare(NamedTuple):
    """A part of a whole, counted in episodes, within which outcomes are correlated."""

    part: int
    whole: int
    parts_squared: int
    """Σ part² over episodes"""
    products: int
    """Σ part · whole"""
    wholes_squared: int
    """Σ whole²"""

    @classmethod
    def of(cls, parts: np.ndarray, wholes: np.ndarray) -> EpisodeShare:
        """From the parts and wholes (B,) of B episodes."""
        sums = (parts, wholes, parts * parts, parts * wholes, wholes * wholes)
        return cls(*(int(numbers.sum()) for numbers in sums))

    def __add__(self, other: EpisodeShare) -> EpisodeShare:  # type: ignore[override]
        return EpisodeShare(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))

    @property
    def interval(self) -> float:
        """Half of the 95 % confidence interval of part / whole, assuming independent episodes.

        The ratio p of two sums deviates by about Σ (part − p whole) / Σ whole.
        """
        p = self.part / self.whole
        deviation = self.parts_squared - 2 * p * self.products + p * p * self.wholes_squared
        return 1.96 * sqrt(max(deviation, 0.0)) / self.whole


@dataclass(frozen=True)
class Tally:
    """Sums over sequences: add those of several batches, then take `averages`.

    Attributes:
        sequences: how many.
        answers: how many answers were scored.
        nats: cross-entropy Σ −ln p(target).
        shares: counts by name, always including "error". A name may occur in one batch and not in another.
    """

    sequences: int
    answers: int
    nats: float
    shares: Mapping[str, Share | EpisodeShare] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        shares: dict[str, Any] = dict(self.shares)
        for name, share in other.shares.items():
            shares[name] = shares[name] + share if name in shares else share
        return replace(
            self,
            sequences=self.sequences + other.sequences,
            answers=self.answers + other.answers,
            nats=self.nats + other.nats,
            shares=shares,
        )

    def averages(self) -> dict[str, float]:
        """The loss per answer (nats, as in training), every share with a whole, and the number of sequences.

        Shares of episodes also have half of their confidence interval, as "name ±".
        """
        averages = {"sequences": float(self.sequences), "loss": self.nats / max(self.answers, 1)}
        for name, share in self.shares.items():
            if share.whole:
                averages[name] = share.part / share.whole
                if isinstance(share, EpisodeShare):
                    averages[f"{name} ±"] = share.interval
        return averages


@dataclass(frozen=True)
class Classification(Task):
    """A task with one correct answer of O at every scored step; targets are one-hot."""

    choice: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (ERROR,)

    @property
    def chance(self) -> float | None:
        return None

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """The probability of each choice for logits (T, B, O)."""
        return logits.softmax(-1)

    def sentence(self, figures: Figures) -> str:
        return f"{figures['error']:.2%} of answers wrong"

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross-entropy (nats) of logits (T, B, O) over the scored steps."""
        answers, targets = counted(logits, batch)
        return -(answers.log_softmax(-1) * targets).sum() / max(len(targets), 1)

    def _judged(self, batch: Batch) -> Batch:
        asked = batch.targets[batch.mask > 0]
        if type(self).loss is Classification.loss and not _one_hot(asked):
            raise UserError(f"{self._sample_name} must have one-hot targets at the scored steps")
        return batch

    def shares(self, wrong: np.ndarray, batch: Batch) -> Mapping[str, Share | EpisodeShare]:
        """What to count besides errors, from wrong (T, B): whether the answer of a step is scored and wrong."""
        return {}

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Tally:
        answers, targets = counted(logits.detach(), batch)
        answers, targets = answers.double(), targets.double()
        wrong = np.zeros(batch.mask.shape, dtype=bool)
        wrong[batch.mask > 0] = (answers.argmax(-1) != targets.argmax(-1)).cpu().numpy()
        return Tally(
            sequences=batch.mask.shape[1],
            answers=len(targets),
            nats=float(-(answers.log_softmax(-1) * targets).sum()),
            shares={"error": Share(int(wrong.sum()), len(targets)), **self.shares(wrong, batch)},
        )


def _one_hot(rows: np.ndarray) -> bool:
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(1) == 1).all())


def one_hot(labels: np.ndarray, classes: int) -> Floats:
    """(…, classes) floats from (…) labels; a negative label gives all zeros."""
    if labels.size and labels.max() >= classes:
        raise UserError(f"a label is {labels.max()}: there are {classes} classes, counted from 0.")
    hot: Floats = (labels[..., None] == np.arange(classes)).astype(np.float32)
    return hot
