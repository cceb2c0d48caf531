"""The kernels against the reference: outputs, final state, and the gradient of every input there is.

The truth is the reference in float64. A float32 result may differ from it by 2e-5 of the largest entry of its tensor;
where the reference itself, run in float32, is further off (sums that cancel, a norm over two units), the kernels may be
a few times as far.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

import nsm
from nsm.pytree import tree_leaves, tree_map

TOLERANCE = 2e-5
TIMES = 4


class Case:
    """A machine with random inputs, states, noise and gradients to send back through it."""

    def __init__(
        self,
        machine: nsm.Machine,
        steps: int,
        batch: int,
        lengths: list[int] | None = None,
        slots: int | None = None,
        cell_noise: float = 0.0,
        seed: int = 0,
        fresh: bool = False,
    ) -> None:
        """`fresh` starts from the machine's own initial state; else it is one in the middle of things, without ties."""
        generator = torch.Generator().manual_seed(seed)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        self.machine, self.lengths = machine, lengths or [steps] * batch
        self.x = randn(steps, batch, machine.config.input_size)
        state = tree_map(lambda t: t.detach().clone(), machine.initial_state(batch, slots))
        if not fresh:
            state = tree_map(lambda t: t + 0.1 * torch.rand(t.shape, generator=generator), state)
        self.state, self.noise = state, nsm.Noise()
        if cell_noise or machine._noisy:
            self.noise = machine.draw_noise(steps, batch, generator=generator, cell=cell_noise)
        self.d_out = randn(steps, batch, machine.config.output_size)
        self.d_final = tree_map(lambda t: 0.3 * randn(*t.shape), state)

    def reference(self, dtype: torch.dtype) -> dict[str, np.ndarray]:
        """Everything by name, from the reference."""
        return self._found(copy.deepcopy(self.machine).to(dtype), "reference", dtype)

    def rounded(self, seed: int) -> dict[str, np.ndarray]:
        """Everything by name, from the reference with weights that are off by up to half a last bit of float32."""
        generator, machine = torch.Generator().manual_seed(seed), copy.deepcopy(self.machine).double()
        with torch.no_grad():
            for weight in machine.parameters():
                weight *= 1 + (2 * torch.rand(weight.shape, generator=generator, dtype=torch.float64) - 1) / 2**24
        return self._found(machine, "reference", torch.float64)

    def fused(self, threads: int = 1) -> dict[str, np.ndarray]:
        """Everything by name, from the operators."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return self._found(self.machine, "fused", torch.float32)
        finally:
            torch.set_num_threads(before)

    def _found(self, machine: nsm.Machine, backend: str, dtype: torch.dtype) -> dict[str, np.ndarray]:
        machine.backend = backend
        state = tree_map(lambda t: t.to(dtype, copy=True).requires_grad_(), self.state)
        x = self.x.to(dtype, copy=True).requires_grad_()
        noise = nsm.Noise(*(None if n is None else n.to(dtype) for n in self.noise))
        out, final = machine(x, state, lengths=self.lengths, noise=noise)
        ends = zip(tree_leaves(final), tree_leaves(self.d_final), strict=True)
        loss = (out * self.d_out).sum() + sum((leaf * d).sum() for leaf, d in ends)
        names = [name for name, _ in machine.named_parameters()]
        names += [f"initial {i}" for i in range(len(tree_leaves(state)))] + ["x"]
        inputs = [*machine.parameters(), *tree_leaves(state), x]
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
        found = {"out": out, **{f"final {i}": leaf for i, leaf in enumerate(tree_leaves(final))}}
        for name, value, gradient in zip(names, inputs, gradients, strict=True):
            if ".initial." not in name:  # reached through the initial state
                found[name] = torch.zeros_like(value) if gradient is None else gradient
        return {name: tensor.detach().numpy() for name, tensor in found.items()}


def errors(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest error of each tensor, as a share of its largest entry."""
    assert found.keys() == exact.keys()
    shares = {}
    for name, truth in exact.items():
        if not np.isfinite(found[name]).all():
            shares[name] = np.inf
        elif truth.size:
            # A bias may cancel to nearly nothing over time: its layer's weight says what is large.
            beside = exact.get(name.removesuffix("bias") + "weight", truth) if name.endswith("bias") else truth
            scale = max(np.abs(truth).max(), np.abs(beside).max(), 1e-12)
            shares[name] = float(np.abs(found[name] - truth).max() / scale)
    return shares


def assert_equal(case: Case, **how: Any) -> None:
    """The kernels are as exact as float32 allows: what is far off is so for the reference in float32, too, or already
    where no more than the weights are rounded. Rounding is a matter of luck, so of several tries the worst counts."""
    exact = case.reference(torch.float64)
    ours = errors(case.fused(**how), exact)
    far = {name: error for name, error in ours.items() if not error < TOLERANCE}
    if far:
        tries = [case.reference(torch.float32), *map(case.rounded, range(4))]
        theirs = {name: max(errors(found, exact)[name] for found in tries) for name in far}
        far = {name: (error, theirs[name]) for name, error in far.items() if not error < TIMES * theirs[name]}
    assert not far, f"error of the kernels and of the reference in float32: {far}"
