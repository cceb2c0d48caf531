"""Two tasks in sequence: a single machine forgets the first, a repertoire does not. It is not told which task it sees.

Run it with: python examples/continual_learning.py        (about a minute)
"""

import tempfile
from dataclasses import dataclass

import numpy as np

import nsm
from nsm.tasks import Copy, Mixture
from nsm.training.curriculum import OneByOne


@dataclass(frozen=True)
class Invert(nsm.Task):
    """Invert every bit of a sequence. Its start flag differs from that of Copy."""

    def sample(self, random):
        n = random.integers(1, 5)
        shown = random.integers(0, 2, (n, 4))
        inputs, targets = np.zeros((2 * n + 2, 6)), np.zeros((2 * n + 2, 4))
        inputs[0, 4] = -1
        inputs[1 : n + 1, :4] = shown
        inputs[n + 1, 5] = 1
        targets[n + 2 :] = 1 - shown
        return inputs, targets, np.arange(2 * n + 2) > n + 1


if __name__ == "__main__":
    task = Mixture((Copy(width=4, length=(1, 4)), Invert()))
    for name, repertoire in [("one machine", None), ("a repertoire", nsm.Repertoire(count=4))]:
        machine = nsm.MachineConfig(6, 4, nsm.Controller(size=48), nsm.NTM(slots=16, width=8), repertoire=repertoire)
        with tempfile.TemporaryDirectory() as out:
            run = nsm.train(
                task,
                machine,
                optimiser=nsm.Optimiser("adam", learning_rate=2e-3),
                schedule=nsm.Schedule(3_000, batch_size=16, curriculum=OneByOne()),
                out=out,
            )
            for learned, phase in zip(task.part_names, run.outcome().phases, strict=True):
                right = ", ".join(f"{part} {accuracy:.1%}" for part, accuracy in phase.items())
                print(f"{name}, after {learned}: {right}")
            if repertoire is not None:
                print(f"programs claimed: {int(run.machine().claimed)}")
