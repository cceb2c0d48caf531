"""The training loop: draw a batch, learn from it, look now and then how far it has come, save, go on."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from nsm import tasks
from nsm.checks import UserError, fits
from nsm.files import Damaged
from nsm.machine import Machine, MachineConfig, least_memory
from nsm.memories import DNC, NTM
from nsm.pretrained import check, from_json
from nsm.tasks import Babi, Batch, Continual, Omniglot, Task
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.config import RunConfig
from nsm.training.curriculum import first_weights, next_weights
from nsm.training.distribution import ALONE, Distribution
from nsm.training.evaluation import HELD_OUT, TEST, evaluate
from nsm.training.learner import Diverged, FusedLearner, Learner, ReferenceLearner, kept_memory
from nsm.training.run import MetricsFile, RunDirectory
from nsm.training.signals import Interrupted, asked_by_signal
from nsm.training.start import Start

logger = logging.getLogger("nsm")
TRAIN = 0
BLOCK_BYTES = 1 << 20
"""Batches are made in blocks of about this size: large enough to amortise the work, small enough for the cache."""


@dataclass
class Progress:
    """Where a run stands: what a checkpoint keeps besides weights."""

    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    solved_step: int | None = None
    solved_in_a_row: int = 0
    rewinds: int = 0
    """How often it has gone on from the best machine instead of the last."""
    metrics_position: int = 0
    metrics_sha256: str | None = None
    """The digest of the metrics up to there."""
    phases: list[dict[str, float]] = field(default_factory=list)
    """Continual learning: bit accuracy on every task after each phase."""
    weights: list[float] = field(default_factory=list)
    """With a curriculum: how often each task is drawn, since the last evaluation."""
    backend: str | None = None
    """What has trained it so far: on another back end it would be another run."""


@dataclass
class Clock:
    """Time spent in the loop, over all processes that worked on the run."""

    seconds: float = 0.0
    solved_seconds: float | None = None


Report = Callable[[Progress, dict[str, Any]], None]
"""Called before the first step and after every one, with the progress and the step's line of metrics if it has one."""


class _Stop:
    """Whether a signal asked the run to stop: in the loop at the end of its step, at once where nothing can be lost.

    Of several ranks none leaves before the loop: the others would wait for it.
    """

    def __init__(self, ranks: Distribution) -> None:
        self.asked, self.in_loop = False, ranks.size > 1

    def __call__(self) -> None:
        self.asked = True
        if not self.in_loop:
            raise Interrupted


def train(
    config: RunConfig,
    directory: str | Path,
    backend: str = "auto",
    device: str = "cpu",
    report: Report | None = None,
    threads: int = 1,
    ranks: Distribution = ALONE,
    start: Start | None = None,
) -> dict[str, Any]:
    """Train a machine, or finish a run that was begun in `directory`; returns its result.

    With `ranks`, all of them call this alike; the directory is rank 0's. With `start`, a new run has its weights.
    """
    pair = task_pair(config)
    _check_room(config, pair.train)
    if start is not None:
        config = replace(config, start=start.digest)
    if config.world_size != ranks.size:
        raise UserError(f"this run is for {config.world_size} processes and was started with {ranks.size}")
    run = RunDirectory(directory)

    def look() -> dict[str, Any] | None:
        run.check(config)
        return run.result()

    finished = ranks.led(look)
    if finished is not None:
        return finished
    stop = _Stop(ranks)
    with asked_by_signal(stop), ExitStack() as held:
        learner = ranks.each(build, config, backend, ranks.device(device), threads)
        if start is not None:
            ranks.each(start.put_into, learner.machine)
        learner.ranks = ranks

        def hold() -> dict[str, Any] | None:
            if config.start is not None and start is None and not checkpoints.steps(run.checkpoints):
                raise UserError(
                    f"{run.path} is to begin with a trained machine, which was not given: start it with one"
                )
            held.enter_context(run.opened(config))
            return run.result()

        finished = ranks.led(hold)
        if finished is not None:
            return finished
        return _train(config, pair.train, run, learner, stop, report or (lambda *_: None))


def _train(
    config: RunConfig, task: Task, run: RunDirectory, learner: Learner, stop: _Stop, report: Report
) -> dict[str, Any]:
    progress, clock, ranks = Progress(), Clock(), learner.ranks

    def finish() -> dict[str, Any]:
        stop.in_loop = False
        if stop.asked:
            raise Interrupted
        result = conclude(config, run, progress, clock, learner.machine.backend, learner.flat.device)
        run.finish(result)
        stop.in_loop = True  # it is done: too late to stop
        return result

    try:
        learner.prepare(task)
        progress, clock = _restore(run, learner)
        if progress.weights:
            task = replace(task, weights=tuple(progress.weights))  # type: ignore[call-arg]
        report(progress, {})
        where = progress.metrics_position, progress.metrics_sha256
        metrics = ranks.each(lambda: MetricsFile(run.metrics_path, *where) if ranks.leads else None)
        with closing(metrics) if metrics is not None else nullcontext():
            stop.in_loop = True
            _loop(config, task, run, learner, progress, clock, metrics, stop, report)
        return ranks.led(finish)
    except (Interrupted, UserError):
        raise
    except Exception as error:
        if ranks.leads:
            with suppress(OSError):  # a disk that is full has no room for the reason either
                run.fail(str(error), progress.step, isinstance(error, Diverged))
        raise


def _check_room(config: RunConfig, task: Task) -> None:
    """Refuse what no memory holds before any of it is taken."""
    size = least_memory(config.machine, config.batch_size)
    learner = 4 * size.weights + size.buffers  # with gradients, and two buffers of the optimiser
    batch = 4 * config.batch_size * task.max_length * (task.input_size + 2 * task.output_size)
    fits(f"training this machine with batches of {config.batch_size:,}", learner + size.state + batch)


def task_pair(config: RunConfig) -> tasks.TaskPair:
    """The training and the test task of a run."""
    pair = tasks.get(config.task, config.protocol)  # type: ignore[arg-type]
    pair.train.require()
    train, test = replace(pair.train, ragged=config.ragged), pair.test
    if isinstance(train, Continual):
        train = replace(train, iterations_per_phase=max(1, config.iterations // len(train.phases)))
    if isinstance(train, Omniglot):
        train = replace(train, easy_steps=config.easy_steps)
    elif config.easy_steps:
        raise UserError(f"easy_steps must be 0 for {config.task}: only few-shot tasks have easy episodes")
    if isinstance(train, Babi) and config.curriculum:
        train = replace(train, weights=first_weights(train.tasks))
    elif config.curriculum:
        raise UserError(f"curriculum must be False for {config.task}: only question answering has one")
    if (train.input_size, train.output_size) != (config.machine.input_size, config.machine.output_size):
        raise UserError(
            f"{config.task} has {train.input_size} inputs and {train.output_size} outputs, "
            f"the machine {config.machine.input_size} and {config.machine.output_size}"
        )
    return tasks.TaskPair(train, test)


def model_name(machine: MachineConfig) -> str:
    """What the paper calls a machine: NUTM with stored programs, else NTM or DNC, or MANN over another memory."""
    if machine.programs is not None:
        return "nutm"
    return "ntm" if isinstance(machine.memory, NTM) else "dnc" if isinstance(machine.memory, DNC) else "mann"


def build(config: RunConfig, backend: str = "auto", device: str = "cpu", threads: int = 1) -> Learner:
    """The machine as the seed draws it, with a learner for the back end."""
    generator = torch.Generator().manual_seed(config.seed)
    try:
        with torch.device(
            "cpu"
        ):  # where the generator is, whatever torch's default: a seed is the same weights anywhere
            machine = Machine.from_config(config.machine, backend=backend, generator=generator)
        if torch.device(device).type == "meta":
            raise RuntimeError("it has no memory")
        machine = machine.to(device)
    except (RuntimeError, AssertionError, MemoryError) as error:
        # What torch says of an unknown device, one it was built without, or a tape that fits no memory.
        why = (str(error).splitlines() or ["out of memory"])[0]
        raise UserError(f"the machine can't be built on device {device!r}: {why}") from None
    reason = machine.uncovered()
    if reason is not None and backend == "fused":
        raise UserError(f"backend 'fused' doesn't cover {reason}; backend 'reference' does")
    if reason is not None and backend == "auto":
        logger.warning("nsm: the fused back end doesn't cover %s; using the reference, which is slower", reason)
    fused = backend != "reference" and reason is None
    machine.backend = "fused" if fused else "reference"
    # Threads that torch keeps spinning beside those of the kernels would eat their gain.
    torch.set_num_threads(1 if fused else threads)
    return FusedLearner(machine, config, threads) if fused else ReferenceLearner(machine, config)


def _loop(
    config: RunConfig,
    task: Task,
    run: RunDirectory,
    learner: Learner,
    progress: Progress,
    clock: Clock,
    metrics: MetricsFile | None,
    stop: _Stop,
    report: Report,
) -> None:
    ranks = learner.ranks
    if _over(config, progress):
        return
    ranks.stopping(stop.asked)
    began = time.monotonic() - clock.seconds
    batches = _batches(task, config, progress.step)
    while True:
        loss = learner.step(task, next(batches), progress.step)
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_count += 1
        step, last = progress.step, progress.step == config.iterations
        line: dict[str, Any] = {"step": step}
        if step % config.log_every == 0 or last:
            line["loss"] = progress.loss_sum / progress.loss_count
            progress.loss_sum, progress.loss_count = 0.0, 0
        clock.seconds = time.monotonic() - began
        improved = False
        if step % config.evaluate_every == 0 or last:
            line["held_out"] = ranks.led(_held_out, task, learner, config, step)
            if config.follow_test:
                line["test"] = ranks.led(_figures, task_pair(config).test, learner, config, TEST)
                _check_finite(line["test"], f"the test loss became {line['test']['loss']} at iteration {step}")
            improved = _judge(config, task, progress, clock, line["held_out"]["loss"])
            if _thrown_off(config, progress, line["held_out"]["loss"]):
                _rewind(run, learner, progress)
                line["rewinds"] = progress.rewinds
            if isinstance(task, Babi) and config.curriculum:
                task = replace(task, weights=next_weights(task.tasks, task.weights, line["held_out"]))
                progress.weights = list(task.weights)
                batches = _batches(task, config, step)
        if isinstance(task, Continual) and (last or task.phase(step) != task.phase(step - 1)):
            progress.phases.append(ranks.led(_accuracies, task, learner, config))
            line["accuracies"] = progress.phases[-1]
        if metrics is not None and len(line) > 1:
            metrics.write(line)
        report(progress, line if len(line) > 1 else {})
        over, stopping = _over(config, progress), ranks.stopping(stop.asked)
        if improved or over or step % config.checkpoint_every == 0 or stopping:
            ranks.led(_save, run, learner, progress, clock, metrics, config.keep_checkpoints)
        if over:
            return
        if stopping:
            raise Interrupted


def _over(config: RunConfig, progress: Progress) -> bool:
    return progress.step >= config.iterations or 0 < config.stop_when_solved <= progress.solved_in_a_row


def _batches(task: Task, config: RunConfig, first: int) -> Iterator[Batch]:
    """The batches of the remaining steps, made in blocks."""
    size = 4 * task.max_length * config.batch_size * (task.input_size + task.output_size)
    block = max(1, min(256, BLOCK_BYTES // size))
    for start in range(first, config.iterations, block):
        yield from task.block(config.seed, TRAIN, start, min(block, config.iterations - start), config.batch_size)


def _held_out(task: Task, learner: Learner, config: RunConfig, step: int) -> dict[str, float]:
    """Figures on fixed sequences of the training distribution; of the phase just trained, in continual learning.

    Lengths are drawn per sequence even if training draws them per batch: two batches would be two lengths. Where
    training draws the size of the tape, it is the smallest: a machine that relies on blank slots is right on all
    sequences of training with a whole tape, and fails on longer ones.
    """
    learner.check(step)
    task = list(task.tasks.values())[task.phase(step - 1)] if isinstance(task, Continual) else task
    figures = _figures(task.held_out(), learner, config, HELD_OUT, tight=config.random_slots)
    _check_finite(figures, f"the held-out loss became {figures['loss']} at iteration {step}")
    return figures


def _check_finite(figures: dict[str, float], otherwise: str) -> None:
    if not all(map(math.isfinite, figures.values())):
        raise Diverged(f"{otherwise}, with all weights finite")


def _figures(task: Task, learner: Learner, config: RunConfig, stream: int, tight: bool = False) -> dict[str, float]:
    sums = evaluate(
        learner.machine,
        task,
        config.evaluate_sequences,
        config.seed,
        stream,
        persistent=config.persistent,
        kept=learner.kept,
        tight=tight,
    )
    return sums.averages()


def _accuracies(task: Continual, learner: Learner, config: RunConfig) -> dict[str, float]:
    return {name: _figures(phase, learner, config, HELD_OUT)["bit_accuracy"] for name, phase in task.tasks.items()}


def _judge(config: RunConfig, task: Task, progress: Progress, clock: Clock, loss: float) -> bool:
    """Take note of an evaluation; returns whether it is the best so far."""
    if isinstance(task, Continual):
        return False  # the losses of different phases don't compare
    solved = loss < config.solved_loss
    progress.solved_in_a_row = progress.solved_in_a_row + 1 if solved else 0
    if solved and progress.solved_step is None:
        progress.solved_step, clock.solved_seconds = progress.step, clock.seconds
    improved = progress.best_loss is None or loss < progress.best_loss
    if improved:
        progress.best_loss, progress.best_step = loss, progress.step
    return improved


def _thrown_off(config: RunConfig, progress: Progress, loss: float) -> bool:
    """Whether a held-out loss says that the machine has lost what it could do."""
    return config.rewind > 0 and progress.best_loss is not None and loss > progress.best_loss + config.rewind


def _rewind(run: RunDirectory, learner: Learner, progress: Progress) -> None:
    """Go on from the best machine so far, and with what its optimiser remembered.

    A machine that is nearly always right has tiny gradients, until one sequence makes a huge one; RMSprop, which
    divides by what is usual, then moves every weight at once as far as it ever does. What is learned again after such
    a step often holds for the lengths of training alone. The batches that come next are others than those that threw
    the machine off, so that it need not happen again.
    """
    assert progress.best_step is not None
    path = checkpoints.path(run.checkpoints, progress.best_step)
    _take_over(path, learner.ranks.led(checkpoints.load, path), learner)
    progress.rewinds += 1


def _save(
    run: RunDirectory, learner: Learner, progress: Progress, clock: Clock, metrics: MetricsFile, keep: int
) -> None:
    learner.check(progress.step)
    progress.metrics_position, progress.metrics_sha256 = metrics.sync(), metrics.digest
    state = {name: value for name, value in vars(progress).items() if name != "step"}
    checkpoint = Checkpoint(progress.step, learner.machine.state_dict(), learner.state(), state)
    checkpoints.save(run.checkpoints, checkpoint)
    run.set_clock(asdict(clock))
    checkpoints.prune(run.checkpoints, keep, progress.step)


def _restore(run: RunDirectory, learner: Learner) -> tuple[Progress, Clock]:
    """Take over the newest valid checkpoint, if there is one."""
    checkpoint = learner.ranks.led(_newest, run)
    backend = learner.machine.backend
    if checkpoint is None:
        return Progress(backend=backend), Clock()
    path = checkpoints.path(run.checkpoints, checkpoint.step)
    try:
        progress = from_json(Progress, {"step": checkpoint.step, **checkpoint.state}, "state")
    except UserError as error:
        raise Damaged(f"{path / checkpoints.STATE} is damaged: {error}") from None
    begun = progress.backend
    if begun != backend:
        raise UserError(f"{run.path} was begun on back end {begun!r} and can't go on on {backend!r}; choose {begun!r}")
    _take_over(path, checkpoint, learner)
    try:
        clock = from_json(Clock, asdict(Clock()) | run.clock(), "clock")
    except UserError as error:
        logger.warning("nsm: %s; the time spent so far is not known", error)
        clock = Clock()
    return progress, clock


def _take_over(path: Path, checkpoint: Checkpoint, learner: Learner) -> None:
    """Give a learner the weights of a checkpoint and what its optimiser remembered, if they are of its shape."""
    check(path / checkpoints.MODEL, checkpoint.model, learner.machine.state_dict())
    learner.check_state(path / checkpoints.OPTIMISER, checkpoint.optimiser)
    learner.machine.load_state_dict(checkpoint.model)
    learner.restore(checkpoint.optimiser)


def _newest(run: RunDirectory) -> Checkpoint | None:
    checkpoint = checkpoints.latest(run.checkpoints)
    if checkpoint is None and run.has_clock:  # written after a checkpoint was: there was one
        raise UserError(f"no checkpoint is left in {run.checkpoints}; move the run away to start anew")
    return checkpoint


def conclude(
    config: RunConfig, run: RunDirectory, progress: Progress, clock: Clock, backend: str, device: torch.device
) -> dict[str, Any]:
    """Test the best and the last machine, and sum the run up."""
    machine = run.machine("last", backend).to(device)
    result: dict[str, Any] = {
        "task": config.task,
        "model": model_name(config.machine),
        "seed": config.seed,
        "steps": progress.step,
        "solved_step": progress.solved_step,
        "solved_seconds": None if progress.solved_step is None else clock.solved_seconds,
        "seconds": clock.seconds,
        "held_out_loss": progress.best_loss,
        "best_step": progress.best_step,
        "parameters": machine.parameter_count,
        "backend": backend,
    }
    pair = task_pair(config)
    if pair.train.notes or pair.test.notes:
        result["notes"] = list(dict.fromkeys((*pair.train.notes, *pair.test.notes)))
    if isinstance(pair.train, Continual):
        return {**result, "phases": progress.phases}
    for which in ("best", "last"):
        found = run.checkpoint(which)
        if which == "last" and found.step == result["best"]["step"]:
            result["last"] = result["best"]
            continue
        machine.load_state_dict(found.model)
        kept = kept_memory(machine, found.optimiser)
        sums = evaluate(machine, pair.test, config.test_sequences, config.seed, persistent=config.persistent, kept=kept)
        result[which] = {"step": found.step, **sums.averages()}
        _check_finite(result[which], f"the test loss of the {which} machine is {result[which]['loss']}")
    return result
