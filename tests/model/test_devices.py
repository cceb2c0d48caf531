"""The meta device stands in for an accelerator: what is made on the default device instead of the machine's fails."""

from dataclasses import replace

import pytest
import torch
from torch.utils._pytree import tree_leaves

from nsm import MANN, NUTM, Controller, Interface, Programs
from nsm.attention import ATTENTION
from nsm.controllers import NETWORKS

STEPS, BATCH = 3, 2


def on_meta(*shape):
    return torch.empty(*shape, device="meta")


def check(made):
    made = made.to("meta")
    out, state, trace = made(on_meta(STEPS, BATCH, 3), trace="memory")
    stepped, after = made.step(on_meta(BATCH, 3), state)
    ragged, end = made(on_meta(STEPS, BATCH, 3), state, lengths=[3, 1])
    assert out.shape == ragged.shape == (STEPS, BATCH, 2)
    assert stepped.shape == (BATCH, 2)
    for leaf in tree_leaves((out, state, trace, stepped, after, ragged, end, made.program_loss())):
        assert leaf is None or leaf.is_meta


def test_every_memory(machine):
    check(machine.float())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("attention", ATTENTION)
def test_every_attention(attention, training):
    check(NUTM(3, 2, Programs(3, attention=attention)).train(training))


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_controller(kind):
    check(MANN(3, 2, controller=Controller(kind, size=4, layer_norm=kind == "lstm"), interface=Interface(norm=True)))


@pytest.mark.parametrize("start", ["random", "constant"])
@pytest.mark.parametrize("slots", [2, 20])
def test_tapes_of_another_length(memory, slots, start):
    made = MANN(3, 2, memory=replace(memory, initial_memory=start)).to("meta")
    _, state = made(on_meta(STEPS, BATCH, 3), made.initial_state(BATCH, slots=slots))
    assert state.memory.memory.is_meta
    assert state.memory.memory.shape[1] == slots


@pytest.mark.parametrize("start", ["random", "constant"])
def test_what_is_drawn_is_drawn_where_its_generator_is(memory, start):
    """Whatever torch's default device: a longer tape, Gumbel noise and noise on the cell come from the CPU's."""
    programs = Programs(3, attention="gumbel")
    made = NUTM(3, 2, programs, controller=Controller(size=4), memory=replace(memory, initial_memory=start))
    made.backend = "reference"
    wanted = made.initial_state(BATCH, slots=made.memory.slots + 3)
    with torch.device("meta"):
        state = made.initial_state(BATCH, slots=made.memory.slots + 3)
        noise = made.draw_noise(STEPS, BATCH, generator=torch.Generator(), cell=0.3)
    assert torch.equal(state.memory.memory, wanted.memory.memory)
    assert not noise.cell.is_meta
    assert not noise.programs.is_meta


def test_noise_comes_to_the_device_of_the_machine():
    made = NUTM(3, 2, Programs(3, attention="gumbel"), controller=Controller(size=4)).to("meta")
    noise = made.draw_noise(STEPS, BATCH, generator=torch.Generator(), cell=0.3)
    assert noise.cell.is_meta
    assert noise.programs.is_meta
    assert made(on_meta(STEPS, BATCH, 3), noise=noise)[0].is_meta


@pytest.mark.parametrize("kind", [MANN, NUTM])
def test_a_machine_can_be_built_on_a_device(kind, memory):
    with torch.device("meta"):
        made = kind(3, 2, memory=memory, controller=Controller(size=4, layer_norm=True), interface=Interface(norm=True))
    assert all(tensor.is_meta for tensor in made.state_dict().values())
    check(made)
