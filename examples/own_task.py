"""A task of your own in a dozen lines of NumPy: trained, resumed, tested and watched like any other.

Run it with: python examples/own_task.py        (about twenty seconds; a second time, it opens the finished run)
"""

import numpy as np

import nsm


class Reverse(nsm.Task):
    """Reverse a sequence of bits: one method makes one sequence, everything else has a default."""

    def sample(self, random):
        n = random.integers(1, 9)  # all randomness must come from here
        shown = random.integers(0, 2, (n, 4))
        inputs, targets = np.zeros((2 * n + 1, 5)), np.zeros((2 * n + 1, 4))
        inputs[:n, :4] = shown
        inputs[n, 4] = 1  # now output it
        targets[n + 1 :] = shown[::-1]
        return inputs, targets, np.arange(2 * n + 1) > n  # the scored steps


if __name__ == "__main__":
    run = nsm.train(
        Reverse(),
        nsm.NUTM(5, 4, programs=2, controller=nsm.Controller(size=64), memory=nsm.NTM(slots=32, width=8)),
        schedule=nsm.Schedule(3_000, batch_size=16),
        out="runs/reverse",
        callbacks=[nsm.ProgressBar()],
    )
    print(run.test())
    print(f"Watch it work: {run.view()}")
