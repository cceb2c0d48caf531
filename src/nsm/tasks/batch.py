"""What a task hands to a model."""

from typing import NamedTuple

from nsm.tasks.arrays import Floats, Ints


class Batch(NamedTuple):
    """B sequences side by side, padded with zeros at the end to the longest of them, T steps.

    Attributes:
        inputs: (T, B, I) what the model sees.
        targets: (T, B, O) what it should answer, zeros or ones.
        mask: (T, B) 1 where the answer counts, 0 elsewhere.
        lengths: (B,) steps of each sequence.
        decoding: (B,) the first step of each sequence's decoding phase, where answers begin to count.
        subtask: (T, B) index of the subtask a step belongs to; −1 for padding and for the order step.
    """

    inputs: Floats
    targets: Floats
    mask: Floats
    lengths: Ints
    decoding: Ints
    subtask: Ints

    def part(self, samples: Ints) -> "Batch":
        """Some of the sequences, in this order, as a batch of their own."""
        steps = int(self.lengths[samples].max())
        inputs, targets, mask = (array[:steps].take(samples, 1) for array in (self.inputs, self.targets, self.mask))
        subtask = self.subtask[:steps].take(samples, 1)
        return Batch(inputs, targets, mask, self.lengths[samples], self.decoding[samples], subtask)
