"""What a task gives to a model."""

from typing import NamedTuple

from nsm.tasks.arrays import Floats, Ints


class Batch(NamedTuple):
    """B sequences side by side, padded with zeros at the end to the longest of them, T steps.

    Attributes:
        inputs: (T, B, I) the model's input.
        targets: (T, B, O) the correct output, zeros or ones.
        mask: (T, B) 1 at the steps that are scored, 0 elsewhere.
        lengths: (B,) steps of each sequence.
        decoding: (B,) the first step of each sequence's answer.
        subtask: (T, B) index of the subtask a step belongs to; −1 for padding and for the order step.
    """

    inputs: Floats
    targets: Floats
    mask: Floats
    lengths: Ints
    decoding: Ints
    subtask: Ints

    def part(self, samples: Ints) -> "Batch":
        """A batch of some of the sequences, in this order."""
        steps = int(self.lengths[samples].max())
        inputs, targets, mask = (array[:steps].take(samples, 1) for array in (self.inputs, self.targets, self.mask))
        subtask = self.subtask[:steps].take(samples, 1)
        return Batch(inputs, targets, mask, self.lengths[samples], self.decoding[samples], subtask)
