"""Random numbers of a training pass: drawn outside, handed in."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from nsm import MANN, NTM, NUTM, Controller, Interface, Noise, Programs
from nsm.attention import key_value_logits
from oracles import programs as oracle

pytestmark = pytest.mark.usefixtures("backend")

STEPS, BATCH = 20, 3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gumbel_machine():
    return NUTM(
        3,
        2,
        Programs(3, attention="gumbel"),
        controller=Controller(size=5),
        memory=NTM(6, 4, read_heads=2),
        interface=Interface(gain=3, fan="head"),
        generator=generator(),
    ).double()


@pytest.mark.parametrize("deviation", [0.1, 0.3])
def test_noise_on_the_cell_has_the_deviation_asked_for(deviation):
    noise = MANN(3, 2, memory=NTM(6, 4)).draw_noise(50, 20, generator=generator(), cell=deviation)
    assert noise.cell.shape == (50, 20, 100)
    # 100,000 numbers: the deviation is good to 0.3 %.
    assert noise.cell.std().item() == pytest.approx(deviation, rel=0.01)
    assert abs(noise.cell.mean().item()) < 0.02 * deviation
    assert noise.programs is None


def test_nothing_is_drawn_that_is_not_asked_for():
    assert MANN(3, 2, memory=NTM(6, 4)).draw_noise(5, 2, generator=generator()) == Noise(None, None)


def test_noise_has_the_precision_of_the_machine_and_follows_its_generator():
    made = gumbel_machine()
    noise = made.draw_noise(STEPS, BATCH, generator=generator(1), cell=0.3)
    assert noise.cell.dtype == noise.programs.dtype == torch.float64
    assert noise.programs.shape == (STEPS, BATCH, 3, 3)
    assert_close(made.draw_noise(STEPS, BATCH, generator=generator(1), cell=0.3), noise, rtol=0, atol=0)
    assert not torch.equal(made.draw_noise(STEPS, BATCH, generator=generator(2)).programs, noise.programs)
    assert made.draw_noise(BATCH, generator=generator(1)).programs.shape == (BATCH, 3, 3)


def test_gumbel_noise_has_the_mean_and_spread_of_its_distribution():
    noise = gumbel_machine().draw_noise(100, 100, generator=generator()).programs
    # Euler's constant and π/√6; 90,000 numbers.
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.std().item() == pytest.approx(1.2825, abs=0.02)


def test_each_head_chooses_by_its_own_noise(randn):
    made = gumbel_machine()
    noise = made.draw_noise(STEPS, BATCH, generator=generator(1))
    _, _, trace = made(randn(STEPS, BATCH, 3), trace=True, noise=noise)
    for n, network in enumerate(made.interfaces):
        query, strength = network.query(trace.controller), F.softplus(network.strength(trace.controller))
        logits = key_value_logits(query, strength, network.memory.key).detach().numpy()
        for t in range(STEPS):
            for b in range(BATCH):
                chosen = oracle.gumbel_hard_weights(logits[t, b], noise.programs[t, b, n].numpy(), 1.0)
                np.testing.assert_array_equal(trace.programs[t, b, n].detach().numpy(), chosen)
