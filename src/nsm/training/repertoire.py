"""Learning one task after another: each batch goes to the program whose it is, and moves no other."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from nsm.checks import UserError
from nsm.machine import Machine, Noise
from nsm.repertoire import RepertoireMachine
from nsm.tasks import Batch, Task
from nsm.training.distribution import ALONE
from nsm.training.experiment import Experiment
from nsm.training.learner import Learner


class Optimisers:
    """The optimisers of all programs as one, for checkpoints."""

    def __init__(self, learners: list[Learner]) -> None:
        self._learners = learners

    def state(self) -> dict[str, Tensor]:
        """What must be saved to go on later."""
        return {
            f"{number}.{name}": tensor
            for number, learner in enumerate(self._learners)
            for name, tensor in learner.optimiser.state().items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over a saved state."""
        for number, learner in enumerate(self._learners):
            start = f"{number}."
            learner.optimiser.restore(
                {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
            )


class RepertoireLearner(Learner):
    """A learner for every program, each with an optimiser of its own; the machine says which sequences are whose.

    It sees inputs and the loss of the program that learns, and nothing of which task is drawn.
    """

    def __init__(self, machine: RepertoireMachine, experiment: Experiment, learners: list[Learner]) -> None:
        if experiment.processes > 1:
            raise UserError("a repertoire needs one process: a batch is heard as a whole")
        self.machine, self.repertoire = cast(Machine, machine), machine
        self.experiment, self.schedule = experiment, experiment.schedule
        self.learners = learners
        self.optimiser = Optimisers(learners)  # type: ignore[assignment]
        self.ranks, self.noisy, self.memory = ALONE, True, None

    def step(self, task: Task, batch: Batch, step: int) -> float:
        """Hear a batch, and have the newest program learn from what is its own; returns the loss on that."""
        x = torch.from_numpy(batch.inputs).to(self.repertoire.initial_read.device)
        mine = self.repertoire.listen(x, torch.from_numpy(batch.lengths)).cpu().numpy()
        if not len(mine):
            return self._unlearned(task, batch, x)
        if len(mine) < len(batch.lengths):
            batch = batch.part(mine)
        learner = self.learners[self.repertoire.newest]
        learner.noisy = self.noisy
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

    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        raise NotImplementedError("each program has a learner of its own")
