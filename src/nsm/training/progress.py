"""The state of a run besides its tensors: saved in checkpoints, restored from them."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace

from nsm.checks import UserError
from nsm.files import Damaged
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.learner import Learner
from nsm.training.run import MetricsFile, RunDirectory
from nsm.tree import from_json

logger = logging.getLogger("nsm")


@dataclass
class Progress:
    """The state of a run besides its tensors."""

    step: int = 0
    """Iterations so far."""
    loss_sum: float = 0.0
    loss_count: int = 0
    best_loss: float | None = None
    """The lowest validation loss so far, found at `best_step`."""
    best_step: int | None = None
    solved_step: int | None = None
    solved_in_a_row: int = 0
    rewinds: int = 0
    """How often it has resumed from the best checkpoint."""
    metrics_position: int = 0
    metrics_sha256: str | None = None
    """Digest of the metrics up to that position."""
    phases: list[dict[str, float]] = field(default_factory=list)
    """Continual learning: bit accuracy on every task after each phase."""
    weights: list[float] = field(default_factory=list)
    """With a curriculum: how often each part of the task is drawn."""
    backend: str | None = None
    """The backend that trained it: on another one it would be another run."""

    def copy(self) -> Progress:
        """A copy for callbacks, which can't change the run with it."""
        return replace(self, phases=[dict(phase) for phase in self.phases], weights=list(self.weights))


@dataclass
class Clock:
    """Time spent in the loop, over all processes that worked on the run."""

    seconds: float = 0.0
    solved_seconds: float | None = None


def save(run: RunDirectory, learner: Learner, progress: Progress, clock: Clock, metrics: MetricsFile) -> None:
    """Write a checkpoint and remove old ones."""
    learner.check(progress.step)
    progress.metrics_position, progress.metrics_sha256 = metrics.sync(), metrics.digest
    state = {name: value for name, value in vars(progress).items() if name != "step"}
    tensors = learner.machine.state_dict(), learner.optimiser_tensors(), learner.memory_tensors()
    checkpoints.save(run.checkpoints, Checkpoint(progress.step, *tensors, state))
    run.set_clock(asdict(clock))
    checkpoints.prune(run.checkpoints, learner.schedule.keep_checkpoints, progress.step)


def restore(run: RunDirectory, learner: Learner) -> tuple[Progress, Clock]:
    """Load the newest valid checkpoint, if there is one."""
    checkpoint = learner.ranks.led(_newest, run)
    backend = learner.machine.backend
    if checkpoint is None:
        return Progress(backend=backend), Clock()
    path = checkpoints.path(run.checkpoints, checkpoint.step)
    try:
        progress = from_json(Progress, {"step": checkpoint.step, **checkpoint.state}, "state")
    except UserError as error:
        raise Damaged(f"{path / checkpoints.STATE} is damaged: {error}") from None
    if progress.backend != backend:
        raise UserError(
            f"{run.path} was started on backend {progress.backend!r} and can't resume on {backend!r}; "
            f"choose {progress.backend!r}"
        )
    learner.resume(path, checkpoint)
    try:
        clock = from_json(Clock, run.clock(), "clock")
    except UserError as error:
        logger.warning("nsm: %s; the time spent so far is unknown", error)
        clock = Clock()
    return progress, clock


def rewind(run: RunDirectory, learner: Learner, progress: Progress) -> None:
    """Resume from the best checkpoint so far, optimiser included.

    A machine that is nearly always right has tiny gradients until one sequence makes a huge one. RMSprop, which divides
    by the usual size, then moves all weights as far as it ever does, and the run diverges. What it learns afterwards
    often holds only for the training lengths. The batches after the rewind are new ones, so that it need not diverge
    again.
    """
    assert progress.best_step is not None
    path = checkpoints.path(run.checkpoints, progress.best_step)
    learner.resume(path, learner.ranks.led(checkpoints.load, path))
    progress.rewinds += 1


def _newest(run: RunDirectory) -> Checkpoint | None:
    checkpoint = checkpoints.latest(run.checkpoints)
    if checkpoint is None and run.has_clock:  # written after a checkpoint was: there was one
        raise UserError(f"no checkpoint is left in {run.checkpoints}; move the run's directory away to start again")
    return checkpoint
