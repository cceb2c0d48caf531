import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nsm import LRUA
from nsm.memories import LRUAState
from nsm.memories.lrua import least_used
from oracles import lrua as oracle

BATCH = 3
CLOSED, OPEN = -60.0, 60.0


@pytest.mark.parametrize("strength", [1.0, 10.0])
@pytest.mark.parametrize("least", [None, 1, 3])
@pytest.mark.parametrize("order", ["write-first", "read-first"])
@pytest.mark.parametrize(("reads", "writes"), [(1, 1), (4, 1), (2, 3)])
def test_steps_follow_the_equations(reads, writes, order, least, strength, randn):
    config = LRUA(
        6, 3, read_heads=reads, write_heads=writes, order=order, least_used=least, decay=0.9, strength=strength
    )
    memory = config.build().double()
    state = LRUAState(randn(BATCH, 6, 3), randn(BATCH, 6).exp(), torch.softmax(randn(BATCH, reads, 6), dim=-1))
    expected = [{field: getattr(state, field)[b].numpy() for field in LRUAState._fields} for b in range(BATCH)]
    for _ in range(5):
        keys = [2 * randn(BATCH, 3) for _ in range(reads)]
        added = [2 * randn(BATCH, 4) for _ in range(writes)]
        read, state, visited = memory([*keys, *added], state)
        for b in range(BATCH):
            reads_b, writes_b, expected[b] = oracle.step(
                [key[b].numpy() for key in keys],
                [raw[b].numpy() for raw in added],
                expected[b],
                decay=0.9,
                order=order,
                least_used=least,
                strength=strength,
            )
            np.testing.assert_allclose(read[b].numpy(), np.concatenate(reads_b), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(visited.write[b].numpy(), np.array(writes_b), rtol=1e-10, atol=1e-12)
            for field in LRUAState._fields:
                found = getattr(state, field)[b].numpy()
                np.testing.assert_allclose(found, np.array(expected[b][field]), rtol=1e-10, atol=1e-12)
        assert torch.equal(visited.read, state.read_addresses)


def test_defaults_are_those_of_the_few_shot_experiments():
    config = LRUA()
    memory = config.build()
    assert (config.slots, config.width, config.read_heads, config.write_heads) == (128, 40, 4, 1)
    assert (config.decay, config.order, config.strength) == (0.99, "write-first", 1.0)
    assert [head.size for head in memory.heads] == [40, 40, 40, 40, 41]
    assert memory.read_size == 160


# --- answers one can say in words -------------------------------------------------------------------------------------


def write_raw(content, gate):
    return torch.tensor([[*content, gate]], dtype=torch.float64)


@pytest.mark.parametrize("order", ["write-first", "read-first"])
@pytest.mark.parametrize("slots", [3, 5, 16, 19, 128])
def test_fills_the_tape_in_order_when_nothing_has_been_used(slots, order):
    """All blank slots tie, and stay tied while only written ones are told apart: the lowest comes next."""
    memory = LRUA(slots, 2, read_heads=1, order=order).build().double()
    state = memory.initial_state(1)
    for t in range(slots):
        _, state, visited = memory([torch.tensor([[1.0, 1.0]]).double(), write_raw([t + 1.0, 1.0], CLOSED)], state)
        assert visited.write[0, 0].argmax().item() == t
    assert_close(state.memory[0, :, 0], torch.arange(1.0, slots + 1).double(), rtol=0, atol=1e-9)


def test_float32_fills_the_tape_in_order_too():
    memory = LRUA(128, 40).build()
    state = memory.initial_state(2)
    generator = torch.Generator().manual_seed(0)
    keys = [torch.randn(2, 40, generator=generator) for _ in range(4)]
    written = []
    for _ in range(20):
        raw = torch.randn(2, 41, generator=generator)
        raw[:, -1] = CLOSED
        _, state, visited = memory([*keys, raw], state)
        written.append(visited.write[:, 0].round().nonzero()[:, 1].view(2, -1).tolist())
    # Four slots count as least used, all four take the write: each step goes on to the next four.
    assert written[0] == [[0, 1, 2, 3]] * 2
    assert written[1] == [[4, 5, 6, 7]] * 2
    assert written[19] == [[76, 77, 78, 79]] * 2


def test_an_open_gate_writes_where_it_has_just_read():
    memory = LRUA(4, 2, read_heads=2).build().double()
    last = torch.tensor([[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]).double()
    usage = torch.tensor([[0.0, 3.0, 3.0, 3.0]]).double()
    start = LRUAState(torch.ones(1, 4, 2).double(), usage, last)
    _, state, visited = memory([torch.ones(1, 2).double()] * 2 + [write_raw([4.0, 0.0], OPEN)], start)
    assert_close(visited.write[0, 0], torch.tensor([0.0, 0.5, 0.0, 0.5]).double())
    # The least used slot is wiped all the same.
    assert_close(state.memory[0], torch.tensor([[0.0, 0.0], [3.0, 1.0], [1.0, 1.0], [3.0, 1.0]]).double())


def test_a_shut_gate_replaces_the_least_used_row():
    memory = LRUA(4, 2, read_heads=1).build().double()
    usage = torch.tensor([[2.0, 5.0, 0.5, 1.0]]).double()
    start = LRUAState(torch.full((1, 4, 2), 8.0).double(), usage, torch.eye(4)[None, :1].double())
    _, state, _ = memory([torch.ones(1, 2).double(), write_raw([1.0, 2.0], CLOSED)], start)
    assert_close(state.memory[0, 2], torch.tensor([1.0, 2.0]).double())
    assert torch.equal(state.memory[0, [0, 1, 3]], torch.full((3, 2), 8.0).double())


def test_as_many_slots_are_least_used_as_there_are_read_heads_and_only_the_first_is_wiped():
    memory = LRUA(4, 2, read_heads=2).build().double()
    usage = torch.tensor([[2.0, 0.3, 0.5, 1.0]]).double()
    start = LRUAState(torch.full((1, 4, 2), 8.0).double(), usage, torch.zeros(1, 2, 4).double())
    _, state, visited = memory([torch.ones(1, 2).double()] * 2 + [write_raw([1.0, 2.0], CLOSED)], start)
    assert_close(visited.write[0, 0], torch.tensor([0.0, 1.0, 1.0, 0.0]).double())
    assert_close(state.memory[0, 1:3], torch.tensor([[1.0, 2.0], [9.0, 10.0]]).double())


def test_equals_are_taken_by_position():
    usage = torch.tensor([[1.0, 0.0, 2.0, 0.0, 0.0]])
    chosen = least_used(usage, 2)
    assert chosen.argmax(-1).tolist() == [[1, 3]]
    assert least_used(torch.zeros(2, 100), 3).argmax(-1).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("used", [0.0, 0.7, 50.0])
def test_rounding_does_not_decide_between_slots_that_are_used_alike(used, randn):
    usage = used + 1e-7 * torch.tanh(randn(20, 40))
    assert least_used(usage, 3).argmax(-1).tolist() == [[0, 1, 2]] * 20
    usage[:, 30] -= 0.001
    assert least_used(usage, 3).argmax(-1).tolist() == [[30, 0, 1]] * 20


def test_usage_decays_and_grows_where_it_reads_and_writes():
    memory = LRUA(3, 2, read_heads=1, decay=0.5).build().double()
    start = LRUAState(
        torch.zeros(1, 3, 2).double(), torch.tensor([[4.0, 0.0, 2.0]]).double(), torch.zeros(1, 1, 3).double()
    )
    _, state, visited = memory([torch.zeros(1, 2).double(), write_raw([1.0, 0.0], CLOSED)], start)
    # A zero key matches all alike; the write goes to slot 1.
    third = 1 / 3
    assert_close(state.usage, torch.tensor([[2 + third, 1 + third, 1 + third]]).double())
    assert_close(visited.read, torch.full((1, 1, 3), third).double())


def test_a_step_forgets_one_percent_of_usage_by_default():
    memory = LRUA(4, 2, read_heads=1).build().double()
    start = memory.initial_state(1)._replace(usage=torch.tensor([[100.0, 0.0, 0.0, 0.0]]).double())
    _, state, visited = memory([torch.ones(1, 2).double(), write_raw([1.0, 0.0], CLOSED)], start)
    assert state.usage[0, 0].item() == pytest.approx(99 + visited.read[0, 0, 0].item())


@pytest.mark.parametrize(("order", "seen"), [("write-first", [4.0, 4.0]), ("read-first", [8.0, 8.0])])
def test_whether_a_read_sees_this_steps_write_is_a_matter_of_order(order, seen):
    memory = LRUA(1, 2, read_heads=1, order=order).build().double()
    start = LRUAState(torch.full((1, 1, 2), 8.0).double(), torch.zeros(1, 1).double(), torch.zeros(1, 1, 1).double())
    read, _, _ = memory([torch.ones(1, 2).double(), write_raw([4.0, 4.0], CLOSED)], start)
    assert_close(read, torch.tensor([seen]).double())


def test_a_tape_with_fewer_slots_than_count_as_least_used():
    memory = LRUA(2, 3, read_heads=4).build().double()
    read, state, visited = memory(
        [torch.ones(1, 3).double()] * 4 + [write_raw([1.0, 2.0, 3.0], CLOSED)], memory.initial_state(1)
    )
    assert_close(visited.write, torch.ones(1, 1, 2).double())
    assert read.shape == (1, 12)
    assert state.memory.isfinite().all()
