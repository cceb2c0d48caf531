import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nsm import Controller
from nsm.controllers import NETWORKS, LSTMState
from oracles import controllers as oracle

STEPS, BATCH, INPUTS, SIZE = 4, 3, 4, 5


def build(config, seed=0):
    """A network whose every parameter, biases and norms too, is random."""
    network = config.build(INPUTS).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(generator=generator)
    return network


def numpy(tensor):
    return tensor.detach().numpy()


def bias(network, which):
    """A bias vector, zero where the network has none."""
    found = getattr(network, f"bias_{which}")
    return np.zeros(len(network.bias_ih)) if found is None else numpy(found)


def run(network, x, noise=None):
    """The outputs and states of a network over the steps of x."""
    state, outputs, states = network.initial_state(x.shape[1]), [], []
    for t in range(len(x)):
        output, state = network(x[t], state, None if noise is None else noise[t])
        outputs.append(output)
        states.append(state)
    return outputs, states


def norms_of(network):
    return {
        "gates_weight": np.concatenate([numpy(norm.weight) for norm in network.gate_norms]),
        "gates_bias": np.concatenate([numpy(norm.bias) for norm in network.gate_norms]),
        "cell_weight": numpy(network.cell_norm.weight),
        "cell_bias": numpy(network.cell_norm.bias),
    }


@pytest.mark.parametrize("noisy", [False, True], ids=["quiet", "noisy"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "norm"])
@pytest.mark.parametrize("biases", [1, 2])
def test_lstm_follows_its_equations(biases, layer_norm, noisy, randn):
    network = build(Controller("lstm", SIZE, biases=biases, layer_norm=layer_norm))
    x = randn(STEPS, BATCH, INPUTS)
    noise = randn(STEPS, BATCH, SIZE) if noisy else None
    outputs, states = run(network, x, noise)
    for b in range(BATCH):
        h, c = numpy(network.initial["hidden"]), numpy(network.initial["cell"])
        for t in range(STEPS):
            h, c = oracle.lstm(
                numpy(x[t, b]),
                h,
                c,
                numpy(network.weight_ih),
                numpy(network.weight_hh),
                bias(network, "ih") + bias(network, "hh"),
                norms_of(network) if layer_norm else None,
                numpy(noise[t, b]) if noisy else None,
            )
            np.testing.assert_allclose(numpy(outputs[t][b]), h, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(numpy(states[t].hidden[b]), h, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(numpy(states[t].cell[b]), c, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("biases", [1, 2])
@pytest.mark.parametrize("kind", ["gru", "rnn"])
def test_gru_and_rnn_follow_their_equations(kind, biases, randn):
    network = build(Controller(kind, SIZE, biases=biases))
    x = randn(STEPS, BATCH, INPUTS)
    outputs, states = run(network, x)
    for b in range(BATCH):
        h = numpy(network.initial["hidden"])
        for t in range(STEPS):
            weights = numpy(network.weight_ih), numpy(network.weight_hh), bias(network, "ih"), bias(network, "hh")
            h = getattr(oracle, kind)(numpy(x[t, b]), h, *weights)
            np.testing.assert_allclose(numpy(outputs[t][b]), h, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(numpy(states[t].hidden[b]), h, rtol=1e-10, atol=1e-13)


def test_feed_forward_follows_its_equation_and_remembers_nothing(randn):
    network = build(Controller("feed-forward", SIZE))
    x = randn(STEPS, BATCH, INPUTS)
    outputs, states = run(network, x)
    for t in range(STEPS):
        assert states[t] == ()
        for b in range(BATCH):
            expected = oracle.feed_forward(numpy(x[t, b]), numpy(network.weight_ih), numpy(network.bias_ih))
            np.testing.assert_allclose(numpy(outputs[t][b]), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("kind", "cell"), [("lstm", torch.nn.LSTMCell), ("gru", torch.nn.GRUCell), ("rnn", torch.nn.RNNCell)]
)
def test_weights_can_be_taken_from_the_cells_of_torch(kind, cell, randn):
    theirs = cell(INPUTS, SIZE).double()
    ours = build(Controller(kind, SIZE))
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x, state = randn(BATCH, INPUTS), ours.initial_state(BATCH)
    output, _ = ours(x, state)
    expected = theirs(x, tuple(state) if kind == "lstm" else state.hidden)
    assert_close(output, expected[0] if kind == "lstm" else expected, rtol=1e-12, atol=1e-12)


def test_lstm_with_an_open_forget_gate_and_a_shut_input_gate_keeps_its_cell(randn):
    network = build(Controller("lstm", SIZE))
    shut, wide = -800.0, 800.0
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.bias_ih.copy_(torch.tensor([shut, wide, 0.0, wide]).repeat_interleave(SIZE))
    cell = randn(BATCH, SIZE)
    output, state = network(randn(BATCH, INPUTS), LSTMState(randn(BATCH, SIZE), cell))
    assert torch.equal(state.cell, cell)
    assert_close(output, torch.tanh(cell), rtol=1e-12, atol=0)


def test_noise_stays_in_the_cell(randn):
    network = build(Controller("lstm", SIZE, layer_norm=True))
    x, noise, state = randn(BATCH, INPUTS), randn(BATCH, SIZE), network.initial_state(BATCH)
    _, quiet = network(x, state)
    _, noisy = network(x, state, noise)
    assert_close(noisy.cell - quiet.cell, noise, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_initial_state_is_learned_and_the_same_for_every_sample(kind, randn):
    network = build(Controller(kind, SIZE))
    state = network.initial_state(BATCH)
    for name, leaf in zip(state._fields, state, strict=True):
        assert leaf.shape == (BATCH, SIZE)
        assert_close(leaf, network.initial[name].expand(BATCH, SIZE), rtol=0, atol=0)
    output, _ = network(randn(BATCH, INPUTS), state)
    output.square().sum().backward()
    assert all(network.initial[name].grad.abs().min() > 0 for name in state._fields)


@pytest.mark.parametrize("kind", NETWORKS)
def test_initial_weights(kind):
    config = Controller(kind, size=60, gain=3.0)
    network = config.build(40, torch.Generator().manual_seed(0))
    bound = 3 / math.sqrt(40 + 60)
    for weight in (network.weight_ih, network.weight_hh):
        if weight is not None:
            assert 0.99 * bound < weight.abs().max() <= bound
    for biases in (network.bias_ih, network.bias_hh):
        assert biases is None or not biases.any()
    for start in network.initial.values():
        assert 0.03 < start.std() < 0.07
        assert start.mean().abs() < 0.03


def test_the_published_gain_is_the_default():
    network = Controller().build(20, torch.Generator().manual_seed(0))
    bound = 5 / math.sqrt(20 + 100)
    assert 0.99 * bound < network.weight_hh.abs().max() <= bound
    assert network.bias_hh is not None
