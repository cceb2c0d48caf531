"""How familiar a sequence is to each program: what it has heard, kept as counts, and how surprising the next step is.

Every channel is predicted from what every channel has shown so far, by counting:

    v_t(c)     which of five a value is: negative, 0, between, 1, above; one more channel says that all are silent
    n_t(d)     on how many earlier steps channel d was not 0, three at most
    o_t(c)     whether a channel other than c is not 0 now
    p_i(c | d) = (N_i[c, d, n_t(d), o_t(c), v_t(c)] + α) / (Σ_v N_i[c, d, n_t(d), o_t(c), v] + 5 α)
    s_i(t)     = Σ_c max_d −log p_i(c | d)                        the surprise of a step to program i, in nats

The counts N_i are the key of program i, and the surprise so far is the distance to it. Counts are whole numbers: they
are the same whatever the number of threads, and whether a run was interrupted or not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

VALUES = 5
"""Kinds of values: negative, 0, between 0 and 1, 1, above 1."""
MOST = 3
"""Steps on which a channel was active are counted up to here."""
CONTEXTS = 2 * (MOST + 1)
LARGEST = 1 << 22
"""Events that are looked at together, 8 bytes each."""
SMOOTHING = 0.1
"""α: how often each kind of value counts as seen before any was."""


class Familiarity(nn.Module):
    """The counts of `programs` programs for inputs of `channels` channels."""

    counts: Tensor
    """(programs, D · D · contexts · values), D being the channels and silence"""

    def __init__(self, programs: int, channels: int) -> None:
        super().__init__()
        self.channels = channels + 1
        size = self.channels * self.channels * CONTEXTS * VALUES
        self.register_buffer("counts", torch.zeros(programs, size, dtype=torch.int64))

    def silence(self, batch: int) -> Tensor:
        """n_0 (B, D): nothing has been heard."""
        return torch.zeros(batch, self.channels, dtype=torch.int64, device=self.counts.device)

    def pieces(self, x: Tensor) -> tuple[Tensor, ...]:
        """x (T, B, C) in pieces of as many steps as have a bounded number of events."""
        steps = max(1, LARGEST // (x.shape[1] * self.channels**2))
        return tuple(x[first : first + steps] for first in range(0, len(x), steps))

    def events(self, x: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """Which count each channel of each step falls on by each channel, and n after every step.

        x (T, B, C), active (B, D) → (T, B, D, D), (T, B, D)
        """
        quiet = (x == 0).all(dim=-1, keepdim=True)
        on = torch.cat([x != 0, quiet], dim=-1)
        kind = (x >= 0).long() + (x > 0).long() + (x >= 1).long() + (x > 1).long()
        kind = torch.cat([kind, torch.where(quiet, 3, 1)], dim=-1)
        after = active + on.long().cumsum(dim=0)
        before = (after - on.long()).clamp(max=MOST)
        others = (on[..., :-1].sum(dim=-1, keepdim=True) - on.long()) > 0
        others[..., -1] = False  # silence is all channels: none is beside it
        size = self.channels**2 * CONTEXTS * VALUES
        first = torch.arange(0, size, CONTEXTS * VALUES, device=x.device).view(self.channels, self.channels)
        ours = kind + (MOST + 1) * VALUES * others.long()
        return first + (VALUES * before).unsqueeze(-2) + ours.unsqueeze(-1), after.clamp(max=MOST)

    def surprise(self, program: int, events: Tensor) -> Tensor:
        """−log p of every channel at every step, by the worst of the channels that foretell it: (T, B, D)."""
        seen = self.counts[program].view(-1, VALUES).double() + SMOOTHING
        table = (seen.sum(dim=-1, keepdim=True) / seen).log().view(-1)
        return table.index_select(0, events.flatten()).view(events.shape).amax(dim=-1)

    def hear(self, program: int, events: Tensor) -> None:
        """Count events, (…, D, D), as seen by a program."""
        self.counts[program] += torch.bincount(events.flatten(), minlength=self.counts.shape[1])
