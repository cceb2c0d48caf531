"""A repertoire: complete machines as stored programs, claimed one after another as sequences of a new kind come up.

    key      K_i      what program i has heard, as counts                              nsm.familiarity
    value    V_i      a whole machine: state network, interfaces, output layer
    routing  i(t)     the program to which all that was heard up to step t is least surprising
    answer   y_t      that of program i(t)

It is a program memory (Eqs. 3–5) read by hard attention, with likelihood in place of the cosine. All programs that are
claimed run side by side, each on a tape of its own, because the beginning of a sequence fits several: whichever turns
out to be the right one has heard all of it. Nobody says which task a sequence is of, or that the task has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor, nn

from nsm.arguments import check_input
from nsm.checks import UserError
from nsm.config import MachineConfig
from nsm.familiarity import Familiarity
from nsm.network import Network
from nsm.saved import Saved
from nsm.state import MachineState, Noise


class RepertoireState(NamedTuple):
    """All a repertoire carries from step to step."""

    programs: tuple[MachineState, ...]
    """Each program's own state."""
    active: Tensor
    """n_t (B, D), on how many steps each channel was not zero, three at most."""
    surprise: Tensor
    """Σ s_i (B, P), how surprising the sequence has been to each program so far, in double precision."""


class RepertoireMachine(Saved):
    """`config.repertoire.count` machines, of which `claimed` are in use; the newest learns, the others are frozen."""

    claimed: Tensor
    """How many programs are in use."""
    age: Tensor
    """How many batches the newest has learned from."""
    doubt: Tensor
    """How many more batches were new to all programs lately than were not."""

    def __init__(self, config: MachineConfig, programs: Sequence[Network]) -> None:
        super().__init__()
        if config.repertoire is None:
            raise UserError("a repertoire needs MachineConfig.repertoire")
        self.config, self.options = config, config.repertoire
        self.programs = nn.ModuleList(programs)
        self.familiarity = Familiarity(len(programs), config.input_size)
        self.register_buffer("claimed", torch.tensor(1))
        self.register_buffer("age", torch.tensor(0))
        self.register_buffer("doubt", torch.tensor(0))

    # --- routing ------------------------------------------------------------------------------------------------------

    def route(self, x: Tensor, state: RepertoireState | None = None) -> Tensor:
        """i(t) (T, B), the program that answers at each step of x (T, B, I)."""
        return self._heard(x, self.initial_state(x.shape[1]) if state is None else state)[0]

    def _heard(self, x: Tensor, state: RepertoireState) -> tuple[Tensor, Tensor, Tensor]:
        """i(t) (T, B); n (T, B, D) and the surprise (T, B, P) after each step."""
        active, total, claimed = [], [], self.newest + 1
        after, sofar = state.active, state.surprise[:, :claimed]
        for piece in self.familiarity.pieces(x):
            events, counted = self.familiarity.events(piece, after)
            each = [self.familiarity.surprise(i, events).sum(dim=-1) for i in range(claimed)]
            surprise = sofar + torch.stack(each, dim=-1).cumsum(dim=0)
            active.append(counted)
            total.append(surprise)
            after, sofar = counted[-1], surprise[-1]
        everyone = torch.cat(total)
        rest = state.surprise[:, claimed:].expand(len(x), -1, -1)
        return everyone.argmin(dim=-1), torch.cat(active), torch.cat([everyone, rest], dim=-1)

    def forward(
        self,
        x: Tensor,
        state: RepertoireState | None = None,
        lengths: Sequence[int] | Tensor | None = None,
        trace: bool | str = False,
        noise: Noise | None = None,
    ) -> tuple[Tensor, RepertoireState]:
        """x (T, B, I) → out (T, B, O), and (B, T, …) with `batch_first`; after a sequence's end zeros, as a machine."""
        if trace:
            raise UserError("a repertoire has no trace of its own: ask one of its programs, machine.programs[0]")
        axes = ("B", "T", "I") if self.config.batch_first else ("T", "B", "I")
        check_input(x, self.config.input_size, self.initial_read.dtype, axes)
        if self.config.batch_first:
            x = x.transpose(0, 1)
        if state is not None and len(state.active) != x.shape[1]:
            raise UserError(f"state must be of a batch of {x.shape[1]} here, was of {len(state.active)}")
        state = self.initial_state(x.shape[1]) if state is None else state
        route, active, surprise = self._heard(x, state)
        ends = torch.full((x.shape[1],), len(x)) if lengths is None else torch.as_tensor(lengths)
        last = (ends.to(x.device) - 1, torch.arange(x.shape[1], device=x.device))
        outputs, states = [], list(state.programs)
        for i in range(self.newest + 1):
            out, states[i] = self.programs[i](x, state.programs[i], lengths=lengths, noise=noise)
            outputs.append(out)
        chosen = torch.stack(outputs).gather(0, route[None, ..., None].expand(1, -1, -1, outputs[0].shape[-1]))[0]
        after = RepertoireState(tuple(states), active[last], surprise[last])
        return chosen.transpose(0, 1) if self.config.batch_first else chosen, after

    # --- learning -----------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The program that learns: the last one claimed, of those there are, whatever a damaged file says."""
        return min(max(int(self.claimed), 1), len(self.programs)) - 1

    def claim(self, program: int, x: Tensor, lengths: Tensor) -> None:
        """Have a program learn from a batch x (T, B, I) of training because a task label says so, and remember that."""
        if program != self.newest:
            self.age.zero_()
        self.claimed.fill_(program + 1)
        self.age += 1
        self._hear(x, torch.arange(len(x), device=x.device)[:, None] < lengths.to(x.device))

    def listen(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Hear a batch x (T, B, I) of training: claim a program if it is time, remember what the newest has heard.

        Returns the indices (n,) of the sequences that the newest is to learn from: what it knows, and what nobody
        knows, unless that is most of the batch. Before `youth` batches have been learned from, all that nobody else
        knows is the newest's.
        """
        options, size = self.options, x.shape[1]
        running = torch.arange(len(x), device=x.device)[:, None] < lengths.to(x.device)
        young = int(self.age) < options.youth
        unknown = (
            torch.ones(size, dtype=torch.bool, device=x.device) if young else self._foreign(self.newest, x, running)
        )
        unknown_to_all = unknown.clone()
        for i in range(self.newest):
            if unknown_to_all.any():
                unknown_to_all &= self._foreign(i, x, running)
        mine = unknown_to_all if young else ~unknown | unknown_to_all
        left = self.newest + 1 < len(self.programs)
        if not young and left:
            new = 2 * int(unknown_to_all.sum()) > size
            self.doubt.copy_((self.doubt + (1 if new else -1)).clamp(min=0))
            if int(self.doubt) >= options.patience:
                self.claimed += 1
                self.age.zero_()
                self.doubt.zero_()
                mine = unknown_to_all
            elif 2 * int(unknown.sum()) > size:
                mine = torch.zeros_like(mine)
        indices = mine.nonzero()[:, 0]
        if len(indices):
            self._hear(x, running & mine)
            self.age += 1
        return indices

    def _events(self, x: Tensor) -> Iterator[Tensor]:
        """The events of x (T, B, I), in pieces of some steps."""
        active = self.familiarity.silence(x.shape[1])
        for piece in self.familiarity.pieces(x):
            events, counted = self.familiarity.events(piece, active)
            yield events
            active = counted[-1]

    def _hear(self, x: Tensor, counted: Tensor) -> None:
        """The newest program remembers the steps of x that count, (T, B)."""
        first = 0
        for events in self._events(x):
            own = counted[first : first + len(events)]
            self.familiarity.hear(self.newest, events if own.all() else events[own])
            first += len(events)

    def _foreign(self, program: int, x: Tensor, running: Tensor) -> Tensor:
        """Which sequences (B,) of x (T, B, I) have something that a program has next to never heard."""
        worst = [self.familiarity.surprise(program, events).amax(dim=-1) for events in self._events(x)]
        return ((torch.cat(worst) > -math.log(self.options.rare)) & running).any(dim=0)

    # --- as any machine -----------------------------------------------------------------------------------------------

    def initial_state(self, batch: int = 1, slots: int | None = None) -> RepertoireState:
        """The state before the first step."""
        states = tuple(cast(Network, program).initial_state(batch, slots) for program in self.programs)
        like = self.initial_read
        surprise = torch.zeros(batch, len(self.programs), dtype=torch.float64, device=like.device)
        return RepertoireState(states, self.familiarity.silence(batch), surprise)

    def draw_noise(self, *shape: int, generator: torch.Generator, cell: float = 0.0) -> Noise:
        """The same noise for all programs."""
        return self._first.draw_noise(*shape, generator=generator, cell=cell)

    def program_loss(self) -> Tensor:
        """l_p of the program that learns."""
        return cast(Network, self.programs[self.newest]).program_loss()

    def uncovered(self) -> str | None:
        """Why the fused backend can't run its programs, or None if it can."""
        return cast(Any, self._first).uncovered()  # type: ignore[no-any-return]

    def run(self, *_: object, **__: object) -> NoReturn:
        """Interventions act on a single machine."""
        raise UserError("a repertoire can't be intervened on as a whole: take one of its programs, machine.programs[0]")

    def seed(self, seed: int) -> None:
        """Restart the generators of Gumbel noise of all programs."""
        for program in self.programs:
            cast(Network, program).seed(seed)

    @property
    def _first(self) -> Network:
        return cast(Network, self.programs[0])

    @property
    def memory(self) -> Any:
        """The data memory of the first program, like which all are."""
        return self._first.memory

    @property
    def initial_read(self) -> Tensor:
        return self._first.initial_read

    @property
    def noisy_tests(self) -> bool:
        return self._first.noisy_tests

    @property
    def parameter_count(self) -> int:
        """How many numbers are trained, in all programs."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def backend(self) -> str:
        return self._first.backend

    @backend.setter
    def backend(self, backend: str) -> None:
        for program in self.programs:
            cast(Network, program).backend = backend
