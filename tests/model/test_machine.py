"""Whole machines against Algorithm 1 put together from the oracles, and what a machine is made of."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Noise, Programs
from oracles import controllers, dnc, lrua, ntm, programs

pytestmark = pytest.mark.usefixtures("backend")

STEPS, BATCH = 4, 3


def numpy(tensor):
    return tensor.detach().numpy()


def randomise(machine, seed=0):
    """Give every parameter, biases and norms too, a say."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.normal_(generator=generator)
    return machine


# --- Algorithm 1 by the oracles, one sample ---------------------------------------------------------------------------


def controller_step(network, x, state, noise):
    kind, weight_ih, bias_ih = network.config.kind, numpy(network.weight_ih), numpy(network.bias_ih)
    if kind == "feed-forward":
        return controllers.feed_forward(x, weight_ih, bias_ih), ()
    weight_hh, bias_hh = numpy(network.weight_hh), numpy(network.bias_hh)
    if kind == "lstm":
        h, c = controllers.lstm(x, *state, weight_ih, weight_hh, bias_ih + bias_hh, noise=noise)
        return h, (h, c)
    h = getattr(controllers, kind)(x, *state, weight_ih, weight_hh, bias_ih, bias_hh)
    return h, (h,)


def interface(network, c):
    if isinstance(network, torch.nn.Linear):
        return controllers.affine(numpy(network.weight), c, numpy(network.bias)), None
    return programs.stored_program_linear(
        c,
        numpy(network.query.weight),
        numpy(network.query.bias),
        numpy(network.strength.weight)[0],
        numpy(network.strength.bias),
        numpy(network.memory.key),
        np.concatenate([numpy(network.memory.weight), numpy(network.memory.bias)[:, None]], axis=1),
    )


def memory_step(memory, interfaces, state):
    config = memory.config
    if isinstance(config, NTM):
        kinds = [head.kind for head in memory.heads]
        return ntm.step(list(zip(kinds, interfaces, strict=True)), state)
    if isinstance(config, LRUA):
        split = config.read_heads
        reads, _, state = lrua.step(interfaces[:split], interfaces[split:], state, config.decay, config.order)
        return reads, state
    options = config.links, config.masked, config.erase_freed
    return dnc.step(*interfaces, state, config.read_heads, *options)


def algorithm_1(machine, x, noise=None):
    """Outputs, reads, program weights and the tape at every step, for one sequence x (T, I)."""
    start = machine.initial_state(1)
    state = tuple(numpy(leaf[0]) for leaf in start.controller)
    memory = {name: numpy(leaf[0]) for name, leaf in start.memory._asdict().items()}
    if "write_address" in memory:
        memory["write_address"] = memory["write_address"][0]
    read = numpy(start.read[0])
    happened = {"out": [], "reads": [], "programs": [], "memory": [], "controller": []}
    for t in range(len(x)):
        c, state = controller_step(
            machine.controller, np.concatenate([x[t], read]), state, None if noise is None else noise[t]
        )
        interfaces, weights = zip(*(interface(network, c) for network in machine.interfaces), strict=True)
        if machine.norms:
            interfaces = [
                controllers.layer_normalise(xi, numpy(norm.weight), numpy(norm.bias))
                for xi, norm in zip(interfaces, machine.norms, strict=True)
            ]
        reads, memory = memory_step(machine.memory, interfaces, memory)
        read = np.concatenate(reads)
        out = controllers.affine(numpy(machine.output.weight), np.concatenate([c, read]), numpy(machine.output.bias))
        for name, value in zip(happened, (out, read, weights, memory["memory"], c), strict=True):
            happened[name].append(value)
    return happened


def check_against_algorithm_1(machine, x, noise=None):
    out, state, trace = machine(x, trace="memory", noise=noise)
    for b in range(x.shape[1]):
        cell = None if noise is None else numpy(noise.cell[:, b])
        expected = algorithm_1(machine, numpy(x[:, b]), cell)
        np.testing.assert_allclose(numpy(out[:, b]), expected["out"], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(numpy(trace.reads[:, b]), expected["reads"], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(numpy(trace.memory[:, b]), expected["memory"], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(numpy(trace.controller[:, b]), expected["controller"], rtol=1e-8, atol=1e-9)
        if isinstance(machine, NUTM):
            np.testing.assert_allclose(numpy(trace.programs[:, b]), expected["programs"], rtol=1e-8, atol=1e-9)
    assert_close(state.read, trace.reads[-1], rtol=0, atol=0)
    assert_close(state.memory.memory, trace.memory[-1], rtol=0, atol=0)


def test_every_memory_with_and_without_programs(machine, randn):
    check_against_algorithm_1(randomise(machine), randn(STEPS, BATCH, 3))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn", "feed-forward"])
@pytest.mark.parametrize("order", ["read-first", "write-first"])
def test_every_controller(kind, order, randn):
    made = NUTM(3, 2, 3, controller=Controller(kind, size=4), memory=NTM(5, 3, order=order)).double()
    check_against_algorithm_1(randomise(made), randn(STEPS, BATCH, 3))


def test_noise_on_the_cell(randn):
    made = randomise(MANN(3, 2, controller=Controller(size=4), memory=NTM(5, 3)).double())
    check_against_algorithm_1(made, randn(STEPS, BATCH, 3), Noise(cell=randn(STEPS, BATCH, 4)))


@pytest.mark.parametrize("kind", [MANN, NUTM])
def test_norm_on_the_interfaces(kind, randn):
    # Slots all alike are equally used but for rounding, which would then decide the order of allocation.
    memory = DNC(5, 3, read_heads=2, initial_memory="random")
    made = kind(3, 2, controller=Controller(size=4), memory=memory, interface=Interface(norm=True))
    assert [norm.normalized_shape[0] for norm in made.norms] == [10, 12]
    check_against_algorithm_1(randomise(made.double()), randn(STEPS, BATCH, 3))


# --- one program memory per control head ------------------------------------------------------------------------------


def test_one_program_memory_per_control_head():
    made = NUTM(3, 2, 4, memory=NTM(5, 3, read_heads=2, write_heads=2))
    assert len(made.interfaces) == 4
    assert {tuple(network.memory.weight.shape) for network in made.interfaces} == {(4, 100, 9), (4, 100, 15)}


@pytest.mark.parametrize("loss", ["sum", "mean"])
def test_program_loss_over_pairs_and_heads(loss):
    made = NUTM(3, 2, Programs(3, key_size=4, loss=loss), memory=NTM(5, 3, read_heads=2, write_heads=2))
    made = randomise(made.double())
    per_head = [programs.key_similarity_loss(numpy(network.memory.key)) for network in made.interfaces]
    expected = sum(per_head) if loss == "sum" else sum(per_head) / (4 * 3)
    assert made.program_loss().item() == pytest.approx(expected, rel=1e-12)
    made.program_loss().backward()
    assert all(network.memory.key.grad.abs().sum() > 0 for network in made.interfaces)


def test_program_loss_of_a_machine_without_keys_is_zero():
    assert MANN(3, 2, memory=NTM(5, 3)).program_loss().item() == 0
    for attention in ("direct", "uniform"):
        assert NUTM(3, 2, Programs(2, attention=attention), memory=NTM(5, 3)).program_loss().item() == 0
