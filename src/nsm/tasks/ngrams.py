"""Dynamic N-grams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, pi
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nsm.checks import UserError
from nsm.tasks.arrays import Bits, Doubles, Ints
from nsm.tasks.batch import Batch
from nsm.tasks.layout import Canvas, Segment
from nsm.tasks.measures import BITS, Figures, Measure
from nsm.tasks.metrics import Metrics, measure
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import check_count
from nsm.tasks.task import Task

if TYPE_CHECKING:
    import torch

_TABLE, _BITS = range(2)


@dataclass(frozen=True)
class NGrams(Task):
    """Predict a binary source whose next bit depends on the `order` − 1 bits before it.

    Every sequence has its own source: a table of 2^(order−1) probabilities from Beta(½, ½), one for each context. The
    first order − 1 bits are fair.

    Inputs: on a single channel a bit, then a zero step whose target is the next bit, and so on.
    Targets: the next bit, in the zero steps.

    Predictions are scored once the context is full: those of bits order, …, length. The last bit is a target but never
    an input, since nothing follows it: a sequence takes 2 · (length − 1) steps.

    Attributes:
        order: N, the bits that depend on each other.
        length: bits of a sequence.
    """

    ranges: ClassVar[tuple[str, ...]] = ("length",)
    solvable: ClassVar[bool] = False
    measures: ClassVar[tuple[Measure, ...]] = (
        BITS[-1],
        Measure("optimum_bits", "the best possible cross-entropy", "neither", column="optimum"),
        *BITS[:-1],
    )

    order: int = 6
    length: int = 50

    def __post_init__(self) -> None:
        check_count(self, "order", least=2)
        check_count(self, "length", least=2)
        if self.length < self.order:
            raise UserError(
                f"NGrams.length is {self.length}: it must be at least order, which is {self.order}, "
                f"or no bit has a full context."
            )

    @property
    def input_size(self) -> int:
        return 1

    @property
    def output_size(self) -> int:
        return 1

    @property
    def max_length(self) -> int:
        return 2 * (self.length - 1)

    @property
    def contexts(self) -> int:
        """The number of contexts."""
        return 1 << (self.order - 1)

    @property
    def predictions(self) -> int:
        """The number of scored predictions in a sequence."""
        return self.length - self.order + 1

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        bits = self._bits(draws)
        shown = np.zeros((draws.sequences, self.length - 1, 2), dtype=np.uint8)
        shown[:, :, 0] = bits[:, :-1]

        def of_each(number: int) -> Ints:
            return np.full(draws.sequences, number, dtype=np.int64)

        first_answer = of_each(2 * self.order - 3)  # the step after bit order − 1
        canvas = Canvas(draws, of_each(self.max_length), first_answer, input_size, output_size)
        canvas.show(Segment.of(shown.reshape(draws.sequences, -1, 1)), of_each(0), subtask=0)
        canvas.ask(Segment.of(bits[:, self.order - 1 :, None]), first_answer, subtask=0, every=2)
        return canvas.batches()

    def min_slots(self, batch: Batch) -> int:
        """One for every context: the best predictor counts the ones and zeros after each."""
        return self.contexts

    def metrics(self, logits: torch.Tensor, batch: Batch) -> Metrics:
        return replace(measure(logits, batch), optimum_bits=float(self.optimum_bits(batch).sum()))

    def sentence(self, figures: Figures) -> str:
        bits, optimum = figures["cross_entropy_bits"], figures["optimum_bits"]
        return f"{bits:.2f} bits of cross-entropy per sequence, the best possible is {optimum:.2f}"

    def optimum_bits(self, batch: Batch) -> Doubles:
        """(B,) cross-entropy in bits of the Bayes-optimal predictor, Krichevsky and Trofimov's, on each sequence.

        Having seen n₁ ones and n₀ zeros after a context it predicts a one with (n₁ + ½) / (n₁ + n₀ + 1). The product
        of its predictions after a context does not depend on their order:
        Γ(n₁ + ½) Γ(n₀ + ½) / (π Γ(n₁ + n₀ + 1)), n₁ and n₀ being the counts at the end.
        """
        import torch

        batch_size = batch.inputs.shape[1]
        bits = np.concatenate((batch.inputs[::2, :, 0], batch.targets[-1:, :, 0])).T.astype(np.int64)  # (B, length)
        context = np.zeros((batch_size, self.predictions), dtype=np.int64)
        for back in range(self.order - 1):
            context = 2 * context + bits[:, back : back + self.predictions]
        cell = (np.arange(batch_size)[:, None] * self.contexts + context) * 2 + bits[:, self.order - 1 :]
        tally = np.bincount(cell.ravel(), minlength=2 * batch_size * self.contexts)
        counts = torch.from_numpy(tally.reshape(batch_size, self.contexts, 2)).double()
        log_probability = torch.lgamma(counts + 0.5).sum(dim=2) - torch.lgamma(counts.sum(dim=2) + 1.0) - log(pi)
        optimum: Doubles = (-log_probability.sum(dim=1) / log(2.0)).numpy()
        return optimum

    def _bits(self, draws: Draws) -> Bits:
        """(N, length) the bits of the sources."""
        table = draws.arcsine(_TABLE, self.contexts).ravel()
        chance = np.ascontiguousarray(draws.uniform(_BITS, self.length).T)
        bits = np.empty((self.length, draws.sequences), dtype=np.uint8)
        bits[: self.order - 1] = chance[: self.order - 1] < 0.5
        source = np.arange(draws.sequences) * self.contexts
        context = np.zeros(draws.sequences, dtype=np.int64)
        for bit in bits[: self.order - 1]:
            context = 2 * context + bit
        for place in range(self.order - 1, self.length):
            bits[place] = chance[place] < table[source + context]
            context = (2 * context + bits[place]) & (self.contexts - 1)
        return bits.T
