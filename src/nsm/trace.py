"""What a machine did at every step: `out, state, trace = machine(x, trace=True)`, then `trace.plot()`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nsm.checks import UserError
from nsm.plots.heads import Array, HeadTrace, head_traces
from nsm.pytree import tree_map

if TYPE_CHECKING:
    from nsm.plots.rows import Plot


class ReadHead(NamedTuple):
    """Marks a control head that reads. It has no fields, so a function mapped over a trace gets tensors only."""


class WriteHead(NamedTuple):
    """Marks a control head that writes."""


class Trace(NamedTuple):
    """What happened at every step, time first. Steps after a sequence's end are zero.

    For an unbatched sequence, no tensor has the dimension B.
    """

    controller: Tensor
    """c_t (T, B, n)"""
    interfaces: tuple[Tensor, ...]
    """ξ per control head, each (T, B, L)"""
    programs: Tensor | None
    """w^p (T, B, heads, P), None in a MANN"""
    read_addresses: Tensor
    """(T, B, R, N)"""
    write_addresses: Tensor
    """(T, B, W, N)"""
    reads: Tensor
    """r_t (T, B, R·M)"""
    memory: Tensor | None
    """M_t (T, B, N, M) if asked for with trace="memory" """
    heads: tuple[ReadHead | WriteHead, ...]
    """What each control head is for"""
    state_programs: Tensor | None = None
    """w^p of the state network (T, B, P), None where its weights are not stored"""
    output_programs: Tensor | None = None
    """w^p of the output layer (T, B, P), None where its weights are not stored"""

    def plot(self, sample: int = 0, length: int | None = None) -> Plot:
        """Plot where each head was at every step and which programs it used: a matplotlib figure, shown by a notebook.

        The programs of the state network and the output layer, if stored, are plotted below the heads.
        `sample` is the index of a sequence in the batch, `length` the number of its steps to show, by default all T.
        """
        # Not at the top: matplotlib is slow to import.
        from nsm.plots.rows import heads_over_time

        return heads_over_time(self.head_traces(sample, length), self.part_programs(sample, length))

    def batched(self) -> Trace:
        """The trace of an unbatched sequence as one of a batch of one."""
        return tree_map(lambda leaf: leaf.unsqueeze(1), self)

    def head_traces(self, sample: int = 0, length: int | None = None) -> tuple[HeadTrace, ...]:
        """What each head of the memory did with one sequence, in arrays."""
        steps, *batch = self.controller.shape[:-1]
        _check("sample", sample, 0, batch[0] - 1 if batch else 0)
        _check("length", steps if length is None else length, 1, steps)
        if not self.read_addresses.numel() and not self.write_addresses.numel():
            raise UserError("this machine has no memory heads: there is nothing to show")

        shown = partial(self._shown, sample=sample, length=length)
        return head_traces(
            shown(self.read_addresses),
            shown(self.write_addresses),
            None if self.programs is None else shown(self.programs),
            ["read" if isinstance(head, ReadHead) else "write" for head in self.heads],
        )

    def part_programs(self, sample: int = 0, length: int | None = None) -> tuple[tuple[str, Array], ...]:
        """The programs (T, P) of the state network and the output layer, "state" and "output", as far as stored."""
        named = ("state", self.state_programs), ("output", self.output_programs)
        return tuple((name, self._shown(mix, sample, length)) for name, mix in named if mix is not None)

    def _shown(self, part: Tensor, sample: int, length: int | None) -> Array:
        """One sequence of a part, as an array."""
        own = part[:length, sample] if self.controller.dim() == 3 else part[:length]
        return own.detach().to("cpu", torch.float32).numpy()


def _check(argument: str, value: int, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise UserError(f"{argument} must be an integer from {lowest} to {highest}, was {value!r}")
