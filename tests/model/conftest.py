"""The tests of whole machines once more on the kernels, which promise to be the same machine up to float32's rounding.

A test that uses the fixture `backend` has two cases. In the second all machines run on the fused back end: inputs,
states and weights are rounded to float32 on the way in, and results come back as they would from the reference. What is
compared may then differ by float32's rounding, stated here once for all; what the kernels don't cover is skipped.
"""

import numpy as np
import pytest
import torch

from nsm import nested
from nsm.fused import function
from nsm.machine import Machine

ROUNDING = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(params=["reference", "fused"])
def backend(request, monkeypatch):
    """The back end that all machines of a test run on."""
    if request.param == "fused":
        monkeypatch.setattr(Machine, "_use_kernels", covered)
        monkeypatch.setattr(Machine, "_fused", in_single_precision)
        monkeypatch.setattr(np.testing, "assert_allclose", loosened(np.testing.assert_allclose))
        if hasattr(request.module, "assert_close"):
            monkeypatch.setattr(request.module, "assert_close", loosened(torch.testing.assert_close))
    return request.param


def covered(machine, x, noise=None):
    reason = function.unsupported(machine, x.float(), noise)
    if reason is not None:
        pytest.skip(f"the fused back end doesn't cover {reason}")
    return True


def in_single_precision(machine, x, state, lengths, trace, noise):
    single = nested.apply(lambda tensor: tensor.float(), state)
    drawn = type(noise)(*(None if drawn is None else drawn.float() for drawn in noise))
    found = function.forward(machine, x.float(), single, lengths, trace, drawn)
    return nested.apply(lambda tensor: tensor.to(x.dtype), found)


def loosened(compare):
    def assert_close(actual, expected, rtol=None, atol=None, **options):
        widest = {"rtol": max(rtol or 0, ROUNDING["rtol"]), "atol": max(atol or 0, ROUNDING["atol"])}
        compare(actual, expected, **widest, **options)

    return assert_close
