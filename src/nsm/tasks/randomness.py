"""Random numbers without a state: each is a function of (seed, stream, step, sample, purpose, index).

A stateful generator has to be advanced to a position; a counter-based one computes it directly. So a run resumes at any
step from the step number alone, a sequence is the same in any batch, and a block of many steps is one vectorised call
that equals the same steps made one by one.

The function is Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): ten rounds of a
keyed bijection on 128 bits that passes BigCrush and has published test vectors. A splitmix-like hash would need an
eighth of the arithmetic, but its quality for five structured, nearly equal coordinates would have to be shown, and a
batch of Copy made in blocks spends at most two microseconds on Philox.
"""

from dataclasses import dataclass, replace

import numpy as np

from nsm.checks import UserError
from nsm.tasks.arrays import Bits, Doubles, Ints, Words

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_WORD_LIMIT = 1 << 32


def philox(even: Words, odd: Words, key: tuple[int, int]) -> tuple[Words, Words]:
    """Philox-4x32-10 of many counters at once.

    The four 32-bit lanes of a counter are kept in two arrays, because a round treats lanes 0 and 2 alike and lanes 1
    and 3 alike: that makes a round five array operations.

    Args:
        even: (2, …) lanes 0 and 2 of the counters, each below 2³².
        odd: (2, …) lanes 1 and 3.
        key: two numbers below 2³².

    Returns:
        (2, …) lanes 0 and 2 of the random blocks, and (2, …) lanes 1 and 3.
    """
    column = (2,) + (1,) * (even.ndim - 1)
    multipliers = np.array(_MULTIPLIERS, dtype=np.uint64).reshape(column)
    for turn in range(_ROUNDS):
        turn_key = [
            (word + turn * increment) % _WORD_LIMIT for word, increment in zip(key, _KEY_INCREMENTS, strict=True)
        ]
        product = even * multipliers
        odd = odd ^ np.array(turn_key, dtype=np.uint64).reshape(column)
        even = (product >> _HALF)[::-1] ^ odd
        odd = (product & _LOW_HALF)[::-1]
    return even, odd


@dataclass(frozen=True)
class Draws:
    """The random numbers of a block: `steps` consecutive training steps with `batch_size` sequences each.

    Every array has the N = steps · batch_size sequences of the block first, those of one step side by side. `purpose`
    is a small number that separates the draws of a task, such as lengths and bits. A row's k-th number does not depend
    on how many are drawn.

    Attributes:
        seed: of the run, below 2³².
        stream: the use of the numbers, such as training or test, below 2³².
        first_step: the block's first step; all steps below 2³².
        steps: how many steps.
        batch_size: sequences per step.
        branch: 0, or 1 + i for the i-th subtask of a sequence, so that two equal subtasks differ.
        shared_structure: every sequence of a step takes the structural draws of the step's first.
    """

    seed: int
    stream: int
    first_step: int
    steps: int
    batch_size: int
    branch: int = 0
    shared_structure: bool = False
    _first_sample_only: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("seed", 0, _WORD_LIMIT - 1),
            ("stream", 0, _WORD_LIMIT - 1),
            ("steps", 1, _WORD_LIMIT),
            ("first_step", 0, _WORD_LIMIT - self.steps),
            ("batch_size", 1, _WORD_LIMIT),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UserError(f"{name} is {value}: it must be from {low} to {high}.")

    @property
    def sequences(self) -> int:
        """N, the number of sequences in the block."""
        return self.steps * self.batch_size

    @property
    def structure(self) -> "Draws":
        """The draws for what determines a sequence's layout: its length, its order of subtasks."""
        return replace(self, _first_sample_only=self.shared_structure)

    def subtask(self, index: int) -> "Draws":
        """The numbers of one subtask of a sequence."""
        return replace(self, branch=1 + index)

    def generator(self, step: int, sample: int) -> np.random.Generator:
        """A NumPy generator for one sequence, for any kind of draw."""
        return np.random.Generator(np.random.Philox(key=[self.seed, self.stream], counter=[0, 0, sample, step]))

    def words(self, purpose: int, count: int) -> Words:
        """(N, count) uniform 64-bit words."""
        blocks = -(-count // 2)  # a block of 128 bits gives two words
        even = np.empty((2, self.steps, self.batch_size, blocks), dtype=np.uint64)
        odd = np.empty_like(even)
        # The lanes of a counter are index, purpose, sample and step.
        even[0] = np.arange(blocks, dtype=np.uint64)
        odd[0] = 256 * self.branch + purpose
        even[1] = 0 if self._first_sample_only else np.arange(self.batch_size, dtype=np.uint64)[:, None]
        odd[1] = np.arange(self.first_step, self.first_step + self.steps, dtype=np.uint64)[:, None, None]
        even, odd = philox(even, odd, (self.seed, self.stream))
        words = (even << _HALF) | odd
        return np.moveaxis(words, 0, -1).reshape(self.sequences, 2 * blocks)[:, :count]

    def bits(self, purpose: int, *shape: int) -> Bits:
        """(N, *shape) fair bits, 64 of them from each word."""
        count = int(np.prod(shape))
        octets = np.ascontiguousarray(self.words(purpose, -(-count // 64)), dtype="<u8").view(np.uint8)
        return np.unpackbits(octets, axis=1, count=count, bitorder="little").reshape(self.sequences, *shape)

    def uniform(self, purpose: int, count: int) -> Doubles:
        """(N, count) uniform in [0, 1), on a grid of 2⁻⁵³."""
        return (self.words(purpose, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, purpose: int, bounds: tuple[int, int] | tuple[int, Ints]) -> Ints:
        """(N,) uniform in {low, …, high}; `high` may differ from sequence to sequence.

        The probabilities are equal up to 2⁻⁵³ · (high − low + 1).
        """
        low, high = bounds
        spread = np.asarray(high) - low + 1
        offset: Ints = (self.uniform(purpose, 1)[:, 0] * spread).astype(np.int64)
        return low + offset

    def permutations(self, purpose: int, size: int) -> Ints:
        """(N, size) uniform permutations of {0, …, size − 1}."""
        return np.argsort(self.words(purpose, size), axis=1, kind="stable")

    def distinct(self, purpose: int, count: int, limit: int) -> Ints:
        """(N, count) different numbers of {0, …, limit − 1}, in random order."""
        picks = np.empty((self.sequences, count), dtype=np.int64)
        chance = self.uniform(purpose, count)
        for place in range(count):
            # An index among the numbers that are left; it moves up past each earlier pick, the smallest first.
            pick = (chance[:, place] * (limit - place)).astype(np.int64)
            for earlier in np.sort(picks[:, :place], axis=1).T:
                pick += pick >= earlier
            picks[:, place] = pick
        return picks

    def arcsine(self, purpose: int, count: int) -> Doubles:
        """(N, count) from Beta(½, ½), the arcsine distribution: its distribution function inverts to sin²(πu/2)."""
        root: Doubles = np.sin(0.5 * np.pi * self.uniform(purpose, count))
        return root * root
