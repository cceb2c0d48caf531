"""What a run is: every number that decides its outcome, in typed, frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsm.checks import UserError, at_least, choose, positive
from nsm.machine import MachineConfig
from nsm.names import PRESETS

OPTIMISERS = ("rmsprop", "adam")
PROTOCOLS = ("paper", "authors")
LIMIT = 1 << 32
"""The generators of batches count seeds and steps in 32 bits."""


@dataclass(frozen=True)
class OptimiserConfig:
    """How weights are updated. The defaults are the paper's RMSprop."""

    kind: str = "rmsprop"
    learning_rate: float = 1e-4
    final_rate: float = 1.0
    """The learning rate falls linearly to this share of itself over the run; 1 keeps it constant."""
    alpha: float = 0.95
    """RMSprop: how much of the mean square is kept."""
    momentum: float = 0.9
    """RMSprop: momentum. Adam: β₁."""
    beta2: float = 0.999
    """Adam: β₂."""
    epsilon: float = 1e-8
    clip: float = 10.0
    """Gradients are clipped by value at ± this."""

    def __post_init__(self) -> None:
        choose("optimiser", self.kind, OPTIMISERS)
        positive("learning_rate", self.learning_rate)
        positive("epsilon", self.epsilon)
        positive("clip", self.clip)
        for name in ("final_rate", "alpha", "momentum", "beta2"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UserError(f"{name} must be between 0 and 1, was {value!r}")
            if value == 1 and self.kind == "adam" and name in ("momentum", "beta2"):
                raise UserError(f"{name} must be below 1 with adam, which divides by what is left of it, was {value!r}")


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    task: str
    machine: MachineConfig
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    preset: str = field(default="default", compare=False)
    """Which preset the values come from; the values themselves are what counts, so equal ones make equal runs."""
    protocol: str = "paper"
    """authors: the published code's normalisation of repeat counts."""
    seed: int = 0
    iterations: int = 20_000
    batch_size: int = 4
    ragged: bool = True
    """Whether lengths are drawn per sequence, or once per batch as in the published code."""
    random_slots: bool = False
    """Draw the size of the tape afresh for every batch, log-uniform between what the sequence needs and N.

    Held-out sequences then see the smallest."""
    cell_noise: float = 0.0
    """Deviation of Gaussian noise on the LSTM's cell while training."""
    easy_steps: int = 0
    """Few-shot learning: for how many iterations easy episodes are mixed in, ever fewer of them."""
    curriculum: bool = False
    """Question answering: one look-up task first, then all tasks, drawn by the error that is left on each."""
    persistent: bool = False
    """Memory is not wiped: a batch begins with what the one before left in it; controller and reads begin anew."""
    wiped_steps: int = 0
    """Persistent memory: for how many iterations it is wiped nevertheless."""
    key_loss: float = 0.1
    """η_0, the weight of l_p at the first iteration; 0 leaves l_p out."""
    key_loss_decay: float = 0.9
    """η falls by this factor each iteration."""
    log_every: int = 100
    evaluate_every: int = 1_000
    evaluate_sequences: int = 64
    follow_test: bool = False
    """Also look at as many test sequences each time: a learning curve that decides nothing."""
    test_sequences: int = 1_000
    checkpoint_every: int = 5_000
    keep_checkpoints: int = 2
    solved_loss: float = 0.01
    """A held-out loss below this counts as having solved the training task."""
    stop_when_solved: int = 0
    """Stop after this many solved evaluations in a row; 0 runs to the end."""
    rewind: float = 0.0
    """When the held-out loss is this much above the best one so far, go on from that machine instead; 0: never."""
    start: str | None = None
    """The sha256 of the weights it begins with, if they are not drawn by the seed."""
    world_size: int = 1
    """Processes that divide each batch among them; the sums of their gradients round differently for each number."""

    def __post_init__(self) -> None:
        choose("preset", self.preset, PRESETS)
        choose("protocol", self.protocol, PROTOCOLS)
        at_least("seed", self.seed, 0)
        for name in ("seed", "iterations"):
            if getattr(self, name) >= LIMIT:
                raise UserError(f"{name} must be below {LIMIT:,}, was {getattr(self, name):,}")
        for name in ("iterations", "batch_size", "log_every", "evaluate_every", "evaluate_sequences"):
            at_least(name, getattr(self, name), 1)
        for name in ("test_sequences", "checkpoint_every", "keep_checkpoints"):
            at_least(name, getattr(self, name), 1)
        for name in ("stop_when_solved", "easy_steps", "wiped_steps"):
            at_least(name, getattr(self, name), 0)
        if not 1 <= self.world_size <= self.batch_size:
            raise UserError(
                f"batch_size must be at least 1 for each of the {self.world_size} processes, was {self.batch_size}"
            )
        for name in ("cell_noise", "key_loss", "key_loss_decay", "solved_loss", "rewind"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise UserError(f"{name} must be at least 0, was {value!r}")
        if self.stop_when_solved and self.task == "continual":
            raise UserError("stop_when_solved must be 0 for continual learning: it would end in the first phase")
        if self.rewind and self.task == "continual":
            raise UserError("rewind must be 0 for continual learning: the losses of different phases don't compare")
        if self.persistent and self.world_size > 1:
            raise UserError("persistent memory needs one process: what is kept belongs to a whole batch")
        if self.wiped_steps and not self.persistent:
            raise UserError(f"wiped_steps must be 0 unless memory is persistent, was {self.wiped_steps}")
        if self.persistent and self.random_slots:
            raise UserError("persistent and random_slots exclude each other: what is kept needs a tape of one size")
        if self.cell_noise and self.machine.controller.kind != "lstm":
            raise UserError(f"cell_noise needs an lstm controller, was {self.machine.controller.kind!r}")

    def rate(self, step: int) -> float:
        """The learning rate of the update that follows `step` updates."""
        share = 1 + (self.optimiser.final_rate - 1) * step / max(1, self.iterations)
        return self.optimiser.learning_rate * share
