"""An experiment: every value that decides the outcome of a run, in one typed, frozen tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsm.checks import UserError, at_least, choose, positive
from nsm.machine import MachineConfig
from nsm.tasks import Task
from nsm.training.curriculum import Curriculum
from nsm.tree import from_json, to_json

OPTIMISERS = ("rmsprop", "adam")
LIMIT = 1 << 32
"""Seeds and steps are 32-bit counters of the random numbers."""


@dataclass(frozen=True)
class Optimiser:
    """The optimiser. The defaults are the paper's RMSprop."""

    kind: str = "rmsprop"
    """rmsprop or adam."""
    learning_rate: float = 1e-4
    """Initial learning rate."""
    warm_up: int = 0
    """Iterations over which the learning rate rises linearly to its initial value."""
    final_rate: float = 1.0
    """The learning rate falls linearly to this fraction of itself over the run; 1 keeps it constant."""
    alpha: float = 0.95
    """RMSprop: decay of the mean square."""
    momentum: float = 0.9
    """RMSprop: momentum. Adam: β₁."""
    beta2: float = 0.999
    """Adam: β₂."""
    epsilon: float = 1e-8
    """Added to the root of the mean square."""
    clip: float = 10.0
    """Gradients are clipped to ± this value."""

    def __post_init__(self) -> None:
        choose("optimiser", self.kind, OPTIMISERS)
        positive("learning_rate", self.learning_rate)
        at_least("warm_up", self.warm_up, 0)
        positive("epsilon", self.epsilon)
        positive("clip", self.clip)
        for name in ("final_rate", "alpha", "momentum", "beta2"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise UserError(f"{name} must be between 0 and 1, was {value!r}")
            if value == 1 and self.kind == "adam" and name in ("momentum", "beta2"):
                raise UserError(f"{name} must be below 1 with adam, which divides by 1 − {name}, was {value!r}")


@dataclass(frozen=True)
class Schedule:
    """The course of training: batches, noise, evaluations, checkpoints."""

    iterations: int = 20_000
    """Iterations, one batch and one update each."""
    batch_size: int = 4
    """Sequences per batch."""
    curriculum: Curriculum | None = None
    """How often each part of a mixture of tasks is drawn in the course of training."""
    random_slots: bool = False
    """Draw the tape's size for every batch, log-uniform from the least that fits to N; validate on the least one."""
    cell_noise: float = 0.0
    """Standard deviation of Gaussian noise on the LSTM's cell during training."""
    persistent: bool = False
    """Keep the memory from batch to batch; controller state and reads are reset."""
    wiped_steps: int = 0
    """Persistent memory: reset it in the first iterations, this many."""
    key_loss: float = 0.1
    """η_0, the weight of the loss on keys l_p in the first iteration; 0 turns it off."""
    key_loss_decay: float = 0.9
    """η is multiplied by this factor every iteration."""
    consolidation: float = 0.0
    """Continual learning: λ of elastic weight consolidation, which holds the weights that earlier tasks need."""
    log_every: int = 100
    """Iterations between lines of metrics."""
    evaluate_every: int = 1_000
    """Iterations between evaluations on validation sequences."""
    validation_sequences: int = 64
    """Number of validation sequences."""
    follow_test: bool = False
    """Also evaluate on as many test sequences each time, for a learning curve; it decides nothing."""
    test_sequences: int = 1_000
    """Number of test sequences at the end."""
    checkpoint_every: int = 5_000
    """Iterations between checkpoints."""
    keep_checkpoints: int = 2
    """Number of recent checkpoints to keep, besides the best one."""
    solved_loss: float = 0.01
    """A run counts as solved when its validation loss falls below this."""
    stop_when_solved: int = 0
    """Stop after this many evaluations in a row below solved_loss; 0: never."""
    rewind: float = 0.0
    """Resume from the best checkpoint when the validation loss is this much above its loss; 0: never."""

    def __post_init__(self) -> None:
        if isinstance(self.iterations, int) and self.iterations >= LIMIT:
            raise UserError(f"iterations must be below {LIMIT:,}, was {self.iterations:,}")
        counts = ("iterations", "batch_size", "log_every", "evaluate_every", "validation_sequences", "test_sequences")
        for name in (*counts, "checkpoint_every", "keep_checkpoints"):
            at_least(name, getattr(self, name), 1)
        for name in ("stop_when_solved", "wiped_steps"):
            at_least(name, getattr(self, name), 0)
        for name in ("cell_noise", "key_loss", "key_loss_decay", "consolidation", "solved_loss", "rewind"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise UserError(f"{name} must be at least 0, was {value!r}")
        if not isinstance(self.curriculum, Curriculum | None):
            raise UserError(f"curriculum must be of type Curriculum or None, was {type(self.curriculum).__name__}")
        if self.curriculum is not None and not self.curriculum.comparable:
            if self.stop_when_solved:
                raise UserError(
                    "stop_when_solved must be 0 for continual learning, which it would end in the first phase"
                )
            if self.rewind:
                raise UserError("rewind must be 0 for continual learning: losses of different phases can't be compared")
        if self.consolidation and (self.curriculum is None or self.curriculum.comparable):
            raise UserError("consolidation must be 0 without a curriculum of one task after another")
        if self.wiped_steps and not self.persistent:
            raise UserError(f"wiped_steps must be 0 unless memory is persistent, was {self.wiped_steps}")
        if self.persistent and self.random_slots:
            raise UserError("persistent and random_slots can't be combined: a persistent memory has one size")


@dataclass(frozen=True)
class Experiment:
    """A training run: task, machine, optimiser, schedule and seed decide every byte of it."""

    task: Task
    machine: MachineConfig
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0
    """Random seed for weights, data and noise."""
    start: str | None = None
    """sha256 of the weights that the run starts from; None for random ones."""
    processes: int = 1
    """Processes that divide each batch; the sum of their gradients rounds differently for each number."""

    def __post_init__(self) -> None:
        parts = {"task": Task, "machine": MachineConfig, "optimiser": Optimiser, "schedule": Schedule}
        for name, kind in parts.items():
            if not isinstance(value := getattr(self, name), kind):
                raise UserError(f"{name} must be of type {kind.__name__}, was {type(value).__name__}")
        batch = self.schedule.batch_size
        if at_least("processes", self.processes, 1) > batch:
            raise UserError(f"batch_size must be at least 1 for each of the {self.processes} processes, was {batch}")
        if self.schedule.persistent and self.machine.repertoire is not None:
            raise UserError(
                "persistent memory and a repertoire exclude each other: each program has a memory of its own"
            )
        if self.schedule.consolidation and self.schedule.persistent:
            raise UserError("consolidation must be 0 with persistent memory, which single sequences would overwrite")
        if self.schedule.consolidation and self.machine.repertoire is not None:
            raise UserError("consolidation must be 0 with a repertoire, whose earlier programs are frozen")
        repertoire, curriculum = self.machine.repertoire, self.schedule.curriculum
        if repertoire is not None and repertoire.labels:
            if curriculum is None or curriculum.comparable:
                raise UserError("task labels need a curriculum of one task after another")
            if repertoire.count < len(self.task.part_names):
                raise UserError(
                    f"with task labels a repertoire needs one program for each of the {len(self.task.part_names)} "
                    f"tasks, and has {repertoire.count}"
                )
        if self.schedule.persistent and self.processes > 1:
            raise UserError("persistent memory needs a single process: it belongs to a whole batch")
        if at_least("seed", self.seed, 0) >= LIMIT:
            raise UserError(f"seed must be below {LIMIT:,}, was {self.seed:,}")
        controller = self.machine.controller.kind
        if self.schedule.cell_noise and controller != "lstm":
            raise UserError(f"cell_noise needs an lstm controller, was {controller!r}")
        if self.schedule.curriculum is not None:
            self.schedule.curriculum.check(self.task)

    @property
    def name(self) -> str:
        """Task and model, as in: copy, nutm."""
        return f"{self.task.name}, {self.machine.model}"

    def check(self) -> None:
        """Raise a UserError for a tree that can't be read back, missing data, or a machine of another size."""
        from_json(Experiment, to_json(self, "experiment"), "experiment")
        self.task.require()
        task, machine = self.task, self.machine
        forms = {"": task, "the test of ": task.tested, "the validation of ": task.validated}
        for what, form in forms.items():
            if (form.input_size, form.output_size) != (machine.input_size, machine.output_size):
                raise UserError(
                    f"{what}{task.name} has {form.input_size} inputs and {form.output_size} outputs, "
                    f"the machine {machine.input_size} and {machine.output_size}"
                )

    def rate(self, step: int) -> float:
        """The learning rate of the update that follows `step` updates."""
        share = 1 + (self.optimiser.final_rate - 1) * step / max(1, self.schedule.iterations)
        rising = min(1.0, (step + 1) / max(1, self.optimiser.warm_up))
        return self.optimiser.learning_rate * share * rising
