"""A stored-program layer inside an ordinary network.

The task switches between two linear maps, depending on the sign of the first input. One linear layer can't learn it.
Two stored programs can: the query network learns which mixture of them to run for an input.
"""

import torch
from torch import nn

import nsm

torch.set_num_threads(1)  # tiny tensors: a second thread does not help
torch.manual_seed(0)
maps = torch.randn(2, 8, 4) / 8**0.5


def batch(size: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(size, 8)
    which = (x[:, 0] > 0).long()
    return x, torch.einsum("bi,bio->bo", x, maps[which])


def train(layer: nn.Module, steps: int = 600) -> float:
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    for step in range(steps):
        x, y = batch()
        loss = ((layer(x) - y) ** 2).mean()
        if isinstance(layer, nsm.StoredProgramLinear):
            loss = loss + nsm.annealing(step) * layer.loss()  # keep the keys apart at the start
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x, y = batch(4096)
    with torch.no_grad():
        return float(((layer(x) - y) ** 2).mean())


plain = train(nn.Linear(8, 4))
layer = nsm.StoredProgramLinear(8, 4, programs=2)
stored = train(layer)
x, _ = batch(4096)
with torch.no_grad():
    weights = layer.attend(x)[:, 0]
print(f"nn.Linear                       mean squared error {plain:.3f}")
print(f"StoredProgramLinear, 2 programs mean squared error {stored:.3f}")
on, off = weights[x[:, 0] > 0.5].mean(), weights[x[:, 0] < -0.5].mean()
print(f"program 1 has a share of {on:.0%} where the switch is well on, of {off:.0%} where it is well off")
