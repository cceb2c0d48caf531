"""Few-shot classification of Omniglot's characters."""

from dataclasses import dataclass, replace
from math import radians
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nsm.checks import UserError, choose
from nsm.data import omniglot, source
from nsm.tasks.arrays import Doubles, Floats, Ints
from nsm.tasks.batch import Batch
from nsm.tasks.classification import Classification, EpisodeShare, one_hot
from nsm.tasks.layout import Canvas
from nsm.tasks.measures import ERROR, Breakdown, Figures, Measure
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import check_count

PIXELS = omniglot.SMALL_SIDE**2
PRESENTATIONS = 10
"""Accuracy is reported for the first ten presentations of a class."""
_AT_ONCE = 128
"""Drawings rotated at a time: more would not fit the processor's cache."""
_CHARACTERS, _QUARTERS, _PLACES, _NAMES, _DRAWINGS, _ANGLES, _SHIFTS, _EASY, _COUNT = range(9)


@dataclass(frozen=True)
class Omniglot(Classification):
    """Classify characters that were never seen before, after seeing their labels a few times.

    Every episode has its own characters and labels. Each step draws one of its classes and shows a new drawing of it,
    which has to be classified; the correct label is part of the next step's input.

    Inputs: a 20 × 20 image, ink 1 and paper 0, and the label of the previous step, one-hot, none at the first step.
    Targets: the label, one-hot. Every step is scored. `Batch.subtask` is how often the class was shown before.

    In training, every class is rotated by 0°, 90°, 180° or 270°, chosen anew in each episode: a rotated character is
    another one, so 1,200 characters serve as 4,800. Every drawing is then rotated and shifted a little. In the test
    characters are upright and drawings unchanged.

    Attributes:
        classes: C, characters in an episode.
        length: steps.
        purpose: "train" or "test", which characters.
        quarters: rotate classes by multiples of 90°.
        angle: rotate drawings by up to this many degrees.
        shift: shift drawings by up to this many of the 20 pixels.
        easy_steps: mix in easy episodes: all are easy at step 0, none from this step on. An easy episode has 2 to C
            classes, with labels from all C, and repeats a single unchanged drawing of each. Comparing drawings and
            remembering labels are useless without each other, which is why machines stay at chance level for long; in
            easy episodes remembering labels helps by itself, and comparing is simple.
    """

    ranges: ClassVar[tuple[str, ...]] = ("length",)
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure("accuracy/2", "accuracy at the second presentation", "higher", share=True),
        ERROR,
    )

    classes: int = 5
    length: int = 50
    purpose: str = "train"
    quarters: bool = True
    angle: float = 11.25
    shift: float = 2.0
    easy_steps: int = 0

    def __post_init__(self) -> None:
        check_count(self, "classes", least=2)
        check_count(self, "length")
        choose("purpose", self.purpose, ("train", "test"))
        check_count(self, "easy_steps", least=0)

    @property
    def name(self) -> str:
        return f"omniglot-{self.classes}"

    @property
    def breakdown(self) -> Breakdown:
        names = {str(n): f"accuracy/{n}" for n in range(1, PRESENTATIONS + 1)}
        return Breakdown("accuracy by presentation", "higher", True, names)

    def sentence(self, figures: Figures) -> str:
        found = {n: name for n, name in self.breakdown.names.items() if name in figures}
        shown = [f"{n}: {figures[name]:.1%} ± {figures[name + ' ±']:.1%}" for n, name in found.items()]
        return f"{super().sentence(figures)}; accuracy by presentation {', '.join(shown)}"

    @property
    def input_size(self) -> int:
        return PIXELS + self.classes

    @property
    def output_size(self) -> int:
        return self.classes

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def picture(self) -> int:
        return omniglot.SMALL_SIDE

    def require(self) -> None:
        self._characters()

    def like_training(self) -> "Omniglot":
        return replace(self, easy_steps=0)

    def min_slots(self, batch: Batch) -> int:
        """One for every drawing."""
        return self.length

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        images, usable = self._characters()
        # All but the labels depends on the place, 0 to C − 1: a drawing is independent of its label.
        easy = self._easy(draws)
        count = np.where(easy, draws.integers(_COUNT, (2, self.classes))[:, None], self.classes)
        place = (draws.uniform(_PLACES, self.length) * count).astype(np.int64)
        presentation = _of_place(np.cumsum(one_hot(place, self.classes), axis=1), place).astype(np.int64) - 1
        chosen = usable[draws.distinct(_CHARACTERS, self.classes, len(usable))]
        quarter = (draws.uniform(_QUARTERS, self.classes) * 4 * self.quarters).astype(np.int64)
        angle = self._small(draws, _ANGLES, radians(self.angle)) * ~easy
        shift = self._small(draws, _SHIFTS, self.shift, 2) * ~easy
        drawings = (
            np.take_along_axis(chosen, place, 1),
            self._drawings(draws, place, presentation * ~easy),
            *_turned(np.take_along_axis(quarter, place, 1), angle),
            *np.split(shift, 2, axis=1),
        )
        names = one_hot(np.take_along_axis(draws.permutations(_NAMES, self.classes), place, 1), self.classes)
        lengths = np.full(draws.sequences, self.length, dtype=np.int64)
        batches = Canvas(draws, lengths, np.zeros_like(lengths), input_size, output_size).batches()
        for step, batch in enumerate(batches):
            rows = slice(step * draws.batch_size, (step + 1) * draws.batch_size)
            _show(images, [each[rows].T.ravel() for each in drawings], batch.inputs.reshape(-1, input_size))
            batch.targets[:, :, : self.classes] = names[rows].swapaxes(0, 1)
            # A label comes one step late, or there would be nothing to learn.
            batch.inputs[1:, :, PIXELS : PIXELS + self.classes] = batch.targets[:-1, :, : self.classes]
            batch.mask.fill(1.0)
            batch.subtask[:] = presentation[rows].T
        return batches

    def shares(self, wrong: np.ndarray, batch: Batch) -> dict[str, EpisodeShare]:
        """The accuracy at the first ten presentations of a class: "accuracy/1", …, "accuracy/10"."""
        found = {}
        for presentation in range(PRESENTATIONS):
            asked = (batch.subtask == presentation) & (batch.mask > 0)
            found[f"accuracy/{presentation + 1}"] = EpisodeShare.of((asked & ~wrong).sum(0), asked.sum(0))
        return found

    def _characters(self) -> tuple[npt.NDArray[np.uint8], Ints]:
        """All images, and the characters that this task uses."""
        data = omniglot.load(source.root())
        usable = data.train if self.purpose == "train" else data.test
        if len(usable) < self.classes:
            raise UserError(
                f"Omniglot.classes is {self.classes}: there are only {len(usable)} {self.purpose} characters."
            )
        return data.images, usable

    def _easy(self, draws: Draws) -> npt.NDArray[np.bool_]:
        """(N, 1) whether an episode is easy."""
        step = draws.first_step + np.arange(draws.sequences)[:, None] // draws.batch_size
        return draws.uniform(_EASY, 1) * self.easy_steps < self.easy_steps - step

    def _drawings(self, draws: Draws, place: Ints, presentation: Ints) -> Ints:
        """(N, T) the drawing of each character: all of a class in random order, then from the first again."""
        words = draws.words(_DRAWINGS, self.classes * omniglot.DRAWINGS)
        order = np.argsort(words.reshape(-1, self.classes, omniglot.DRAWINGS), axis=2, kind="stable")
        rows = np.arange(draws.sequences)[:, None]
        return order[rows, place, presentation % omniglot.DRAWINGS]

    def _small(self, draws: Draws, purpose: int, most: float, count: int = 1) -> Doubles:
        """(N, count · T) uniform between ± most."""
        return most * (2.0 * draws.uniform(purpose, count * self.length) - 1.0)


def _show(images: npt.NDArray[np.uint8], drawings: list[npt.NDArray[Any]], rows: Floats) -> None:
    """Write drawings, with their rotations and shifts (n,) each, into the first 400 channels of rows (n, I)."""
    from nsm.data.warp import turn_and_move

    for first in range(0, len(rows), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        character, drawing, *turn = (each[some] for each in drawings)
        rows[some, :PIXELS] = turn_and_move(images[character, drawing], *turn).reshape(-1, PIXELS)


def _of_place(numbers: np.ndarray, place: Ints) -> np.ndarray:
    """(N, T) of (N, T, C): at each step the number for its own class."""
    return np.take_along_axis(numbers, place[..., None], axis=2)[..., 0]


def _turned(quarter: Ints, angle: Doubles) -> tuple[Doubles, Doubles]:
    """Cosine and sine of quarter · 90° + angle, exact where the angle is 0."""
    c, s = np.array([1.0, 0.0, -1.0, 0.0])[quarter], np.array([0.0, 1.0, 0.0, -1.0])[quarter]
    return c * np.cos(angle) - s * np.sin(angle), s * np.cos(angle) + c * np.sin(angle)
