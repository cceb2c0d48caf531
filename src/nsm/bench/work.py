"""The workloads: machines of the paper with the lengths and batches they are trained with, and the cost of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nsm.experiments import recipes
from nsm.machine import Machine, MachineConfig
from nsm.memories import DNC, LRUA, NTM
from nsm.tasks import Babi, Batch, Copy, Task
from nsm.training.experiment import Optimiser

STORIES = (
    *(53, 24, 99, 47, 139, 24, 104, 53, 94, 24, 207, 47, 112, 24, 86, 53),
    *(105, 47, 492, 24, 121, 53, 98, 47, 164, 72, 109, 53, 100, 47, 132, 106),
)
"""Words in 32 bAbI stories: the mean lengths of its twenty tasks, in proportion to their stories, shuffled."""
ANSWERS, WORDS_PER_ANSWER = 5, 18
"""A bAbI story has at most five questions; words per question, roughly."""

OPENING = 32
"""Steps over which gradients are compared if slots are sorted by usage, as in LRUA and DNC: later, many usages are so
close that rounding decides their order, differently in float32 and float64."""


OPTIMISER = Optimiser()


@dataclass(frozen=True)
class Shape:
    """A machine of the paper, with the length and batch size it is trained with."""

    name: str
    machine: MachineConfig
    steps: int
    batch: int
    lengths: tuple[int, ...] = ()
    """The lengths of the sequences, at most `steps`; empty if all have that length."""
    stories: bool = False
    """Words as input and few answers, with a softmax; else bits as input and output at every step."""

    @property
    def words(self) -> int:
        """The steps of all sequences, without padding."""
        return sum(self.lengths) or self.steps * self.batch


def shapes() -> list[Shape]:
    """The shapes that are measured: the paper's machines with the batch sizes they are trained with."""
    found = []
    for batch in (1, 16):
        for recipe, steps in ((recipes.copy, 42), (recipes.priority_sort, 36)):
            machines = {"ntm": recipe("ntm", "paper").machine, "nutm": recipe("nutm", "paper").machine}
            found += [Shape(f"{recipe.name} {model}", machine, steps, batch) for model, machine in machines.items()]
    found.append(Shape("omniglot lrua p=3", recipes.omniglot(preset="paper", classes=10).machine, 75, 16))
    answering = recipes.babi(preset="paper").machine
    found.append(Shape("babi dnc p=4", answering, 80, 32, stories=True))
    found.append(Shape("babi dnc p=4 mixed", answering, max(STORIES), len(STORIES), STORIES, stories=True))
    return found


def operations(config: MachineConfig) -> int:
    """Floating-point operations of one time step of one sample, forward and backward.

    Two for each multiply-add in the forward pass, in matrix products and passes over the tape, and three times that for
    forward and backward.
    """
    machine = Machine.from_config(config)
    n, reads = config.controller.size, machine.memory.read_size
    gates = 4 if config.controller.kind == "lstm" else 1
    state = n if config.controller.kind == "lstm" else 0
    products = gates * n * (config.input_size + reads + state) + (n + reads) * config.output_size
    programs, keys = (config.programs.count, config.programs.keys + 1) if config.programs else (1, 0)
    products += sum((n + 1) * (programs * head.size + keys) for head in machine.memory.heads)
    memory = config.memory
    assert memory is not None
    cells = memory.slots * memory.width
    passes = 0
    if isinstance(memory, NTM):  # content and read; content, erase and add
        passes = 2 * memory.read_heads + 3 * memory.write_heads
    elif isinstance(memory, LRUA):  # content and read; add
        passes = 2 * memory.read_heads + memory.write_heads
    elif isinstance(memory, DNC):  # content and read; content, erase and add
        passes = 2 * memory.read_heads + 3
    return 3 * 2 * (products + passes * cells)


def random_batch(shape: Shape, seed: int = 0) -> Batch:
    """Random inputs and targets: the cost of a step depends only on how many of its numbers are 0."""
    rng = np.random.default_rng(seed)
    t, b = shape.steps, shape.batch
    inputs, targets = (
        np.zeros((t, b, size), np.float32) for size in (shape.machine.input_size, shape.machine.output_size)
    )
    lengths = np.array(shape.lengths or (t,) * b, np.int64)
    mask = (np.arange(t)[:, None] < lengths).astype(np.float32)
    if shape.stories:
        time, sample = np.nonzero(mask)
        inputs[time, sample, rng.integers(0, inputs.shape[2], len(time))] = 1
        mask[:] = 0
        for story, length in enumerate(lengths):
            asked = rng.choice(length, min(ANSWERS, 1 + length // WORDS_PER_ANSWER), replace=False)
            mask[asked, story] = 1
            targets[asked, story, rng.integers(0, targets.shape[2], len(asked))] = 1
    else:
        inputs[:] = rng.integers(0, 2, inputs.shape) * mask[..., None]
        targets[:] = rng.integers(0, 2, targets.shape) * mask[..., None]
    return Batch(inputs, targets, mask, lengths, np.zeros(b, np.int64), np.zeros((t, b), np.int64))


@dataclass(frozen=True)
class Work:
    """One batch of a shape for every system: the same data, initial weights and loss."""

    shape: Shape

    @cached_property
    def task(self) -> Task:
        """A task whose loss the kernels have; nothing else of it is used, and no data."""
        return Babi() if self.shape.stories else Copy()

    @cached_property
    def batch(self) -> Batch:
        return random_batch(self.shape)

    @cached_property
    def x(self) -> Tensor:
        """(T, B, I)"""
        return torch.from_numpy(self.batch.inputs)

    @cached_property
    def lengths(self) -> Tensor | None:
        """(B,), None if all sequences are of one length."""
        return torch.from_numpy(self.batch.lengths) if self.shape.lengths else None

    @cached_property
    def answers(self) -> tuple[Tensor, Tensor]:
        """The scored steps among all T·B, and their targets: words for stories, else bits (…, O)."""
        where = torch.from_numpy(self.batch.mask).flatten().nonzero().squeeze(1)
        right = torch.from_numpy(self.batch.targets).flatten(0, 1)[where]
        return where, right.argmax(-1) if self.shape.stories else right

    @cached_property
    def opening(self) -> Work:
        """The part in which every number must be equal: all of it, or the first steps if slots are sorted."""
        shape = self.shape
        if isinstance(shape.machine.memory, NTM) or shape.steps <= OPENING:
            return self
        return Work(replace(shape, steps=OPENING, lengths=tuple(min(length, OPENING) for length in shape.lengths)))

    def machine(self, backend: str) -> Machine:
        """A new machine, with the same weights each time."""
        return Machine.from_config(self.shape.machine, backend=backend, generator=torch.Generator().manual_seed(0))

    def loss(self, out: Tensor) -> Tensor:
        """The loss as a user would write it in torch, the mean over the scored steps. out (T, B, O) → scalar."""
        where, right = self.answers
        if self.shape.stories:
            return F.cross_entropy(out.flatten(0, 1).index_select(0, where), right)
        if self.lengths is None:
            return F.binary_cross_entropy_with_logits(out.flatten(0, 1), right)
        return F.binary_cross_entropy_with_logits(out.flatten(0, 1).index_select(0, where), right)

    def per_step(self, seconds: float) -> float:
        """µs per time step of the whole batch; ragged sequences count by their number of words."""
        return seconds * self.shape.batch / self.shape.words * 1e6
