"""A forward pass is a function: it leaves the machine and the global random numbers alone."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from nsm import MANN, NUTM, Controller, Programs, StoredProgramLinear

pytestmark = pytest.mark.usefixtures("backend")

EXACT = {"rtol": 0.0, "atol": 0.0}


def bytes_of(module):
    return {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}


def build(memory, attention="gumbel", seed=0):
    return NUTM(
        3,
        2,
        Programs(3, attention=attention),
        controller=Controller(size=5, layer_norm=True),
        memory=memory,
        backend="reference",
        generator=torch.Generator().manual_seed(seed),
    )


@pytest.fixture
def x():
    return torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_pass_leaves_parameters_and_buffers_alone(memory, training, x):
    made = build(memory).train(training)
    before = bytes_of(made)
    out, state, _ = made(x, lengths=[5, 1, 3, 2], trace="memory")
    made.step(x[0], state)
    out.sum().backward()
    assert bytes_of(made) == before


def test_a_pass_leaves_its_input_and_state_alone(memory, x):
    made = build(memory)
    _, start = made(x)
    kept = [leaf.clone() for leaf in (x, *tree_leaves(start))]
    made(x, start, lengths=[5, 1, 3, 2])
    assert_close([x, *tree_leaves(start)], kept, **EXACT)


def test_a_pass_leaves_the_global_random_numbers_alone(memory, x):
    made = build(memory)
    before = torch.get_rng_state()
    _, state = made(x)
    made.step(x[0], state)
    made.draw_noise(5, 4, generator=torch.Generator(), cell=0.3)
    made.initial_state(2, slots=50)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [MANN, NUTM], ids=lambda kind: kind.__name__)
def test_construction_from_a_generator_leaves_the_global_random_numbers_alone(memory, kind):
    before = torch.get_rng_state()
    kind(3, 2, memory=memory, generator=torch.Generator().manual_seed(0))
    StoredProgramLinear(3, 2, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_seed_gives_the_same_machine_whatever_was_drawn_before(memory):
    first = build(memory)
    torch.rand(3)
    assert bytes_of(build(memory)) == bytes_of(first)
    assert bytes_of(build(memory, seed=1)) != bytes_of(first)


@pytest.mark.parametrize("kind", [MANN, NUTM], ids=lambda kind: kind.__name__)
def test_without_a_generator_the_global_seed_decides(memory, kind):
    made = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(bytes_of(kind(3, 2, memory=memory)))
    assert made[0] == made[1] != made[2]


def test_every_weight_is_drawn(memory):
    for name, tensor in build(memory).state_dict().items():
        assert tensor.isfinite().all(), name


def test_writing_into_an_initial_state_leaves_the_machine_alone(memory):
    made = build(memory)
    before = bytes_of(made)
    with torch.no_grad():
        for batch in (1, 2):
            state = made.initial_state(batch)
            for leaf in (*state.memory, state.read):
                leaf.fill_(7.0)
    assert bytes_of(made) == before


def test_evaluation_is_repeatable_and_gumbel_training_is_restarted_by_a_seed(memory, x):
    made = build(memory).eval()
    assert_close(made(x), made(x), **EXACT)
    made.train()
    made.seed(1)
    first, second = made(x)[0], made(x)[0]
    assert not torch.equal(first, second)
    made.seed(1)
    assert_close(made(x)[0], first, **EXACT)
    made.seed(2)
    assert not torch.equal(made(x)[0], first)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))], ids=["deepcopy", "pickle"]
)
def test_a_copy_is_equal_and_apart(memory, copied, x):
    made = build(memory)
    made(x)
    twin = copied(made)
    assert bytes_of(twin) == bytes_of(made)
    # The copy's generator goes on from where the original's stands, and on its own.
    first = made(x)[0]
    assert_close(twin(x)[0], first, **EXACT)
    before = bytes_of(made)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert bytes_of(made) == before


def test_states_and_traces_can_be_pickled_and_copied(memory, x):
    out, state, trace = build(memory).eval()(x, trace=True)
    for original in (state, trace):
        detached = pickle.loads(pickle.dumps(original))
        assert type(detached) is type(original)
        assert_close(detached, original, **EXACT)
    assert out.requires_grad


@pytest.mark.parametrize("attention", ["key-value", "direct", "uniform"])
def test_only_gumbel_draws_noise(memory, attention, x):
    made = build(memory, attention)
    assert_close(made.train()(x), made.eval()(x), **EXACT)
    assert made.draw_noise(5, 4, generator=torch.Generator()).programs is None
