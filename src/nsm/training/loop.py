"""The training loop: draw a batch, make an update; from time to time evaluate and save."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import torch

from nsm.checks import UserError, fits
from nsm.machine import Machine
from nsm.repertoire import RepertoireMachine
from nsm.sizes import least_memory
from nsm.tasks import Batch, Task
from nsm.training import checkpoints
from nsm.training.callbacks import Callback, Callbacks
from nsm.training.distribution import ALONE, Distribution
from nsm.training.evaluation import TEST, VALIDATION, evaluate
from nsm.training.experiment import Experiment
from nsm.training.learner import (
    Diverged,
    FusedLearner,
    GradientLearner,
    Learner,
    ReferenceLearner,
    memory_state,
)
from nsm.training.progress import Clock, Progress, restore, rewind, save
from nsm.training.repertoire import RepertoireLearner
from nsm.training.result import Outcome, Score
from nsm.training.run import Line, MetricsFile, RunDirectory
from nsm.training.signals import Interrupted
from nsm.training.start import Start

logger = logging.getLogger("nsm")
TRAIN = 0


class Stop:
    """Asks a run to stop: in the loop after the current step, elsewhere at once.

    Of several ranks none stops before the loop: the others would wait for it.
    """

    def __init__(self, ranks: Distribution = ALONE) -> None:
        self.asked, self.in_loop = False, ranks.size > 1

    def __call__(self) -> None:
        self.asked = True
        if not self.in_loop:
            raise Interrupted


def train(
    experiment: Experiment,
    directory: str | Path,
    backend: str = "auto",
    device: str = "cpu",
    callbacks: Sequence[Callback] = (),
    threads: int | None = None,
    ranks: Distribution = ALONE,
    start: Start | None = None,
    stop: Stop | None = None,
) -> Outcome:
    """Train a machine, or resume the run in `directory`; returns how it ended.

    All `ranks` call this alike; only rank 0 uses the directory. A new run takes the weights of `start`. `threads` is
    torch's own number by default; with the kernels it doesn't change a byte, with the reference it changes rounding.
    Call `stop`, as from a signal handler, to have the run save and raise Interrupted.
    """
    watching = Callbacks(callbacks)
    experiment.check()
    _check_room(experiment)
    if start is not None:
        experiment = replace(experiment, start=start.digest)
    if experiment.processes != ranks.size:
        raise UserError(f"this run is for {experiment.processes} processes and was started with {ranks.size}")
    run, stop = RunDirectory(directory), Stop(ranks) if stop is None else stop

    def look() -> Outcome | None:
        run.check(experiment)
        return run.outcome()

    finished = ranks.led(look)
    if finished is not None:
        return finished
    with ExitStack() as held:
        learner = ranks.each(build, experiment, backend, ranks.device(device), threads)
        held.enter_context(_torch_threads(learner, threads))
        if start is not None:
            ranks.each(start.put_into, learner.machine)
        learner.ranks = ranks

        def hold() -> Outcome | None:
            if experiment.start is not None and start is None and not checkpoints.steps(run.checkpoints):
                raise UserError(f"{run.path} starts from a trained machine: name it with --start, or start=… in Python")
            held.enter_context(run.opened(experiment))
            return run.outcome()

        finished = ranks.led(hold)
        if finished is not None:
            return finished
        return _Loop(experiment, run, learner, stop, watching if ranks.leads else Callback()).run_to_the_end()


@contextmanager
def _torch_threads(learner: Learner, threads: int | None) -> Iterator[None]:
    """Set torch's threads if a number is given; one beside the kernels, which its waiting threads would slow down."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(1 if isinstance(learner, FusedLearner) else threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


def _check_room(experiment: Experiment) -> None:
    """Raise a UserError for a run that needs more memory than there is, before allocating any."""
    task, batch_size = experiment.task, experiment.schedule.batch_size
    size = least_memory(experiment.machine, batch_size)
    learner = 4 * size.weights + size.buffers  # with gradients, and two buffers of the optimiser
    batch = 4 * batch_size * task.max_length * (task.input_size + 2 * task.output_size)
    fits(f"training this machine with batches of {batch_size:,}", learner + size.state + batch)


def build(experiment: Experiment, backend: str = "auto", device: str = "cpu", threads: int | None = None) -> Learner:
    """The machine with the seed's random weights, and a learner for the backend."""
    if experiment.machine.memory is None:
        raise UserError("nsm.train needs a machine whose configuration has its memory: give a MemoryConfig")
    generator = torch.Generator().manual_seed(experiment.seed)
    try:
        # On the CPU, whatever torch's default device: a seed stands for the same weights everywhere.
        with torch.device("cpu"):
            machine = Machine.from_config(experiment.machine, backend=backend, generator=generator)
        if torch.device(device).type == "meta":
            raise RuntimeError("it has no memory")
        machine = machine.to(device)
    except (RuntimeError, AssertionError, MemoryError) as error:
        # torch's errors for an unknown or missing device, or too large a tape.
        why = (str(error).splitlines() or ["out of memory"])[0]
        raise UserError(f"the machine can't be built on device {device!r}: {why}") from None
    reason = machine.uncovered()
    if reason is not None and backend == "fused":
        raise UserError(f"backend 'fused' doesn't cover {reason}; backend 'reference' does")
    if reason is not None and backend == "auto":
        logger.warning("nsm: the fused backend doesn't cover %s; using the reference, which is slower", reason)
    fused = backend != "reference" and reason is None
    machine.backend = "fused" if fused else "reference"

    def learner(machine: Machine) -> GradientLearner:
        return FusedLearner(machine, experiment, threads) if fused else ReferenceLearner(machine, experiment)

    if isinstance(machine, RepertoireMachine):
        return RepertoireLearner(machine, experiment, [learner(program) for program in machine.programs])
    return learner(machine)


class _Loop:
    """One run, from its current state to its end."""

    def __init__(
        self, experiment: Experiment, run: RunDirectory, learner: Learner, stop: Stop, callbacks: Callback
    ) -> None:
        self.experiment, self.schedule = experiment, experiment.schedule
        self.run, self.learner, self.stop, self.callbacks = run, learner, stop, callbacks
        self.ranks, self.machine = learner.ranks, learner.machine
        self.progress, self.clock = Progress(), Clock()

    def run_to_the_end(self) -> Outcome:
        ranks = self.ranks
        try:
            self.learner.prepare(self.experiment.task)
            self.progress, self.clock = restore(self.run, self.learner)
            if ranks.leads:
                self.callbacks.on_start(self.run, self.progress)
            where = self.progress.metrics_position, self.progress.metrics_sha256
            metrics = ranks.each(lambda: MetricsFile(self.run.metrics_path, *where) if ranks.leads else None)
            with closing(metrics) if metrics is not None else nullcontext():
                self.stop.in_loop = True
                self._iterate(metrics)
            outcome = ranks.led(self._finish)
            self.callbacks.on_end(self.run, outcome)
        except (Interrupted, UserError):
            raise
        except Exception as error:
            if ranks.leads:
                with suppress(OSError):  # a full disk can't take the reason either
                    self.run.fail(str(error), self.progress.step, isinstance(error, Diverged))
            raise
        finally:
            self.callbacks.on_stop()
        return outcome

    def _finish(self) -> Outcome:
        self.stop.in_loop = False
        if self.stop.asked:
            raise Interrupted
        outcome = conclude(self.experiment, self.run, self.progress, self.clock, self.machine)
        self.run.finish(outcome)
        self.stop.in_loop = True  # the run is finished: too late to stop
        return outcome

    def _iterate(self, metrics: MetricsFile | None) -> None:
        schedule, progress, ranks = self.schedule, self.progress, self.ranks
        if self._over():
            return
        ranks.stopping(self.stop.asked)
        began = time.monotonic() - self.clock.seconds
        task = self._task()
        batches = self._batches(task)
        while True:
            loss = self.learner.step(task, next(batches), progress.step)
            progress.step += 1
            progress.loss_sum += loss
            progress.loss_count += 1
            step, last = progress.step, progress.step == schedule.iterations
            line: Line = {"step": step}
            if step % schedule.log_every == 0 or last:
                line["loss"] = progress.loss_sum / progress.loss_count
                progress.loss_sum, progress.loss_count = 0.0, 0
            self.clock.seconds = time.monotonic() - began
            improved = False
            if step % schedule.evaluate_every == 0 or last:
                improved = self._evaluate(task, line)
            if self._reweigh(task, line):
                task = self._task()
                batches = self._batches(task)
            if metrics is not None and len(line) > 1:
                metrics.write(line)
            self.callbacks.on_step(progress, line if len(line) > 1 else None)
            if "validation" in line:
                self.callbacks.on_evaluation(progress, line)
            over, stopping = self._over(), ranks.stopping(self.stop.asked)
            if improved or over or step % schedule.checkpoint_every == 0 or stopping:
                ranks.led(save, self.run, self.learner, progress, self.clock, metrics)
            if over:
                return
            if stopping:
                raise Interrupted

    def _over(self) -> bool:
        solved = 0 < self.schedule.stop_when_solved <= self.progress.solved_in_a_row
        return self.progress.step >= self.schedule.iterations or solved

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def _task(self) -> Task:
        """The task as it is drawn from now on; tells the learner its part, and whether there is noise."""
        task, curriculum = self.experiment.task, self.schedule.curriculum
        if curriculum is None:
            return task
        if not self.progress.weights:
            self.progress.weights = list(curriculum.start(task))
        weights = tuple(self.progress.weights)
        self.learner.noisy, self.learner.part = curriculum.augmented(task, weights), weights.index(max(weights))
        drawn = task.weighted(weights)
        return drawn if self.learner.noisy else drawn.unchanged()

    def _batches(self, task: Task) -> Iterator[Batch]:
        schedule = self.schedule
        return task.batches(self.experiment.seed, TRAIN, self.progress.step, schedule.iterations, schedule.batch_size)

    def _reweigh(self, task: Task, line: Line) -> bool:
        """Follow the curriculum; where phases can't be compared, measure the accuracy on every part after each."""
        curriculum, progress, iterations = self.schedule.curriculum, self.progress, self.schedule.iterations
        if curriculum is None:
            return False
        before = tuple(progress.weights)
        after = curriculum.at(self.experiment.task, before, progress.step, iterations)
        if "validation" in line:
            after = curriculum.evaluated(task, after, line["validation"])
        if not curriculum.comparable and (after != before or progress.step == iterations):
            progress.phases.append(self.ranks.led(self._accuracies, task))
            line["accuracies"] = progress.phases[-1]
            self.learner.consolidate(task, progress.step)
        progress.weights = list(after)
        return after != before

    # --- how good it is -----------------------------------------------------------------------------------------------

    def _evaluate(self, task: Task, line: Line) -> bool:
        """Evaluate on validation sequences and add the figures to `line`; returns whether it is the best so far."""
        schedule, progress = self.schedule, self.progress
        line["validation"] = self.ranks.led(self._validation, task)
        if schedule.follow_test:
            line["test"] = self.ranks.led(self._figures, self.experiment.task.tested, TEST, self.machine)
            _check_finite(line["test"], f"the test loss became {line['test']['loss']} at iteration {progress.step}")
        loss = line["validation"]["loss"]
        if schedule.curriculum is not None and not schedule.curriculum.comparable:
            return False
        solved = loss < schedule.solved_loss
        progress.solved_in_a_row = progress.solved_in_a_row + 1 if solved else 0
        if solved and progress.solved_step is None:
            progress.solved_step, self.clock.solved_seconds = progress.step, self.clock.seconds
        improved = progress.best_loss is None or loss < progress.best_loss
        if improved:
            progress.best_loss, progress.best_step = loss, progress.step
        elif schedule.rewind > 0 and progress.best_loss is not None and loss > progress.best_loss + schedule.rewind:
            rewind(self.run, self.learner, progress)
            line["rewinds"] = progress.rewinds
        return improved

    def _validation(self, task: Task) -> dict[str, float]:
        """Figures on fixed validation sequences: of the training distribution or held out; in continual learning of the
        current phase.

        Lengths are drawn per sequence even if training draws them per batch: two batches would be two lengths. If
        training draws the size of the tape, validation uses the smallest: a machine that relies on blank slots solves
        the training lengths on a whole tape, and fails on longer ones.
        """
        step = self.progress.step
        self.learner.check(step)
        machine = self.learner.told(self.learner.part)
        figures = self._figures(task.validated, VALIDATION, machine, tight=self.schedule.random_slots)
        _check_finite(figures, f"the validation loss became {figures['loss']} at iteration {step}")
        return figures

    def _figures(self, task: Task, stream: int, machine: Machine, tight: bool = False) -> dict[str, float]:
        sums = evaluate(
            machine,
            task,
            self.schedule.validation_sequences,
            self.experiment.seed,
            stream,
            persistent=self.schedule.persistent,
            memory=self.learner.memory,
            tight=tight,
        )
        return sums.averages()

    def _accuracies(self, task: Task) -> dict[str, float]:
        return {
            name: self._figures(part, VALIDATION, self.learner.told(number))["bit_accuracy"]
            for number, (name, part) in enumerate(task.parts.items())
        }


def _check_finite(figures: dict[str, float], otherwise: str) -> None:
    if not all(map(math.isfinite, figures.values())):
        raise Diverged(f"{otherwise}, with all weights finite")


def conclude(experiment: Experiment, run: RunDirectory, progress: Progress, clock: Clock, trained: Machine) -> Outcome:
    """Test the best and the last machine, and return the outcome."""
    task = experiment.task
    best = last = None
    if not progress.phases:
        best = score(experiment, run, "best", trained)
        newest = run.checkpoint("last").step
        last = best if newest == best.step else score(experiment, run, "last", trained)
    return Outcome(
        steps=progress.step,
        seconds=clock.seconds,
        solved_step=progress.solved_step,
        solved_seconds=None if progress.solved_step is None else clock.solved_seconds,
        validation_loss=progress.best_loss,
        best_step=progress.best_step,
        parameters=trained.parameter_count,
        backend=trained.backend,
        best=best,
        last=last,
        phases=tuple(progress.phases),
        notes=tuple(dict.fromkeys((*task.notes, *task.tested.notes))),
    )


def score(experiment: Experiment, run: RunDirectory, which: str, trained: Machine) -> Score:
    """Test a checkpoint, on the backend and the device of the trained machine."""
    found, schedule = run.checkpoint(which), experiment.schedule
    machine = run.machine(which, trained.backend).to(trained.initial_read.device)
    memory = memory_state(machine, found.memory)
    options = {"persistent": schedule.persistent, "memory": memory}
    sums = evaluate(machine, experiment.task.tested, schedule.test_sequences, experiment.seed, **options)
    figures = sums.averages()
    _check_finite(figures, f"the test loss of the {which} machine is {figures['loss']}")
    return Score(found.step, figures)
