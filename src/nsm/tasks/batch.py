"""What a task gives to a model."""

from typing import NamedTuple

import numpy as np

from nsm.checks import UserError
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

    def checked(self, inputs: int, outputs: int) -> "Batch":
        """The batch as kernels read it, single precision in row-major order; its shapes must fit together."""
        steps, size = self.mask.shape if self.mask.ndim == 2 else (0, 0)
        wanted = {"inputs": (steps, size, inputs), "targets": (steps, size, outputs), "mask": (steps, size)}
        plain = self._replace(
            inputs=np.ascontiguousarray(self.inputs, np.float32),
            targets=np.ascontiguousarray(self.targets, np.float32),
            mask=np.ascontiguousarray(self.mask, np.float32),
        )
        shapes = {name: getattr(plain, name).shape for name in wanted}
        ends = self.lengths
        if 0 in (steps, size) or shapes != wanted or ends.shape != (size,) or ends.min() < 1 or ends.max() > steps:
            found = {**shapes, "lengths": ends.tolist()}
            raise UserError(
                f"a batch must have inputs (T, B, {inputs}), targets (T, B, {outputs}), a mask (T, B) and B lengths "
                f"from 1 to T; this one has {', '.join(f'{name} {value}' for name, value in found.items())}"
            )
        return plain

    def part(self, samples: Ints) -> "Batch":
        """A batch of some of the sequences, in this order."""
        steps = int(self.lengths[samples].max())
        inputs, targets, mask = (array[:steps].take(samples, 1) for array in (self.inputs, self.targets, self.mask))
        subtask = self.subtask[:steps].take(samples, 1)
        return Batch(inputs, targets, mask, self.lengths[samples], self.decoding[samples], subtask)
