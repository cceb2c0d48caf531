"""What a system has to have that is compared with ours."""

from __future__ import annotations

from typing import Protocol

from nsm.bench.equality import Answer
from nsm.training.experiment import Optimiser

OPTIMISER = Optimiser()


class Absent(Exception):
    """Why a peer can't be asked here."""


class Peer(Protocol):
    """A system that learns from one batch, over and over."""

    def answer(self) -> Answer:
        """Outputs and gradients at the weights it has now; it learns nothing from that."""

    def iterate(self) -> None:
        """A whole training iteration: forward, loss, backward, update."""
