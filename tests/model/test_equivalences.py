"""Different ways to the same numbers."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, MachineState, Noise, Programs
from nsm.attention import ATTENTION

pytestmark = pytest.mark.usefixtures("backend")

STEPS, BATCH = 6, 4
EXACT = {"rtol": 0.0, "atol": 0.0}
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}


def sample(tree, b):
    """One sample of a state, its batch dimension kept."""
    return tree_map(lambda leaf: leaf[b : b + 1], tree)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTION)
def test_one_program_is_the_plain_network(memory, attention, randn):
    options = {
        "controller": Controller(size=5),
        "memory": memory,
        "interface": Interface(gain=3, fan="head", norm=True),
    }
    plain = MANN(3, 2, **options).double()
    stored = NUTM(3, 2, Programs(1, attention=attention), **options).double()
    shared = {name: value for name, value in plain.state_dict().items() if not name.startswith("interfaces")}
    left_out = stored.load_state_dict(shared, strict=False)
    assert all(name.startswith("interfaces") for name in left_out.missing_keys)
    with torch.no_grad():
        for program, linear in zip(stored.interfaces, plain.interfaces, strict=True):
            program.memory.weight[0].copy_(linear.weight.T)
            program.memory.bias[0].copy_(linear.bias)
    x = randn(STEPS, BATCH, 3)
    assert_close(stored(x), plain(x), **ROUNDING)


def test_equal_programs_are_one_program(memory, randn):
    single = NUTM(3, 2, 1, controller=Controller(size=5), memory=memory).double()
    stored = NUTM(3, 2, 3, controller=Controller(size=5), memory=memory).double()
    shared = {name: value for name, value in single.state_dict().items() if not name.startswith("interfaces")}
    stored.load_state_dict(shared, strict=False)
    with torch.no_grad():
        for many, one in zip(stored.interfaces, single.interfaces, strict=True):
            many.memory.weight.copy_(one.memory.weight.expand_as(many.memory.weight))
            many.memory.bias.copy_(one.memory.bias.expand_as(many.memory.bias))
    x = randn(STEPS, BATCH, 3)
    assert_close(stored(x), single(x), **ROUNDING)


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_loop_of_steps_is_a_forward_pass(machine, randn):
    x = randn(STEPS, BATCH, 3)
    state, outputs = machine.initial_state(BATCH), []
    for t in range(STEPS):
        out, state = machine.step(x[t], state)
        outputs.append(out)
    assert_close((torch.stack(outputs), state), machine(x), **EXACT)


def test_a_state_handed_on_makes_one_long_sequence(machine, randn):
    x = randn(STEPS, BATCH, 3)
    whole, end = machine(x)
    first, between = machine(x[:2])
    second, state = machine(x[2:], between)
    assert_close((torch.cat([first, second]), state), (whole, end), **EXACT)


def test_an_initial_state_handed_in_is_the_one_taken_by_default(machine, randn):
    x = randn(STEPS, BATCH, 3)
    assert_close(machine(x, machine.initial_state(BATCH)), machine(x), **EXACT)


@pytest.mark.parametrize("attention", ["key-value", "gumbel", "gumbel-probabilities"])
def test_noise_handed_in_gives_the_same_in_steps_and_in_one_pass(memory, attention, randn):
    made = NUTM(3, 2, Programs(3, attention=attention), controller=Controller(size=5), memory=memory).double()
    x = randn(STEPS, BATCH, 3)
    noise = made.draw_noise(STEPS, BATCH, generator=torch.Generator().manual_seed(3), cell=0.3)
    assert noise.cell.shape == (STEPS, BATCH, 5)
    assert (noise.programs is not None) == attention.startswith("gumbel")
    state, outputs = made.initial_state(BATCH), []
    for t in range(STEPS):
        out, state = made.step(x[t], state, noise.at(t))
        outputs.append(out)
    whole = made(x, noise=noise)
    assert_close((torch.stack(outputs), state), whole, **EXACT)
    assert not torch.equal(whole[0], made.eval()(x)[0])


def test_a_step_in_training_draws_gumbel_noise_of_its_own(randn):
    made = NUTM(3, 2, Programs(3, attention="gumbel"), memory=NTM(5, 3)).double()
    x, state = randn(BATCH, 3), made.initial_state(BATCH)
    made.seed(5)
    drawn, _ = made.step(x, state)
    noise = made.draw_noise(BATCH, generator=torch.Generator().manual_seed(5))
    assert_close(made.step(x, state, noise)[0], drawn, **EXACT)


# --- batch ------------------------------------------------------------------------------------------------------------


def test_batch_first_is_the_transpose(memory, randn):
    options = {"controller": Controller(size=5), "memory": memory}
    time_first = NUTM(3, 2, **options).double()
    batch_first = NUTM(3, 2, batch_first=True, **options).double()
    batch_first.load_state_dict(time_first.state_dict())
    x = randn(STEPS, BATCH, 3)
    lengths = [6, 2, 5, 6]
    out, state, trace = time_first(x, lengths=lengths, trace=True)
    transposed, same_state, same_trace = batch_first(x.transpose(0, 1), lengths=lengths, trace=True)
    assert transposed.shape == (BATCH, STEPS, 2)
    assert_close((transposed.transpose(0, 1), same_state, same_trace), (out, state, trace), **EXACT)


def test_a_batch_is_its_samples(machine, randn):
    x = randn(STEPS, BATCH, 3)
    out, state = machine(x)
    for b in range(BATCH):
        single, end = machine(x[:, b : b + 1])
        assert_close((out[:, b : b + 1], sample(state, b)), (single, end), **ROUNDING)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["list", "tensor"])
@pytest.mark.parametrize("lengths", [[6, 1, 3, 5], [2, 4, 4, 1]], ids=["some-full", "none-full"])
def test_a_ragged_batch_is_its_singles(machine, lengths, as_tensor, randn):
    """Outputs, final states and gradients of parameters, input and initial state; what pads the input is no matter."""
    x = (100 * randn(STEPS, BATCH, 3)).requires_grad_()
    start = tree_map(lambda leaf: leaf.detach().clone().requires_grad_(), machine(randn(2, BATCH, 3))[1])
    with torch.no_grad():
        for b, length in enumerate(lengths):
            x[:length, b] /= 100
    inputs = [*machine.parameters(), x, *tree_leaves(start)]

    out, state = machine(x, start, lengths=torch.tensor(lengths) if as_tensor else lengths)
    cotangents = [randn(*leaf.shape) for leaf in (out, *tree_leaves(state))]
    whole = torch.autograd.grad((out, *tree_leaves(state)), inputs, cotangents, allow_unused=True)

    total = [torch.zeros_like(leaf) for leaf in inputs]
    for b, length in enumerate(lengths):
        single, end = machine(x[:length, b : b + 1], sample(start, b))
        assert_close(out[:length, b : b + 1], single, **ROUNDING)
        assert not out[length:, b].any()
        assert_close(sample(state, b), end, **ROUNDING)
        ours = [cotangents[0][:length, b : b + 1], *(leaf[b : b + 1] for leaf in cotangents[1:])]
        for sum_, gradient in zip(
            total, torch.autograd.grad((single, *tree_leaves(end)), inputs, ours, allow_unused=True), strict=True
        ):
            sum_ += 0 if gradient is None else gradient
    for found, expected in zip(whole, total, strict=True):
        assert_close(torch.zeros_like(expected) if found is None else found, expected, rtol=1e-9, atol=1e-10)


def test_full_lengths_are_no_lengths(machine, randn):
    x = randn(STEPS, BATCH, 3)
    assert_close(machine(x, lengths=[STEPS] * BATCH), machine(x), **EXACT)


def test_ragged_noise_is_each_samples_own(randn):
    made = NUTM(3, 2, Programs(3, attention="gumbel"), controller=Controller(size=5), memory=DNC(5, 3)).double()
    x = randn(STEPS, 2, 3)
    noise = made.draw_noise(STEPS, 2, generator=torch.Generator().manual_seed(3), cell=0.3)
    out, _ = made(x, lengths=[6, 3], noise=noise)
    single, _ = made(x[:3, 1:], noise=Noise(noise.cell[:3, 1:], noise.programs[:3, 1:]))
    assert_close(out[:3, 1:], single, **ROUNDING)


# --- memory that outlives an episode ----------------------------------------------------------------------------------


def episodes(kind, randn):
    made = NUTM(3, 2, controller=Controller(kind, size=5), memory=LRUA(6, 3), interface=Interface(fan="head")).double()
    first, second = randn(STEPS, BATCH, 3), randn(STEPS, BATCH, 3)
    _, end = made(first)
    return made, first, second, end


def test_persistent_memory_with_a_fresh_controller(randn):
    made, _, second, end = episodes("lstm", randn)
    fresh = made.initial_state(BATCH)
    persistent = fresh._replace(memory=end.memory)
    out, state = made(second, persistent)
    by_hand, stepped = [], MachineState(made.controller.initial_state(BATCH), end.memory, fresh.read)
    for x in second:
        y, stepped = made.step(x, stepped)
        by_hand.append(y)
    assert_close((out, state), (torch.stack(by_hand), stepped), **EXACT)
    wiped, _ = made(second)
    assert (out - wiped).abs().max() > 1e-3


def test_persistent_memory_under_a_controller_without_state_is_one_long_sequence(randn):
    made, first, second, end = episodes("feed-forward", randn)
    whole, last = made(torch.cat([first, second]))
    out, state = made(second, made.initial_state(BATCH)._replace(memory=end.memory, read=end.read))
    assert_close((out, state), (whole[STEPS:], last), **EXACT)
