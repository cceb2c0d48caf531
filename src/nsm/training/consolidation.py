"""Elastic weight consolidation (Kirkpatrick et al., 2017), a baseline for continual learning.

    L(θ) + λ/2 Σ_k Σ_i F_k,i (θ_i − θ*_k,i)²        F_k: mean squared gradient of task k at θ*_k, its final weights

The gradient of the penalty is λ (F θ − A) with F = Σ_k F_k and A = Σ_k F_k θ*_k, so two vectors stand for all earlier
tasks. Unlike a repertoire it is told when a task ends.
"""

from __future__ import annotations

from torch import Tensor, zeros_like

FISHER = 3
"""The stream of the sequences that F is measured on; training, validation and tests have 0 to 2."""
SEQUENCES = 200
"""How many there are. Each is a batch of its own, or gradients would cancel before they are squared."""


class Consolidation:
    """How strongly each weight is held, and where."""

    def __init__(self, strength: float, weights: Tensor) -> None:
        self.strength = strength
        self._weights = weights
        self._fisher, self._anchored = zeros_like(weights), zeros_like(weights)

    def hold(self, fisher: Tensor) -> None:
        """Hold the weights where they are, each as strongly as F says."""
        self._fisher += fisher
        self._anchored.addcmul_(fisher, self._weights)

    def pull(self, gradient: Tensor) -> None:
        """Add the penalty's gradient."""
        gradient.addcmul_(self._fisher, self._weights, value=self.strength)
        gradient.sub_(self._anchored, alpha=self.strength)

    def state(self) -> dict[str, Tensor]:
        """F and A, for checkpoints."""
        return {"fisher": self._fisher, "anchored": self._anchored}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned."""
        self._fisher.copy_(state["fisher"])
        self._anchored.copy_(state["anchored"])
