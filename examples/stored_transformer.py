"""Stored programs in the feed-forward block of a small transformer.

The task is a stream of symbols and commands: each symbol has to be replaced according to the table of the last command
before it, one of eight random tables of 16 symbols. Attention finds the command, the feed-forward block has to store
the tables. Three blocks: a plain one, one with four stored programs of that size, mixed for every position, and a plain
one wide enough to have as many parameters.

    python examples/stored_transformer.py                        # seconds, one seed: to see it work
    python examples/stored_transformer.py --seeds 5 --steps 500  # the numbers of docs/howto/module.md
"""

import argparse
import statistics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nsm

COMMANDS, SYMBOLS, LENGTH, WIDTH, HIDDEN, PROGRAMS = 8, 16, 24, 32, 32, 4


def batch(tables: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (B, T), what they become, and which of them are symbols after a command."""
    symbols = torch.randint(SYMBOLS, (size, LENGTH), generator=generator)
    commands = torch.randint(COMMANDS, (size, LENGTH), generator=generator)
    is_command = torch.rand(size, LENGTH, generator=generator) < 0.2
    is_command[:, 0] = True
    last = torch.where(is_command, torch.arange(LENGTH), 0).cummax(dim=1).values
    answers = tables[commands.gather(1, last), symbols]
    return torch.where(is_command, SYMBOLS + commands, symbols), answers, ~is_command


class Transformer(nn.Module):
    """One causal block, norms first."""

    def __init__(self, feed_forward: nn.Module) -> None:
        super().__init__()
        self.token = nn.Embedding(SYMBOLS + COMMANDS, WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.feed_forward = feed_forward
        self.out = nn.Linear(WIDTH, SYMBOLS)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place
        seen = self.norms[0](x)
        x = x + self.attention(seen, seen, seen, attn_mask=self.future, need_weights=False)[0]
        return self.out(x + self.feed_forward(self.norms[1](x)))


def block(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.GELU(), nn.Linear(hidden, WIDTH))


def stored() -> nn.Module:
    """per="position": a mixture of its own for every symbol, so none depends on symbols that come later."""
    return nsm.stored(block(HIDDEN), programs=PROGRAMS, per="position")


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def right(kind: str, seed: int, steps: int) -> float:
    """Train one transformer; returns its accuracy on new streams."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    tables = torch.stack([torch.randperm(SYMBOLS) for _ in range(COMMANDS)])
    model = Transformer(BLOCKS[kind]())
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        tokens, answers, counted = batch(tables, 64, generator)
        loss = F.cross_entropy(model(tokens)[counted], answers[counted])
        if isinstance(model.feed_forward, nsm.StoredModule):
            loss = loss + nsm.annealing(step) * model.feed_forward.loss()  # keeps the keys apart at the start
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    tokens, answers, counted = batch(tables, 1000, generator)
    with torch.no_grad():
        return float((model(tokens).argmax(-1) == answers)[counted].float().mean())


torch.set_num_threads(1)  # small tensors: a second thread does not help
WIDE = round((size(stored()) - WIDTH) / (2 * WIDTH + 1))  # hidden units for as many parameters as the stored block has
BLOCKS = {"plain": lambda: block(HIDDEN), "stored programs": stored, "plain, as large": lambda: block(WIDE)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    for kind, make in BLOCKS.items():
        shares = [right(kind, seed, asked.steps) for seed in range(asked.seeds)]
        spread = f" ± {statistics.stdev(shares):.1%}" if len(shares) > 1 else ""
        print(f"{kind:15} {size(make()):6,} parameters: {statistics.mean(shares):.1%}{spread} of symbols right")
