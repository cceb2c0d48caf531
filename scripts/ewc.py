"""Elastic weight consolidation, a baseline for continual learning: one machine, held where earlier tasks need it.

    L(θ) + λ/2 Σ_k Σ_i F_k,i (θ_i − θ*_k,i)²        F_k: mean squared gradient of task k at θ*_k, what it was left with

Unlike a repertoire it is told when a task ends. Example: python scripts/ewc.py --seed 0 --strength 1000
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from nsm.experiments import recipes
from nsm.tasks import Batch, Task
from nsm.training.evaluation import VALIDATION, evaluate
from nsm.training.learner import Learner
from nsm.training.loop import TRAIN, build

FISHER = 200
"""Batches by which it is found what a task needs."""


def consolidated(learner: Learner, strength: float, pull: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Have the learner's gradient pull every weight back to where earlier tasks left it, as hard as they need it."""
    plain = learner._gradients

    def gradients(task: Task, batch: Batch, *drawn: object) -> float:
        loss = plain(task, batch, *drawn)  # type: ignore[arg-type]
        for fisher, weights in pull:
            learner.gradient.add_(fisher * (learner.flat - weights), alpha=strength)
        return loss

    learner._gradients = gradients  # type: ignore[method-assign, assignment]


def needed(learner: Learner, task: Task, step: int) -> torch.Tensor:
    """F of the task as the machine is now, by sequences one at a time."""
    fisher = torch.zeros_like(learner.flat)
    for number, batch in enumerate(task.batches(learner.experiment.seed, TRAIN, step, step + FISHER, 1)):
        learner.gradient.fill_(0)
        learner._gradients(task, batch, *learner._draw(task, batch, step + number))
        fisher.addcmul_(learner.gradient, learner.gradient, value=1 / FISHER)
    return fisher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strength", type=float, default=1000.0, help="λ")
    parser.add_argument("--iterations", type=int, default=80_000)
    parser.add_argument("--controller", default="feed-forward")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    experiment = recipes.continual("ntm", "paper", seed=arguments.seed)
    controller = replace(experiment.machine.controller, kind=arguments.controller)
    experiment = replace(experiment, machine=replace(experiment.machine, controller=controller))
    learner, each = build(experiment, threads=1), arguments.iterations // 4
    pull: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number, (name, _) in enumerate(experiment.task.parts.items()):
        task = experiment.task.weighted(tuple(float(part == number) for part in range(4)))
        consolidated(learner, arguments.strength, pull) if number == 1 else None
        first = number * each
        for step, batch in enumerate(task.batches(experiment.seed, TRAIN, first, first + each, 16), start=first):
            learner.step(task, batch, step)
        found = {
            part: evaluate(learner.machine, single, 64, experiment.seed, VALIDATION).averages()["bit_accuracy"]
            for part, single in experiment.task.parts.items()
        }
        words = ", ".join(f"{part} {accuracy:.3f}" for part, accuracy in found.items())
        print(f"after {name}: {words}; mean {sum(found.values()) / 4:.3f}", flush=True)
        before, pull[:] = list(pull), []
        fisher = needed(learner, task, arguments.iterations + first)
        pull[:] = [*before, (fisher, learner.flat.clone())]


if __name__ == "__main__":
    main()
