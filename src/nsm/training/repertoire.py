"""Learning one task after another: each sequence trains one program and leaves the others as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from nsm.checks import UserError
from nsm.machine import Machine, Noise
from nsm.repertoire import RepertoireMachine
from nsm.tasks import Batch, Task
from nsm.training.experiment import Experiment
from nsm.training.learner import GradientLearner, Learner


class RepertoireLearner(Learner):
    """A learner for every program, each with an optimiser of its own; the machine decides which sequences each gets.

    It sees inputs and the loss of the program that learns, and nothing of which task is drawn, unless the repertoire
    has task labels.
    """

    def __init__(self, machine: RepertoireMachine, experiment: Experiment, learners: Sequence[GradientLearner]) -> None:
        if experiment.processes > 1:
            raise UserError("a repertoire needs one process: a batch is heard as a whole")
        super().__init__(cast(Machine, machine), experiment)
        self.repertoire, self.learners = machine, learners

    def told(self, part: int) -> Machine:
        return cast(Machine, self.repertoire.programs[part]) if self.repertoire.options.labels else self.machine

    def step(self, task: Task, batch: Batch, step: int) -> float:
        """Hear a batch, and have the newest program learn from its share of it; returns the loss on that."""
        x = torch.from_numpy(batch.inputs).to(self.repertoire.initial_read.device)
        lengths = torch.from_numpy(batch.lengths)
        if self.repertoire.options.labels:
            self.repertoire.claim(self.part, x, lengths)
            return self._learn(task, batch, step)
        mine = self.repertoire.listen(x, lengths).cpu().numpy()
        if not len(mine):
            return self._unlearned(task, batch, x)
        if len(mine) < len(batch.lengths):
            batch = batch.part(mine)
        return self._learn(task, batch, step)

    def _learn(self, task: Task, batch: Batch, step: int) -> float:
        """Have the newest program learn from a batch, its first one if its age is 1."""
        learner = self.learners[self.repertoire.newest]
        learner.noisy, learner.began = self.noisy, step + 1 - int(self.repertoire.age)
        return learner.step(task, batch, step)

    @torch.no_grad()
    def _unlearned(self, task: Task, batch: Batch, x: Tensor) -> float:
        """The loss on a batch that nobody learns from."""
        logits, _ = self.repertoire(x, lengths=batch.lengths.tolist(), noise=Noise())
        return task.loss(logits, batch).item()

    def check(self, step: int) -> None:
        self.learners[self.repertoire.newest].check(step)

    def prepare(self, task: Task) -> None:
        self.learners[0].prepare(task)

    def consolidate(self, task: Task, step: int) -> None:
        """Earlier programs are frozen already."""

    def optimiser_tensors(self) -> dict[str, Tensor]:
        return {
            f"{number}.{name}": tensor
            for number, learner in enumerate(self.learners)
            for name, tensor in learner.optimiser_tensors().items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for number, learner in enumerate(self.learners):
            start = f"{number}."
            own = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
            learner.restore(own)
