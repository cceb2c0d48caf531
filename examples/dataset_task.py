"""A torch data set as a task, loaded by a DataLoader: is the number of ones even?

Run it with: python examples/dataset_task.py        (about fifteen seconds)
"""

import torch
from torch.utils.data import Dataset, TensorDataset

import nsm


class Parity(nsm.DatasetTask):
    """Bits one at a time; after the last one the machine outputs whether the number of ones is even."""

    def dataset(self, split: str) -> Dataset:
        """The items of "train", "validation" or "test": inputs (T, I), targets (T, O), scored steps (T,)."""
        generator = torch.Generator().manual_seed({"train": 0, "validation": 1, "test": 2}[split])
        bits = torch.randint(0, 2, (2_000, 8), generator=generator).float()
        targets, counted = torch.zeros(2_000, 8, 1), torch.zeros(2_000, 8)
        targets[:, -1, 0], counted[:, -1] = (bits.sum(1) % 2 == 0).float(), 1
        return TensorDataset(torch.stack([bits, 1 - bits], dim=2), targets, counted)


if __name__ == "__main__":
    run = nsm.train(
        Parity(),  # Parity(workers=2) loads batches in two other processes
        nsm.NUTM(2, 1, controller=nsm.Controller(size=32), memory=nsm.NTM(slots=8, width=4)),
        schedule=nsm.Schedule(2_500, batch_size=32, evaluate_every=500, stop_when_solved=1),
        out="runs/parity",
        callbacks=[nsm.ProgressBar()],
    )
    print(run.test())
