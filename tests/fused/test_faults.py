"""One number that is none: wherever the reference then has no answer, the kernels have none either.

A weight that a diverged run left, a state that a damaged file held: what comes of it is to be seen, not to pass for an
answer. Comparisons, maxima, clamps and logarithms by bits are where a NaN gets lost, and padding is where it spreads.
"""

import math

import numpy as np
import pytest
import torch

import nsm
from fused.compare import TOLERANCE, Case
from fused.test_equality import ATTENTION, MEMORIES, build
from nsm.pytree import tree_leaves

VALUES = (math.nan, math.inf, -math.inf, 1e38)


def small(memory, attention, controller, norm=False):
    programs = None if attention is None else nsm.Programs(3, attention=attention, temperature=0.2)
    return build(MEMORIES[memory], programs, controller, size=9, norm=norm)


def case_of(machine, seed):
    cell = 0.3 if machine.config.controller.kind == "lstm" else 0.0
    return Case(machine, 4, 3, lengths=[4, 2, 3], cell_noise=cell, seed=seed)


def outcome(case, backend, grad=False):
    """Outputs and final state of every sample, one row each."""
    machine = case.machine
    machine.backend = backend
    with torch.set_grad_enabled(grad):
        out, final = machine(case.x, case.state, lengths=case.lengths, noise=case.noise)
    tensors = [out.transpose(0, 1), *tree_leaves(final)]
    return [tensor.detach().flatten(1).numpy().copy() for tensor in tensors]


def places(case):
    """Every tensor a number of which may be at fault, and the axis of samples if it has one."""
    found = [(parameter.data, None) for parameter in case.machine.parameters()]
    found += [(leaf, 0) for leaf in tree_leaves(case.state)] + [(case.x, 1)]
    found += [(noise, 1) for noise in case.noise if noise is not None]
    return [(tensor, axis) for tensor, axis in found if tensor.numel()]


def check(case, tensor, axis, index, value):
    """Put a value there, run all that runs, and put back what was there."""
    clean = [outcome(case, "fused", grad) for grad in (False, True)]
    before = tensor[index].clone()
    tensor[index] = value
    try:
        expected = outcome(case, "reference")
        ours = [outcome(case, "fused", grad) for grad in (False, True)]
    finally:
        tensor[index] = before
    hit = np.full(len(expected[0]), True)
    if axis is not None:
        hit[:] = np.arange(len(hit)) == index[axis]
    for found, undisturbed in zip(ours, clean, strict=True):
        for n, (got, right, untouched) in enumerate(zip(found, expected, undisturbed, strict=True)):
            # The others of a batch have nothing to do with it, to the last bit.
            assert got[~hit].tobytes() == untouched[~hit].tobytes(), f"other samples, tensor {n}"
            none, lost = ~np.isfinite(right), ~np.isfinite(got)
            assert not (none & ~lost).any(), f"a number where the reference has none, tensor {n}"
            if math.isnan(value):  # while infinity saturates gates in the reference, and is NaN times padding here
                assert not (lost & ~none).any(), f"none where the reference has a number, tensor {n}"
                scale = np.abs(right[~none]).max(initial=0)
                assert (np.abs(got - right)[~none] <= 10 * TOLERANCE * scale).all(), f"another number, tensor {n}"


def try_faults(case, rng, count):
    """Some places and values, drawn by chance; each kind of value in turn."""
    found = places(case)
    for i in range(count):
        tensor, axis = found[rng.integers(len(found))]
        index = tuple(int(rng.integers(size)) for size in tensor.shape)
        check(case, tensor, axis, index, VALUES[i % len(VALUES)])


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("attention", [None, *ATTENTION])
@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
def test_no_fault_passes_for_an_answer(memory, attention, controller):
    case = case_of(small(memory, attention, controller), seed=0)
    try_faults(case, np.random.default_rng(0), 8)


@pytest.mark.parametrize("memory", MEMORIES)
def test_none_passes_through_layer_norms(memory):
    case = case_of(small(memory, "key-value", "lstm", norm=True), seed=0)
    try_faults(case, np.random.default_rng(0), 24)


@pytest.mark.parametrize("memory", [name for name in MEMORIES if not name.startswith("ntm")])
def test_usage_that_is_not_a_number_comes_last(memory):
    """As in the reference, wherever it stands: in LRUA nothing else depends on it."""
    case = case_of(small(memory, None, "lstm"), seed=0)
    usage = case.state.memory.usage
    for slot in range(usage.shape[1]):
        check(case, usage, 0, (0, slot), math.nan)


@pytest.mark.parametrize("value", VALUES)
def test_zeros_of_inputs_hide_no_weight(value):
    """The kernels pass over zeros where nearly all are; a weight that is none comes through all the same."""
    case = Case(build(MEMORIES["ntm"], None, "rnn", inputs=40), 4, 3)
    case.x = torch.nn.functional.one_hot(case.x.argmax(-1), 40).float()
    weight = case.machine.controller.weight_ih.data
    for column in range(0, 40, 3):
        check(case, weight, None, (1, column), value)
