"""The training loop: draw a batch, learn from it, look now and then how far it has come, save, go on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from nsm import tasks
from nsm.checks import UserError
from nsm.fused.function import unsupported
from nsm.machine import Machine
from nsm.tasks import Batch, Continual, Task
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.config import RunConfig
from nsm.training.evaluation import HELD_OUT, evaluate
from nsm.training.learner import Diverged, FusedLearner, Learner, ReferenceLearner
from nsm.training.run import MetricsFile, RunDirectory

TRAIN = 0
BLOCK_BYTES = 1 << 20
"""Batches are made in blocks of about this size: large enough to amortise the work, small enough for the cache."""


class Interrupted(Exception):
    """The run was asked to stop; it has saved its state and goes on when started again."""


@dataclass
class Progress:
    """Where a run stands: what a checkpoint keeps besides weights."""

    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    best_loss: float = float("inf")
    best_step: int | None = None
    solved_step: int | None = None
    solved_seconds: float | None = None
    solved_in_a_row: int = 0
    seconds: float = 0.0
    metrics_position: int = 0
    phases: list[dict[str, float]] = field(default_factory=list)
    """Continual learning: bit accuracy on every task after each phase."""


Report = Callable[[Progress, dict[str, Any]], None]
"""Called with the progress and each new line of metrics."""


def train(
    config: RunConfig, directory: str | Path, backend: str = "auto", device: str = "cpu", report: Report | None = None
) -> dict[str, Any]:
    """Train a machine, or finish a run that was begun in `directory`; returns its result."""
    pair = task_pair(config)
    run = RunDirectory(directory)
    run.create(config)
    with run.locked():
        finished = run.result()
        if finished is not None:
            return finished
        learner = build(config, backend, device)
        progress = _restore(run, learner)
        metrics = MetricsFile(run.metrics_path, progress.metrics_position)
        try:
            with _signals() as stopped:
                _loop(config, pair.train, run, learner, progress, metrics, stopped, report or (lambda *_: None))
        except Diverged as error:
            run.fail(str(error), progress.step)
            raise
        finally:
            metrics.close()
        result = conclude(config, run, progress, learner.machine.backend)
        run.finish(result)
        return result


def task_pair(config: RunConfig) -> tasks.TaskPair:
    """The training and the test task of a run."""
    pair = tasks.get(config.task, config.protocol)  # type: ignore[arg-type]
    train, test = (replace(task, ragged=config.ragged) for task in pair)
    if isinstance(train, Continual):
        train = replace(train, iterations_per_phase=max(1, config.iterations // len(train.phases)))
    if (train.input_size, train.output_size) != (config.machine.input_size, config.machine.output_size):
        raise UserError(
            f"{config.task} has {train.input_size} inputs and {train.output_size} outputs, "
            f"the machine {config.machine.input_size} and {config.machine.output_size}"
        )
    return tasks.TaskPair(train, test)


def build(config: RunConfig, backend: str, device: str) -> Learner:
    """The machine as the seed draws it, with a learner for the back end."""
    generator = torch.Generator().manual_seed(config.seed)
    machine = Machine.from_config(config.machine, backend=backend, generator=generator).to(device)
    reason = unsupported(machine, machine.initial_read)
    if backend == "fused" and reason is not None:
        raise UserError(f"backend 'fused' doesn't cover {reason}; backend 'reference' does")
    fused = backend != "reference" and reason is None
    machine.backend = "fused" if fused else "reference"
    return FusedLearner(machine, config) if fused else ReferenceLearner(machine, config)


def _loop(
    config: RunConfig,
    task: Task,
    run: RunDirectory,
    learner: Learner,
    progress: Progress,
    metrics: MetricsFile,
    stopped: Callable[[], bool],
    report: Report,
) -> None:
    began = time.monotonic() - progress.seconds
    for batch in _batches(task, config, progress.step):
        loss = learner.step(task, batch, progress.step)
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_count += 1
        step, last = progress.step, progress.step == config.iterations
        line: dict[str, Any] = {"step": step}
        if step % config.log_every == 0 or last:
            line["loss"] = progress.loss_sum / progress.loss_count
            progress.loss_sum, progress.loss_count = 0.0, 0
        progress.seconds = time.monotonic() - began
        improved = False
        if step % config.evaluate_every == 0 or last:
            line["held_out"] = _held_out(task, learner, config, step)
            improved = _judge(config, progress, line["held_out"]["loss"])
        if isinstance(task, Continual) and (step % task.iterations_per_phase == 0 or last):
            progress.phases.append(_accuracies(task, learner, config))
            line["accuracies"] = progress.phases[-1]
        if len(line) > 1:
            metrics.write(line)
            report(progress, line)
        last = last or 0 < config.stop_when_solved <= progress.solved_in_a_row
        if improved or last or step % config.checkpoint_every == 0 or stopped():
            _save(run, learner, progress, metrics, config.keep_checkpoints)
        if last:
            return
        if stopped():
            raise Interrupted


def _batches(task: Task, config: RunConfig, first: int) -> Iterator[Batch]:
    """The batches of the remaining steps, made in blocks."""
    size = 4 * task.max_length * config.batch_size * (task.input_size + task.output_size)
    block = max(1, min(256, BLOCK_BYTES // size))
    for start in range(first, config.iterations, block):
        yield from task.block(config.seed, TRAIN, start, min(block, config.iterations - start), config.batch_size)


def _held_out(task: Task, learner: Learner, config: RunConfig, step: int) -> dict[str, float]:
    """Figures on fixed sequences of the training distribution; of the phase just trained, in continual learning."""
    if isinstance(task, Continual):
        task = list(task.tasks.values())[task.phase(step - 1)]
    return evaluate(learner.machine, task, config.evaluate_sequences, config.seed, HELD_OUT).averages()


def _accuracies(task: Continual, learner: Learner, config: RunConfig) -> dict[str, float]:
    return {
        name: evaluate(learner.machine, phase, config.evaluate_sequences, config.seed, HELD_OUT).averages()[
            "bit_accuracy"
        ]
        for name, phase in task.tasks.items()
    }


def _judge(config: RunConfig, progress: Progress, loss: float) -> bool:
    """Take note of an evaluation; returns whether it is the best so far."""
    solved = loss < config.solved_loss
    progress.solved_in_a_row = progress.solved_in_a_row + 1 if solved else 0
    if solved and progress.solved_step is None:
        progress.solved_step, progress.solved_seconds = progress.step, progress.seconds
    improved = loss < progress.best_loss
    if improved:
        progress.best_loss, progress.best_step = loss, progress.step
    return improved


def _save(run: RunDirectory, learner: Learner, progress: Progress, metrics: MetricsFile, keep: int) -> None:
    progress.metrics_position = metrics.sync()
    state = dict(vars(progress))
    checkpoint = Checkpoint(progress.step, learner.machine.state_dict(), learner.optimiser.state(), state)
    checkpoints.save(run.checkpoints, checkpoint)
    checkpoints.prune(run.checkpoints, keep, progress.best_step)


def _restore(run: RunDirectory, learner: Learner) -> Progress:
    """Take over the newest valid checkpoint, if there is one."""
    checkpoint = checkpoints.latest(run.checkpoints)
    if checkpoint is None:
        return Progress()
    learner.machine.load_state_dict(checkpoint.model)
    learner.optimiser.restore(checkpoint.optimiser)
    return Progress(**checkpoint.state)


def conclude(config: RunConfig, run: RunDirectory, progress: Progress, backend: str) -> dict[str, Any]:
    """Test the best and the last machine, and sum the run up."""
    result: dict[str, Any] = {
        "task": config.task,
        "model": "nutm" if config.machine.programs else "ntm",
        "seed": config.seed,
        "steps": progress.step,
        "solved_step": progress.solved_step,
        "solved_seconds": progress.solved_seconds,
        "seconds": progress.seconds,
        "held_out_loss": progress.best_loss,
        "best_step": progress.best_step,
        "parameters": run.machine("last").parameter_count,
        "backend": backend,
    }
    pair = task_pair(config)
    if isinstance(pair.train, Continual):
        return {**result, "phases": progress.phases}
    for which in ("best", "last"):
        machine = run.machine(which, backend)
        result[which] = evaluate(machine, pair.test, config.test_sequences, config.seed).averages()
    return result


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM ask the loop to stop after its step; a second one ends the process at once."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise SystemExit(128 + number)
        asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs this one handles signals
        before = {}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
