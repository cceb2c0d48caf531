"""Laying sequences out in time: the only place that decides where a step of a task ends up in a batch.

A task describes its sequences as segments, without padding and for all sequences of a block at once. Here the segments
of every sequence are concatenated, by index arithmetic instead of loops.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nsm.checks import UserError
from nsm.tasks.arrays import Floats, Ints
from nsm.tasks.batch import Batch
from nsm.tasks.randomness import Draws

# A batch starts at a multiple of 16 rows, which is a multiple of 64 bytes in each of its arrays: kernels that treat
# aligned and unaligned memory differently then give the same bits wherever a step is within a block.
_CACHE_LINE = 64
_ROW_MULTIPLE = 16


def unroll(lengths: Ints) -> tuple[Ints, Ints]:
    """Number the steps of ragged sequences: lengths (2, 3) give sequence 0 0 1 1 1 and step 0 1 0 1 2.

    Args:
        lengths: (N,) steps of each sequence, n in total.

    Returns:
        (n,) the sequence a step belongs to, and (n,) its place in it.
    """
    sequence = np.repeat(np.arange(lengths.size), lengths)
    first = np.cumsum(lengths) - lengths
    return sequence, np.arange(sequence.size) - first[sequence]


class Segment(NamedTuple):
    """Consecutive steps of every sequence.

    Attributes:
        rows: (n, C) the steps' values, those of the first sequence first; n is the sum of `lengths`.
        lengths: (N,) the number of steps of each sequence.
        channel: the first of the C channels they are on.
    """

    rows: npt.NDArray[Any]
    lengths: Ints
    channel: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[Any], lengths: Ints | None = None) -> "Segment":
        """The first `lengths` (N,) steps, by default all, of each of the padded `values` (N, L, C)."""
        sequences, longest, channels = values.shape
        if lengths is None:
            return cls(values.reshape(-1, channels), np.full(sequences, longest))
        return cls(values[np.arange(longest) < lengths[:, None]], lengths)

    @classmethod
    def signal(cls, values: npt.NDArray[Any], channel: int) -> "Segment":
        """One step with a number (N,) on one channel."""
        return cls(values[:, None], np.ones(values.size, dtype=np.int64), channel)

    @classmethod
    def flag(cls, sequences: int, channel: int) -> "Segment":
        """One step with a 1 on one channel."""
        return cls.signal(np.ones(sequences, dtype=np.float32), channel)


class Phases(NamedTuple):
    """A task's sequences: the input, then the answer.

    Attributes:
        encoding: segments of inputs.
        decoding: segments of targets; the inputs are zero meanwhile.
    """

    encoding: tuple[Segment, ...]
    decoding: tuple[Segment, ...]

    def steps(self) -> tuple[Ints, Ints]:
        """(N,) steps of the encoding phase and (N,) steps of the decoding phase."""
        encoding = np.sum([segment.lengths for segment in self.encoding], axis=0)
        decoding = np.sum([segment.lengths for segment in self.decoding], axis=0)
        return encoding, decoding


class Canvas:
    """The arrays of a block of batches, initially blank, into which segments are written.

    All steps of all batches are rows of one array per field, so that each batch is a contiguous slice of it, padded to
    its own longest sequence and not to the block's.
    """

    def __init__(self, draws: Draws, lengths: Ints, decoding: Ints, input_size: int, output_size: int) -> None:
        """Make room for N sequences of `lengths` (N,) steps whose decoding begins at `decoding` (N,)."""
        self._lengths = lengths.reshape(draws.steps, draws.batch_size)
        self._decoding = decoding.reshape(draws.steps, draws.batch_size)
        self._batch_size = draws.batch_size
        self._rows = self._lengths.max(axis=1) * draws.batch_size
        room = -(-self._rows // _ROW_MULTIPLE) * _ROW_MULTIPLE
        self._first_row = np.cumsum(room) - room
        # Row of a sequence's step 0; its step t is t · batch_size rows further down.
        self._origin = (self._first_row[:, None] + np.arange(draws.batch_size)).ravel()
        total = int(room.sum())
        self._inputs: Floats = aligned_zeros((total, input_size), np.float32)
        self._targets: Floats = aligned_zeros((total, output_size), np.float32)
        self._mask: Floats = aligned_zeros((total,), np.float32)
        self._subtask: Ints = aligned_zeros((total,), np.int64)
        self._subtask.fill(-1)

    def show(self, segment: Segment, start: Ints, subtask: int) -> None:
        """Write inputs, starting at each sequence's step `start` (N,)."""
        rows = self._rows_of(segment, start, every=1)
        self._inputs[rows, segment.channel : segment.channel + segment.rows.shape[1]] = segment.rows
        self._subtask[rows] = subtask

    def ask(self, segment: Segment, start: Ints, subtask: int, every: int = 1) -> None:
        """Write scored targets, starting at step `start` (N,), at every step or every second, third …"""
        rows = self._rows_of(segment, start, every)
        self._targets[rows, segment.channel : segment.channel + segment.rows.shape[1]] = segment.rows
        self._mask[rows] = 1.0
        self._subtask[rows] = subtask

    def _rows_of(self, segment: Segment, start: Ints, every: int) -> Ints:
        sequence, step = unroll(segment.lengths)
        rows: Ints = (self._origin + start * self._batch_size)[sequence] + every * self._batch_size * step
        return rows

    def batches(self) -> list[Batch]:
        """The finished batches, as views."""
        size = self._batch_size
        batches = []
        ends = self._first_row + self._rows
        for index, (first, end) in enumerate(zip(self._first_row.tolist(), ends.tolist(), strict=True)):
            batches.append(
                Batch(
                    inputs=self._inputs[first:end].reshape(-1, size, self._inputs.shape[1]),
                    targets=self._targets[first:end].reshape(-1, size, self._targets.shape[1]),
                    mask=self._mask[first:end].reshape(-1, size),
                    lengths=self._lengths[index],
                    decoding=self._decoding[index],
                    subtask=self._subtask[first:end].reshape(-1, size),
                )
            )
        return batches


def assemble(
    draws: Draws,
    parts: Sequence[Phases],
    turn: Ints,
    input_size: int,
    output_size: int,
    order_step: Segment | None = None,
) -> list[Batch]:
    """Lay out sequences of several tasks: order step, all encoding phases, then all decoding phases in the same order.

    Args:
        draws: how the N sequences are divided into batches.
        parts: the k tasks' phases; a single task is a list of one.
        turn: (N, k) the position of each part in each sequence, 0 for the first.
        input_size: I.
        output_size: O.
        order_step: one step of inputs before everything else, or None.
    """
    steps = [part.steps() for part in parts]
    encoding = np.stack([shown for shown, _ in steps], axis=1)  # (N, k)
    decoding = np.stack([asked for _, asked in steps], axis=1)  # (N, k)
    lead = 0 if order_step is None else order_step.lengths
    first_answer = lead + encoding.sum(axis=1)
    canvas = Canvas(draws, first_answer + decoding.sum(axis=1), first_answer, input_size, output_size)
    if order_step is not None:
        canvas.show(order_step, np.zeros_like(first_answer), subtask=-1)
    for index, part in enumerate(parts):
        earlier = turn < turn[:, index, None]
        start = lead + (encoding * earlier).sum(axis=1)
        for segment in part.encoding:
            canvas.show(segment, start, subtask=index)
            start = start + segment.lengths
        start = first_answer + (decoding * earlier).sum(axis=1)
        for segment in part.decoding:
            canvas.ask(segment, start, subtask=index)
            start = start + segment.lengths
    return canvas.batches()


Sample = tuple[npt.NDArray[Any], npt.NDArray[Any]] | tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""One sequence of a task: inputs (T, I), targets (T, O), and optionally a mask (T,) of the scored steps."""


def batch_of(samples: Sequence[Sample], name: str, input_size: int = 0, output_size: int = 0) -> Batch:
    """A batch of single sequences, with as many channels as they have or more. `name`: for error messages."""
    checked = [_checked(sample, name) for sample in samples]
    lengths = np.array([len(inputs) for inputs, _, _ in checked])
    shape = int(lengths.max()), len(samples)
    channels = checked[0][0].shape[1], checked[0][1].shape[1]
    sizes = input_size or channels[0], output_size or channels[1]
    inputs, targets = (aligned_zeros((*shape, size), np.float32) for size in sizes)
    mask, subtask = aligned_zeros(shape, np.float32), np.full(shape, -1, dtype=np.int64)
    for b, (shown, asked, counted) in enumerate(checked):
        found = shown.shape[1], asked.shape[1]
        if found != channels or found[0] > sizes[0] or found[1] > sizes[1]:
            raise UserError(
                f"{name} must have as many (input, target) channels as the others: {found} after {channels}"
            )
        inputs[: len(shown), b, : shown.shape[1]] = shown
        targets[: len(asked), b, : asked.shape[1]] = asked
        mask[: len(counted), b] = counted
        subtask[: len(shown), b] = 0
    return Batch(inputs, targets, mask, lengths, mask.argmax(axis=0), subtask)


def _checked(sample: Any, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """A sample's three arrays, or a UserError that says what is wrong."""
    if not isinstance(sample, tuple) or len(sample) not in (2, 3):
        found = f"a tuple of {len(sample)}" if isinstance(sample, tuple) else f"of type {type(sample).__name__}"
        raise UserError(f"{name} must be (inputs, targets) or (inputs, targets, mask), was {found}")
    try:
        inputs, targets, *masks = (np.asarray(part, dtype=np.float64) for part in sample)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{name} must be arrays of numbers: {error}") from error
    mask = masks[0] if masks else np.ones(inputs.shape[:1])
    if (inputs.ndim, targets.ndim, mask.ndim) != (2, 2, 1) or not len(inputs) == len(targets) == len(mask):
        shapes = ", ".join(str(array.shape) for array in (inputs, targets, mask))
        raise UserError(f"{name} must be arrays of shape (T, I), (T, O) and (T,), were {shapes}")
    if 0 in inputs.shape or 0 in targets.shape or not (mask > 0).any():
        raise UserError(f"{name} must have at least one scored step, and a channel")
    if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
        raise UserError(f"{name} must have finite numbers")
    return inputs, targets, (mask > 0).astype(np.float32)


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + _CACHE_LINE, dtype=np.uint8)
    skip = -memory.ctypes.data % _CACHE_LINE
    return memory[skip : skip + size].view(dtype).reshape(shape)


def aligned(batch: Batch) -> Batch:
    """A batch from elsewhere, copied to aligned memory, where kernels give the same bits as for any other."""
    copies = [aligned_zeros(array.shape, array.dtype) for array in batch]
    for copy, array in zip(copies, batch, strict=True):
        copy[...] = array
    return Batch(*copies)
