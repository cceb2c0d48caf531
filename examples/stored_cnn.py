"""Stored programs in the convolutions of a small network for images.

Ten drawings, each of three random lines, come in four styles: dark or light, on horizontal or vertical stripes. The
class of an image depends on the style: it is (drawing + 3 · style) mod 10. The first convolution is shared; the rest is
a plain network, four stored programs of that size, mixed for every image, or a plain network wide enough to have as
many parameters.

    python examples/stored_cnn.py                        # seconds, one seed: to see it work
    python examples/stored_cnn.py --seeds 5 --steps 400  # the numbers of docs/howto/module.md
"""

import argparse
import statistics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nsm

CLASSES, STYLES, SIDE, CHANNELS, PROGRAMS = 10, 4, 16, 8, 4


def lines(generator: torch.Generator) -> Tensor:
    """Ten drawings (10, 16, 16) of three lines each."""
    ends = 2 + (SIDE - 4) * torch.rand(CLASSES, 3, 2, 2, generator=generator)
    along = torch.linspace(0, 1, 20).view(-1, 1)
    points = (ends[:, :, None, 0] * along + ends[:, :, None, 1] * (1 - along)).flatten(1, 2)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    far = (points[..., 0, None, None] - rows) ** 2 + (points[..., 1, None, None] - columns) ** 2
    return torch.exp(-far).amax(dim=1)


def batch(drawings: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images (B, 1, 16, 16), a drawing somewhere in each, and their classes."""
    which = torch.randint(CLASSES, (size,), generator=generator)
    style = torch.randint(STYLES, (size,), generator=generator)
    by = torch.randint(-2, 3, (size, 2), generator=generator).tolist()
    image = torch.stack([drawings[n].roll((down, right), (0, 1)) for n, (down, right) in zip(which, by, strict=True)])
    image = torch.where((style % 2 == 1).view(-1, 1, 1), 1 - image, image)
    stripes = 0.5 * (torch.arange(SIDE) % 4 < 2).expand(SIDE, SIDE)
    image = image + torch.where((style >= 2).view(-1, 1, 1), stripes, stripes.T)
    image = image + 0.3 * torch.randn(image.shape, generator=generator)
    return image.unsqueeze(1), (which + 3 * style) % CLASSES


def rest(channels: int) -> nn.Module:
    """What follows the first convolution."""
    convolutions = nn.Conv2d(CHANNELS, channels, 3, padding=1), nn.Conv2d(channels, 2 * channels, 3, padding=1)
    return nn.Sequential(
        *(convolutions[0], nn.ReLU(), nn.MaxPool2d(2), convolutions[1], nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(1), nn.Linear(2 * channels * (SIDE // 8) ** 2, CLASSES)),
    )


def stored() -> nn.Module:
    """Its query is the mean of each channel of the first convolution."""
    return nsm.stored(rest(CHANNELS), programs=PROGRAMS)


def network(after: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), after)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def right(kind: str, seed: int, steps: int) -> float:
    """Train one network; returns its accuracy on new images."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    drawings = lines(generator)
    model = network(NETWORKS[kind]())
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        images, classes = batch(drawings, 64, generator)
        loss = F.cross_entropy(model(images), classes)
        if isinstance(model[-1], nsm.StoredModule):
            loss = loss + nsm.annealing(step) * model[-1].loss()  # keeps the keys apart at the start
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    images, classes = batch(drawings, 2000, generator)
    with torch.no_grad():
        return float((model(images).argmax(-1) == classes).float().mean())


torch.set_num_threads(1)  # small tensors: a second thread does not help
WIDE = min(range(CHANNELS, 64), key=lambda channels: abs(size(rest(channels)) - size(stored())))
NETWORKS = {"plain": lambda: rest(CHANNELS), "stored programs": stored, "plain, as large": lambda: rest(WIDE)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    for kind, make in NETWORKS.items():
        shares = [right(kind, seed, asked.steps) for seed in range(asked.seeds)]
        spread = f" ± {statistics.stdev(shares):.1%}" if len(shares) > 1 else ""
        print(f"{kind:15} {size(network(make())):6,} parameters: {statistics.mean(shares):.1%}{spread} of images right")
