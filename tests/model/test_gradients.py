"""Analytic against numeric gradients, with respect to every parameter, the input and the initial state."""

from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Noise, Programs
from nsm.attention import ATTENTION
from nsm.controllers import NETWORKS
from nsm.memories import DNCState, LRUAState, NTMState
from nsm.programs import key_similarity_loss, orthogonality_loss

MEMORIES = {
    "ntm": NTM(3, 2),
    "ntm-write-first": NTM(3, 2, shift_range=2, order="write-first"),
    "lrua": LRUA(3, 2, read_heads=2),
    "lrua-read-first": LRUA(3, 2, read_heads=1, order="read-first"),
    "dnc": DNC(3, 2, read_heads=1),
    "dnc-links": DNC(3, 2, read_heads=1, links=True),
    "dnc-masked": DNC(3, 2, read_heads=2, masked=True, erase_freed=True),
}
SOFT = [name for name, attention in ATTENTION.items() if not attention.noisy]


def state_of(machine, randn, batch):
    """A state away from ties: where slots are used alike, the order of allocation has no derivative."""
    start = machine.initial_state(batch)
    slots = machine.memory.slots

    def address(like):
        return torch.softmax(randn(*like.shape), dim=-1)

    memory = start.memory
    fields = {"memory": randn(*memory.memory.shape)}
    if isinstance(memory, NTMState):
        fields |= {"read_addresses": address(memory.read_addresses), "write_addresses": address(memory.write_addresses)}
    if isinstance(memory, LRUAState):
        fields |= {
            "usage": 1.0 + randn(batch, slots).argsort(-1).double(),
            "read_addresses": address(memory.read_addresses),
        }
    if isinstance(memory, DNCState):
        fields |= {
            "usage": (1.0 + randn(batch, slots).argsort(-1).double()) / (slots + 1),
            "read_addresses": address(memory.read_addresses),
            "write_address": 0.1 * address(memory.write_address),
        }
        if memory.links.numel():
            fields |= {"precedence": address(memory.precedence), "links": address(memory.links) / 2}
    controller = tree_map(lambda leaf: randn(*leaf.shape), start.controller)
    return start._replace(controller=controller, memory=memory._replace(**fields), read=randn(*start.read.shape))


def check(machine, randn, steps=2, batch=2, **options):
    """gradcheck of outputs and final state; without a state of its own the machine starts from its learned one."""
    parameters = {name: value.detach().clone() for name, value in machine.named_parameters()}
    state = state_of(machine, randn, batch) if options.pop("state", True) else None
    leaves, shape = tree_flatten(state)

    def run(x, *flat):
        weights = dict(zip(parameters, flat, strict=False))
        start = None if state is None else tree_unflatten(flat[len(parameters) :], shape)
        out, end = functional_call(machine, weights, (x, start), options)
        return (out, *(leaf for leaf in tree_leaves(end) if leaf.requires_grad and leaf.numel()))

    inputs = [randn(steps, batch, 1), *parameters.values(), *leaves]
    inputs = [leaf.detach().clone().requires_grad_() for leaf in inputs if leaf is not None]
    assert gradcheck(run, inputs, eps=1e-6, atol=1e-6, rtol=1e-5)


def machine(kind, memory, controller=None, interface=None, **options):
    controller, interface = controller or Controller(size=2), interface or Interface()
    made = kind(1, 1, controller=controller, memory=memory, interface=interface, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.7, generator=generator)
    return made.double()


@pytest.mark.parametrize("attention", SOFT)
@pytest.mark.parametrize("memory", ["ntm", "lrua", "dnc", "dnc-links", "dnc-masked"])
def test_stored_programs(memory, attention, randn):
    check(machine(NUTM, MEMORIES[memory], programs=Programs(2, attention=attention)), randn, batch=1)


@pytest.mark.parametrize("memory", MEMORIES)
def test_plain_networks(memory, randn):
    check(machine(MANN, MEMORIES[memory]), randn)


@pytest.mark.parametrize("kind", NETWORKS)
def test_controllers(kind, randn):
    check(machine(MANN, LRUA(2, 1, read_heads=1), Controller(kind, size=2)), randn, steps=3)


@pytest.mark.parametrize("kind", NETWORKS)
def test_learned_initial_states(kind, randn):
    check(machine(MANN, LRUA(2, 1, read_heads=1), Controller(kind, size=2)), randn, state=False)


def test_layer_norm_and_noise(randn):
    made = machine(MANN, LRUA(2, 1, read_heads=1), Controller(size=3, layer_norm=True), interface=Interface(norm=True))
    check(made, randn, noise=Noise(cell=randn(2, 2, 3)))


def test_bounded_keys_of_another_size_and_a_scaled_strength(randn):
    programs = Programs(2, key_size=3, bounded_keys=True, strength_scale=0.5)
    check(machine(NUTM, LRUA(2, 1, read_heads=1), programs=programs), randn)


@pytest.mark.parametrize("memory", ["ntm", "lrua", "dnc-links"])
def test_ragged_batches(memory, randn):
    check(machine(MANN, MEMORIES[memory]), randn, steps=3, lengths=[3, 1])


def test_losses_on_the_keys(randn):
    keys = randn(3, 3).requires_grad_()
    assert gradcheck(key_similarity_loss, [keys])
    assert gradcheck(lambda keys: key_similarity_loss(keys, "mean"), [keys])
    assert gradcheck(orthogonality_loss, [keys])


@pytest.mark.parametrize("memory", MEMORIES)
def test_gumbel_takes_the_straight_through_gradient(memory, randn):
    """The gradient is that of the machine whose program weights are soft, moved to the hard choice by a constant."""
    programs = Programs(3, key_size=2, attention="gumbel", temperature=0.7)
    made = machine(NUTM, MEMORIES[memory], programs=programs)
    x, state = randn(3, 2, 1), state_of(made, randn, 2)
    noise = made.draw_noise(3, 2, generator=torch.Generator().manual_seed(0))
    cotangent = randn(3, 2, 1)

    def loss():
        return (made(x, state, noise=noise)[0] * cotangent).sum()

    exact = torch.autograd.grad(loss(), list(made.parameters()), materialize_grads=True)

    gaps = []

    def record(logits, noise, temperature):
        soft = torch.softmax((logits + noise) / temperature, dim=-1)
        hard = torch.zeros_like(soft).scatter(-1, (logits + noise).argmax(-1, keepdim=True), 1.0)
        gaps.append(hard - soft)
        return hard

    def replay(logits, noise, temperature):
        gaps.append(gaps.pop(0))
        return gaps[-1] + torch.softmax((logits + noise) / temperature, dim=-1)

    with torch.no_grad():
        before = loss()
        for network in made.interfaces:
            network.memory.attention = replace(network.memory.attention, weights=record)
        assert_close(loss(), before, rtol=0, atol=0)
        for network in made.interfaces:
            network.memory.attention = replace(network.memory.attention, weights=replay)
        assert_close(loss(), before, rtol=1e-12, atol=1e-12)
        size = 1e-6
        for parameter, gradient in zip(made.parameters(), exact, strict=True):
            direction = randn(*parameter.shape)
            parameter += size * direction
            above = loss()
            parameter -= 2 * size * direction
            below = loss()
            parameter += size * direction
            numeric = (above - below) / (2 * size)
            assert_close(numeric, (gradient * direction).sum(), rtol=1e-5, atol=1e-7)
    names = [name for name, _ in made.named_parameters()]
    assert all(gradient.any() for name, gradient in zip(names, exact, strict=True) if ".query." in name)
