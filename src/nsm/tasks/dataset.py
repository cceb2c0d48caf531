"""A task whose sequences come from a torch data set, through a `torch.utils.data.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nsm.checks import UserError, at_least
from nsm.tasks.batch import Batch
from nsm.tasks.layout import Sample, aligned, batch_of
from nsm.tasks.randomness import Draws
from nsm.tasks.task import EXAMINED, TRIED, Task, hashable

if TYPE_CHECKING:
    from torch.utils.data import Dataset

TRAIN = 0
"""The training stream, which is shuffled; every other stream repeats its split in order."""
SPLITS = {TRAIN: "train", 1: "validation"}
"""The split of a stream; all others use the test split."""
_ORDER = 0


@dataclass(frozen=True)
class DatasetTask(Task):
    """A task of your own needs a method `dataset(split)`: a map-style data set of (inputs, targets[, mask]).

    In training every epoch has its own order of all items, determined by the seed: a run resumes with the item it
    would have used next. Workers load batches ahead.
    """

    workers: int = field(default=0, kw_only=True)
    """Processes that load batches; 0: the training process itself."""

    def __post_init__(self) -> None:
        at_least("workers", self.workers, 0)

    def dataset(self, split: str) -> Dataset[Sample]:
        """The items of "train", "validation" or "test", each (T, I) inputs, (T, O) targets[, (T,) mask]."""
        raise UserError(f"{type(self).__name__} has no method dataset(split)")

    def sample(self, random: np.random.Generator) -> Sample:
        """One of the first items, from which the sizes are taken."""
        items = _items(self, "train")
        found: Sample = items[int(random.integers(min(len(items), TRIED)))]
        return found

    def lay_out(self, draws: Draws, input_size: int, output_size: int) -> list[Batch]:
        items = _items(self, SPLITS.get(draws.stream, "test"))
        steps = range(draws.first_step, draws.first_step + draws.steps)
        chosen = (_indices(len(items), draws.seed, draws.stream, step, draws.batch_size) for step in steps)
        return [
            self._judged(batch_of([items[i] for i in some], self._sample_name, input_size, output_size))
            for some in chosen
        ]

    def batches(self, seed: int, stream: int, first: int, last: int, batch_size: int) -> Iterator[Batch]:
        items = _items(self, SPLITS.get(stream, "test"))
        return self._load(items, (_indices(len(items), seed, stream, step, batch_size) for step in range(first, last)))

    def examination(self, seed: int, stream: int, sequences: int, filling: int = 0) -> Iterator[Batch]:
        items = _items(self, SPLITS.get(stream, "test"))
        most = min(sequences, len(items))
        chosen = [list(range(start, min(start + EXAMINED, most))) for start in range(0, most, EXAMINED)]
        return self._load(items, chosen[:1] * filling + chosen)

    def _load(self, items: Any, chosen: Iterable[list[int]]) -> Iterator[Batch]:
        import torch
        from torch.utils.data import DataLoader

        collate = partial(batch_of, name=self._sample_name, input_size=self.input_size, output_size=self.output_size)
        # A loader draws seeds for its workers, which must not come from the process's global generator.
        own = torch.Generator().manual_seed(0)
        loader = DataLoader(items, batch_sampler=chosen, collate_fn=collate, num_workers=self.workers, generator=own)
        return map(self._judged, map(aligned, loader) if self.workers else loader)

    @property
    def _sample_name(self) -> str:
        return f"an item of {type(self).__name__}.dataset"


def _items(task: DatasetTask, split: str) -> Any:
    return _loaded(hashable(task), split)


@lru_cache(maxsize=16)
def _loaded(task: Any, split: str) -> Any:
    items: Any = task.dataset(split)
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        found = f"{type(task).__name__}.dataset({split!r})"
        raise UserError(f"{found} must have a length and items by number, was of type {type(items).__name__}")
    if not len(items):
        raise UserError(f"{type(task).__name__}.dataset({split!r}) is empty")
    return items


def _indices(items: int, seed: int, stream: int, step: int, batch_size: int) -> list[int]:
    """The items of a step: in training those of an epoch in its order, batch by batch; the last may be smaller."""
    if stream != TRAIN:
        return [number % items for number in range(step * batch_size, (step + 1) * batch_size)]
    epoch, turn = divmod(step, -(-items // batch_size))
    return _order(items, seed, epoch)[turn * batch_size : (turn + 1) * batch_size]


@lru_cache(maxsize=4)
def _order(items: int, seed: int, epoch: int) -> list[int]:
    found: list[int] = Draws(seed, TRAIN, epoch, 1, 1).permutations(_ORDER, items)[0].tolist()
    return found
