"""The training loss, and scores that add up over batches.

Only positions with mask 1 are used, so the output elsewhere may be anything, NaN included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nsm.checks import UserError
from nsm.tasks.batch import Batch

if TYPE_CHECKING:
    import torch


class Sums(Protocol):
    """Scores of some sequences that can be added to those of others."""

    def __add__(self, other: Any, /) -> Any: ...

    def averages(self) -> dict[str, float]:
        """What is reported: "sequences", "loss" as in training, and the task's own scores."""


@dataclass(frozen=True)
class Metrics:
    """Sums over sequences: add those of several batches, then take `averages`.

    Attributes:
        sequences: how many.
        bits: how many output bits were scored.
        bit_errors: how many of them were wrong, the output being 1 where the logit is above 0.
        perfect: sequences without a wrong bit.
        l1_errors: Σ |sigmoid(logit) − target|.
        nats: cross-entropy Σ −ln p(target).
        subtask_bit_errors: wrong bits by name of subtask, where there are subtasks.
        optimum_bits: cross-entropy in bits of the best possible predictor on the same sequences, where it is known.
    """

    sequences: int
    bits: int
    bit_errors: int
    perfect: int
    l1_errors: float
    nats: float
    subtask_bit_errors: Mapping[str, int] = field(default_factory=dict)
    optimum_bits: float | None = None

    def __add__(self, other: Metrics) -> Metrics:
        if set(self.subtask_bit_errors) != set(other.subtask_bit_errors):
            raise UserError(
                f"Metrics of different subtasks cannot be added: {sorted(self.subtask_bit_errors)} "
                f"and {sorted(other.subtask_bit_errors)}."
            )
        if (self.optimum_bits is None) != (other.optimum_bits is None):
            raise UserError("Metrics with and without optimum_bits cannot be added: they are of different tasks.")
        return Metrics(
            sequences=self.sequences + other.sequences,
            bits=self.bits + other.bits,
            bit_errors=self.bit_errors + other.bit_errors,
            perfect=self.perfect + other.perfect,
            l1_errors=self.l1_errors + other.l1_errors,
            nats=self.nats + other.nats,
            subtask_bit_errors={
                name: errors + other.subtask_bit_errors[name] for name, errors in self.subtask_bit_errors.items()
            },
            optimum_bits=(
                None
                if self.optimum_bits is None or other.optimum_bits is None
                else self.optimum_bits + other.optimum_bits
            ),
        )

    def averages(self) -> dict[str, float]:
        """Per sequence: bit_errors, l1_errors, cross_entropy_bits, optimum_bits, bit_errors/⟨subtask⟩.

        Per bit: loss (nats, as in training) and bit_accuracy. Also the share of perfect sequences, and their number.
        """
        averages = {
            "sequences": float(self.sequences),
            "loss": self.nats / self.bits,
            "bit_errors": self.bit_errors / self.sequences,
            "l1_errors": self.l1_errors / self.sequences,
            "perfect": self.perfect / self.sequences,
            "bit_accuracy": 1.0 - self.bit_errors / self.bits,
            "cross_entropy_bits": self.nats / log(2.0) / self.sequences,
        }
        if self.optimum_bits is not None:
            averages["optimum_bits"] = self.optimum_bits / self.sequences
        for name, errors in self.subtask_bit_errors.items():
            averages[f"bit_errors/{name}"] = errors / self.sequences
        return averages


def loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Mean binary cross-entropy, in nats, over the counted steps and all output channels.

    Args:
        logits: (T, B, O).
        batch: the batch they answer.

    Returns:
        A scalar, differentiable; the gradient at steps that don't count is zero.
    """
    answers, targets = counted(logits, batch)
    return _cross_entropy(answers, targets) / max(targets.numel(), 1)


def measure(logits: torch.Tensor, batch: Batch, subtasks: tuple[str, ...] = ()) -> Metrics:
    """All sums but `optimum_bits`.

    Args:
        logits: (T, B, O).
        batch: the batch they answer.
        subtasks: names of the subtasks, in the order of `batch.subtask`.
    """
    answers, targets = counted(logits.detach(), batch)
    answers, targets = answers.double(), targets.double()
    wrong = (answers > 0) != (targets > 0.5)
    wrong_at = np.zeros(batch.mask.shape, dtype=np.int64)
    wrong_at[batch.mask > 0] = wrong.sum(dim=1).cpu().numpy()
    return Metrics(
        sequences=batch.mask.shape[1],
        bits=targets.numel(),
        bit_errors=int(wrong_at.sum()),
        perfect=int((wrong_at.sum(axis=0) == 0).sum()),
        l1_errors=float((answers.sigmoid() - targets).abs().sum()),
        nats=float(_cross_entropy(answers, targets)),
        subtask_bit_errors={name: int(wrong_at[batch.subtask == index].sum()) for index, name in enumerate(subtasks)},
    )


def counted(logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, O) logits and (n, O) targets of the n scored steps, ordered by time, then by sequence.

    Selected, not multiplied by the mask: 0 · inf would be NaN, in the loss and in its gradient.
    """
    import torch

    if logits.shape != batch.targets.shape:
        raise UserError(f"logits are {tuple(logits.shape)}: they must have the targets' shape {batch.targets.shape}.")
    counted = torch.from_numpy(np.flatnonzero(batch.mask)).to(logits.device)
    targets = torch.from_numpy(batch.targets).to(logits.device)
    return logits.flatten(0, 1).index_select(0, counted), targets.flatten(0, 1).index_select(0, counted)


def _cross_entropy(answers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Σ −ln p(target); with targets of 0 and 1 only, p is a sigmoid of ± the logit, exact even for infinite ones."""
    from torch.nn.functional import logsigmoid

    return -logsigmoid((2.0 * targets - 1.0) * answers).sum()
