"""The forms a sequence may come in, as for `nn.LSTM`: a batch, one sequence alone, or packed; and states to hand on."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from nsm import DNC, LRUA, NTM, NUTM, Controller, Noise

MEMORIES = {"ntm": NTM(8, 4), "lrua": LRUA(8, 4), "dnc": DNC(8, 4, links=True)}
pytestmark = pytest.mark.parametrize("backend", ["reference", "fused"])


def make(backend, memory="ntm", **options):
    generator = torch.Generator().manual_seed(0)
    options = {"controller": Controller(size=6), **options}
    return NUTM(3, 2, 2, memory=MEMORIES[memory], backend=backend, generator=generator, **options)


@pytest.fixture
def x():
    return torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_alone(memory, batch_first, backend, x):
    """(T, I) whatever `batch_first` says, as in `nn.LSTM`."""
    machine = make(backend, memory, batch_first=batch_first)
    out, state, trace = machine(x[:, 1], trace="memory")
    whole = x[:, 1:2].transpose(0, 1) if batch_first else x[:, 1:2]
    expected, end, happened = machine(whole, trace="memory")
    assert_close(out, expected.squeeze(0 if batch_first else 1), rtol=0, atol=0)
    for ours, theirs in zip(tree_leaves(state), tree_leaves(end), strict=True):
        assert_close(ours, theirs.squeeze(0), rtol=0, atol=0)
    for ours, theirs in zip(tree_leaves(trace), tree_leaves(happened), strict=True):
        if ours is None or theirs is None:  # no state or output programs
            assert ours is theirs
        else:
            assert_close(ours, theirs.squeeze(1), rtol=0, atol=0)
    again, _ = machine(x[:, 2], state)
    assert again.shape == (5, 2)
    assert_close(machine(x[:, 1], machine.initial_state())[0], out, rtol=0, atol=0)


def test_one_sequence_alone_in_steps(backend, x):
    machine = make(backend)
    noise = machine.draw_noise(5, generator=torch.Generator(), cell=0.1)
    assert noise.cell.shape == (5, 6)
    out, _ = machine(x[:, 0], noise=noise)
    state, found = machine.initial_state(), []
    for t in range(5):
        y, state = machine.step(x[t, 0], state, noise.at(t))
        found.append(y)
    assert_close(torch.stack(found), out, rtol=1e-5, atol=1e-6)


def test_a_state_of_a_batch_is_none_of_one_sequence(backend, x):
    machine = make(backend)
    with pytest.raises(ValueError, match=r"state.controller.hidden must have shape \(6,\) here, had \(3, 6\)"):
        machine(x[:, 0], machine.initial_state(3))
    with pytest.raises(ValueError, match=r"state.controller.hidden must have shape \(3, 6\) here, had \(6,\)"):
        machine(x, machine.initial_state())


@pytest.mark.parametrize("lengths", [[5, 3, 2], [2, 5, 3], [4, 4, 4]])
def test_a_packed_batch_is_a_ragged_one(lengths, backend, x):
    machine = make(backend)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    out, state = machine(packed)
    expected, end = machine(x, lengths=lengths)
    assert isinstance(out, PackedSequence)
    padded, found = pad_packed_sequence(out)
    assert found.tolist() == lengths
    assert_close(padded, expected[: max(lengths)], rtol=0, atol=0)
    for ours, theirs in zip(tree_leaves(state), tree_leaves(end), strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)
    again, _, _ = machine(packed, state, trace=True)
    assert_close(pad_packed_sequence(again)[0], machine(x, end, lengths)[0][: max(lengths)], rtol=0, atol=0)


def test_a_packed_batch_goes_through_an_lstm_and_a_machine(backend, x):
    lstm, machine = nn.LSTM(3, 3), make(backend)
    packed = pack_sequence([x[:5, 0], x[:2, 1]])
    out, _ = machine(lstm(packed)[0])
    out.data.sum().backward()
    assert lstm.weight_ih_l0.grad.abs().sum() > 0
    with pytest.raises(ValueError, match=r"x must have shape \(T, B, 3\), was \(5, 1, 4\)"):
        machine(pack_sequence([torch.zeros(5, 4)]))


def test_states_are_detached_cloned_and_converted(backend, x):
    machine = make(backend)
    _, state = machine(x)
    assert any(leaf.requires_grad for leaf in tree_leaves(state))
    loose = state.detach()
    assert type(loose) is type(state)
    assert type(loose.memory) is type(state.memory)
    assert not any(leaf.requires_grad for leaf in tree_leaves(loose))
    assert loose.read.data_ptr() == state.read.data_ptr()
    copied = state.clone()
    assert copied.read.requires_grad
    assert copied.read.data_ptr() != state.read.data_ptr()
    assert {leaf.dtype for leaf in tree_leaves(state.to(torch.float64))} == {torch.float64}
    assert {leaf.device.type for leaf in tree_leaves(state.to("meta"))} == {"meta"}


@pytest.mark.parametrize("memory", MEMORIES)
def test_steps_without_gradients_equal_a_pass(memory, backend, x):
    machine = make(backend, memory).eval()
    with torch.no_grad():
        out, end = machine(x)
        state = machine.initial_state(3)
        for t in range(5):
            y, state = machine.step(x[t], state)
            assert_close(y, out[t], rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(tree_leaves(state), tree_leaves(end), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_noise_of_one_sequence_alone_has_no_batch(backend, x):
    machine = make(backend)
    with pytest.raises(ValueError, match=r"noise.cell must have shape \(5, 6\), was \(5, 1, 6\)"):
        machine(x[:, 0], noise=Noise(cell=torch.zeros(5, 1, 6)))
