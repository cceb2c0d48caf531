"""One run on several processes: each takes its part of every batch, and all make the same update.

torchrun starts the processes and numbers them; the number is the rank. Every rank draws the whole batch, its noise and
the size of its tape, which follow from the seed and the step, and keeps its own sequences. The gradients of all parts
are added up in one message per step. Only rank 0 evaluates and writes files.

The loop uses an `Alone` or a `Ranks` in the same way. An `Alone` costs nothing.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nsm.checks import Failed, UserError
from nsm.machine import Noise
from nsm.tasks import Batch
from nsm.training.rank import rank_and_size

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for one that hangs; a rank that dies is noticed at once. Must exceed the time of an evaluation
on rank 0."""


class RankLost(Failed):
    """Another rank died or does not answer."""


class Part(NamedTuple):
    """A rank's part of a batch, and its share of the batch's counted steps."""

    batch: Batch
    noise: Noise
    weight: float


class Alone:
    """The only process of a run."""

    rank, size = 0, 1
    leads = True

    def device(self, name: str) -> str:
        return name

    def part(self, batch: Batch, noise: Noise) -> Part:
        return Part(batch, noise, 1.0)

    def total(self, gradient: Tensor, loss: float, weight: float) -> float:
        return loss

    def stopping(self, asked: bool) -> bool:
        return asked

    def led(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    each = led


ALONE = Alone()


class Ranks:
    """This process among the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.leads = rank == 0
        self._asked = self._agreed = False

    def device(self, name: str) -> str:
        """The device of this rank: "cuda" is a GPU of its own."""
        return f"cuda:{os.environ.get('LOCAL_RANK', self.rank)}" if name == "cuda" else name

    def part(self, batch: Batch, noise: Noise) -> Part:
        """This rank's sequences of a batch; ranks differ by one sequence at most."""
        sequences = batch.lengths.size
        mine = slice(self.rank * sequences // self.size, (self.rank + 1) * sequences // self.size)
        longest = int(batch.lengths[mine].max())

        def own(array: Any) -> Any:
            """Of (T, B, …) or (B,)."""
            view = torch.from_numpy(array[mine] if array.ndim == 1 else array[:longest, mine])
            # A copy by torch is aligned to 64 bytes, as batches are: results may depend on that.
            return view.clone(memory_format=torch.contiguous_format).numpy()

        part = Batch(*(own(array) for array in batch))
        drawn = Noise(*(None if array is None else own(array) for array in noise))
        # The loss is a mean over counted steps, of which ranks have different numbers.
        weight = int(np.count_nonzero(part.mask)) / max(1, int(np.count_nonzero(batch.mask)))
        return Part(part, drawn, weight)

    def total(self, gradient: Tensor, loss: float, weight: float) -> float:
        """Replace the gradient of a part's loss by that of the whole batch's loss, which is returned.

        One message: the gradient, the loss, and whether this rank was asked to stop. A number that is not finite on one
        rank is not finite on all afterwards, so all of them see that the run diverged.
        """
        from torch import distributed

        message = torch.cat((gradient * weight, gradient.new_tensor([loss * weight, float(self._asked)])))
        _answered(distributed.all_reduce, message)
        gradient.copy_(message[:-2])
        mean, asked = message[-2:].tolist()
        self._agreed = asked > 0
        return float(mean)

    def stopping(self, asked: bool) -> bool:
        """Whether any rank was asked to stop, the same on all: a request goes out with the next gradient."""
        self._asked = asked
        return self._agreed

    def led(self, work: Callable[..., T], *arguments: Any) -> T:
        """Rank 0 does the work; all ranks return what it returned, or raise what it raised."""
        from torch import distributed

        value, error = _attempt(work, *arguments) if self.leads else (None, None)
        told: list[Any] = [value, _portable(error)]
        _answered(distributed.broadcast_object_list, told, 0, device=torch.device("cpu"))
        value, heard = told
        if heard is not None:
            raise error or heard
        return value  # type: ignore[no-any-return]

    def each(self, work: Callable[..., T], *arguments: Any) -> T:
        """Every rank does the work and returns its own value; if one fails, all raise the first error."""
        from torch import distributed

        value, error = _attempt(work, *arguments)
        errors: list[Exception | None] = [None] * self.size
        _answered(distributed.all_gather_object, errors, _portable(error))
        for rank, heard in enumerate(errors):
            if heard is not None:
                raise error if error is not None and rank == self.rank else heard
        return value  # type: ignore[no-any-return]


Distribution = Alone | Ranks


def _attempt(work: Callable[..., Any], *arguments: Any) -> tuple[Any, Exception | None]:
    try:
        return work(*arguments), None
    except Exception as error:  # raised again, on every rank
        return None, error


def _portable(error: Exception | None) -> Exception | None:
    """The error in a form that can be sent: not every error can be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RankLost(f"another rank failed: {type(error).__name__}: {error}")


def _answered(collective: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Call a collective; RankLost if it fails."""
    try:
        collective(*arguments, **options)
    except RuntimeError as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise RankLost(f"another rank died or did not answer for {TIMEOUT}: {why}") from None


@contextmanager
def joined(device: str) -> Iterator[Distribution]:
    """The ranks that torchrun started; ALONE if this process was started in any other way."""
    if rank_and_size() == (0, 1):
        yield ALONE
        return
    from torch import distributed

    # Objects go by gloo, wherever the gradients are.
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    try:
        distributed.init_process_group(backend, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"the processes of this run could not find each other: {why}") from None
    try:
        yield Ranks(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
