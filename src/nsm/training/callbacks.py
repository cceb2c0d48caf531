"""Callbacks that follow a run: progress bars, TensorBoard, Weights & Biases, and the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from copy import deepcopy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nsm.checks import UserError
from nsm.training.progress import Progress
from nsm.training.result import Outcome
from nsm.training.run import Line, RunDirectory

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Callback:
    """Follows a run. Override the methods you need; none can change the run's outcome."""

    def on_start(self, run: RunDirectory, progress: Progress) -> None:
        """Before the first iteration of this process; in a resumed run `progress.step` is above 0."""

    def on_step(self, progress: Progress, line: Line | None) -> None:
        """After every iteration; `line` is what it added to the metrics, if anything."""

    def on_evaluation(self, progress: Progress, line: Line) -> None:
        """After every evaluation; its figures are in `line["validation"]`."""

    def on_end(self, run: RunDirectory, outcome: Outcome) -> None:
        """When the run has finished, with its tests done and its result written."""

    def on_stop(self) -> None:
        """When this process leaves the run, for whatever reason; after `on_end` if the run has finished."""


class Callbacks(Callback):
    """Several callbacks as one, called in order, with copies of the run's own objects."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.all = list(callbacks)
        for callback in self.all:
            if not isinstance(callback, Callback):
                raise UserError(f"callbacks must be nsm.Callback objects, one was {callback!r:.80}")

    def on_start(self, run: RunDirectory, progress: Progress) -> None:
        for callback in self.all:
            callback.on_start(run, progress.copy())

    def on_step(self, progress: Progress, line: Line | None) -> None:
        for callback in self.all:
            callback.on_step(progress.copy(), deepcopy(line))

    def on_evaluation(self, progress: Progress, line: Line) -> None:
        for callback in self.all:
            callback.on_evaluation(progress.copy(), deepcopy(line))

    def on_end(self, run: RunDirectory, outcome: Outcome) -> None:
        for callback in self.all:
            callback.on_end(run, outcome)

    def on_stop(self) -> None:
        with ExitStack() as all_of_them:  # the others too when one fails
            for callback in reversed(self.all):
                all_of_them.callback(callback.on_stop)


def scalars(line: Line) -> dict[str, float]:
    """A line of metrics as flat names and numbers: validation/bit_errors."""
    found: dict[str, float] = {}
    for group, figures in line.items():
        if isinstance(figures, dict):
            found |= {f"{group}/{name}": value for name, value in figures.items()}
        elif group != "step":
            found[group] = figures  # type: ignore[assignment]
    return found


class TensorBoard(Callback):
    """Writes TensorBoard events to `tensorboard/` in the run's directory."""

    def __init__(self) -> None:
        if find_spec("tensorboard") is None:
            raise UserError('TensorBoard is not installed: pip install "stored-programs[tensorboard]"')
        self._writer: SummaryWriter | None = None

    def on_start(self, run: RunDirectory, progress: Progress) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Events after the checkpoint that a run resumes from will be written again.
        self._writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=progress.step + 1)

    def on_step(self, progress: Progress, line: Line | None) -> None:
        if line is not None and self._writer is not None:
            for name, value in scalars(line).items():
                self._writer.add_scalar(name, value, progress.step)

    def on_evaluation(self, progress: Progress, line: Line) -> None:
        if self._writer is not None:
            self._writer.flush()

    def on_stop(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WeightsAndBiases(Callback):
    """Sends metrics to Weights & Biases; options such as project="…" or mode="offline" go to `wandb.init`."""

    def __init__(self, **options: object) -> None:
        if find_spec("wandb") is None:
            raise UserError('Weights & Biases is not installed: pip install "stored-programs[wandb]"')
        self._options: dict[str, Any] = options
        self._run: Any = None

    def on_start(self, run: RunDirectory, progress: Progress) -> None:
        import wandb

        from nsm.tree import to_json

        try:
            self._run = wandb.init(config=to_json(run.experiment), **self._options)
        except wandb.Error as error:  # for example without a login
            raise UserError(f"Weights & Biases can't be used: {error}") from None

    def on_step(self, progress: Progress, line: Line | None) -> None:
        if line is not None and self._run is not None:
            self._run.log(scalars(line), step=progress.step)

    def on_end(self, run: RunDirectory, outcome: Outcome) -> None:
        if self._run is not None and outcome.best is not None:
            self._run.summary.update({f"best/{name}": value for name, value in outcome.best.figures.items()})

    def on_stop(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None
