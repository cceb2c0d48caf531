"""The tests of whole machines once more on the kernels, which promise to be the same machine up to float32's rounding.

A test that uses the fixture `backend` has two cases. In the second all machines run on the fused back end: inputs,
states and weights are rounded to float32 on the way in, and results come back as they would from the reference. What is
compared may then differ by float32's rounding, stated here once for all.
"""

import numpy as np
import pytest
import torch

from nsm.machine import Machine
from nsm.pytree import tree_map

ROUNDING = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(params=["reference", "fused"])
def backend(request, monkeypatch):
    """The back end that all machines of a test run on."""
    if request.param == "fused":
        monkeypatch.setattr(
            Machine, "_kernel_operands", lambda machine, _: [weight.float() for weight in machine.operands()]
        )
        monkeypatch.setattr(Machine, "_fused", in_single_precision(Machine._fused))
        monkeypatch.setattr(np.testing, "assert_allclose", loosened(np.testing.assert_allclose))
        if hasattr(request.module, "assert_close"):
            monkeypatch.setattr(request.module, "assert_close", loosened(torch.testing.assert_close))
    return request.param


def in_single_precision(fused):
    def forward(machine, weights, x, state, lengths, trace, noise):
        single = tree_map(lambda tensor: tensor.float(), state)
        drawn = type(noise)(*(None if drawn is None else drawn.float() for drawn in noise))
        found = fused(machine, weights, x.float(), single, lengths, trace, drawn)
        return tree_map(lambda tensor: tensor.to(x.dtype), found)

    return forward


def loosened(compare):
    def assert_close(actual, expected, rtol=None, atol=None, **options):
        widest = {"rtol": max(rtol or 0, ROUNDING["rtol"]), "atol": max(atol or 0, ROUNDING["atol"])}
        compare(actual, expected, **widest, **options)

    return assert_close
