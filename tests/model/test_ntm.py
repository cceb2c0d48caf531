import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nsm import NTM
from nsm.memories import NTMState
from nsm.memories.ntm import sharpen, shift
from oracles import ntm as oracle

BATCH = 3
CLOSED, OPEN = -60.0, 60.0
"""Raw gates: σ(−60) is below rounding, σ(60) is 1."""

HEADS = {
    (1, 1, "read-first"): "r0 w0",
    (1, 1, "write-first"): "w0 r0",
    (2, 2, "read-first"): "r0 w0 r1 w1",
    (2, 2, "write-first"): "w0 r0 w1 r1",
    (3, 1, "read-first"): "r0 w0 r1 r2",
    (1, 3, "write-first"): "w0 r0 w1 w2",
    (1, 2, "read-first"): "r0 w0 w1",
    (2, 1, "write-first"): "w0 r0 r1",
}
"""The heads of a machine in the order they act: pair by pair, then what is left over."""


def addresses(randn, *shape):
    return torch.softmax(2 * randn(*shape), dim=-1)


def random_state(randn, config):
    return NTMState(
        randn(BATCH, config.slots, config.width),
        addresses(randn, BATCH, config.read_heads, config.slots),
        addresses(randn, BATCH, config.write_heads, config.slots),
    )


@pytest.mark.parametrize(("slots", "shift_range"), [(5, 0), (5, 1), (6, 2), (2, 1), (3, 3), (1, 1)])
@pytest.mark.parametrize(("reads", "writes", "order"), HEADS)
def test_steps_follow_the_equations(reads, writes, order, slots, shift_range, randn):
    config = NTM(slots, 3, read_heads=reads, write_heads=writes, shift_range=shift_range, order=order)
    memory = config.build().double()
    kinds = [{"r": "read", "w": "write"}[name[0]] for name in HEADS[reads, writes, order].split()]
    state = random_state(randn, config)
    expected = [
        {
            "memory": state.memory[b].numpy(),
            "read_addresses": state.read_addresses[b].numpy(),
            "write_addresses": state.write_addresses[b].numpy(),
        }
        for b in range(BATCH)
    ]
    for _ in range(4):
        interfaces = [2 * randn(BATCH, 3 + 1 + 1 + (2 * shift_range + 1) + 1 + 6 * (kind == "write")) for kind in kinds]
        read, state, visited = memory(interfaces, state)
        for b in range(BATCH):
            raws = [(kind, raw[b].numpy()) for kind, raw in zip(kinds, interfaces, strict=True)]
            reads_b, expected[b] = oracle.step(raws, expected[b])
            np.testing.assert_allclose(read[b].numpy(), np.concatenate(reads_b), rtol=1e-9, atol=1e-11)
            for field in NTMState._fields:
                found = getattr(state, field)[b].numpy()
                np.testing.assert_allclose(found, np.array(expected[b][field]), rtol=1e-9, atol=1e-11)
        assert torch.equal(visited.read, state.read_addresses)
        assert torch.equal(visited.write, state.write_addresses)


@pytest.mark.parametrize(("reads", "writes", "order"), HEADS)
def test_heads_act_pair_by_pair(reads, writes, order):
    memory = NTM(5, 20, read_heads=reads, write_heads=writes, order=order).build()
    expected = HEADS[reads, writes, order].replace("r", "read").replace("w", "write").split()
    assert [head.name for head in memory.heads] == expected
    assert {head.kind: head.size for head in memory.heads} == {"read": 26, "write": 66}
    assert memory.read_size == 20 * reads


# --- answers one can say in words -------------------------------------------------------------------------------------


def interface(key=(1.0, 0.0, 0.0, 0.0), strength=0.0, gate=CLOSED, move=0, gamma=CLOSED, erase=None, add=None):
    """A raw head on a tape of width 4: by default it stays where it was; γ = 1."""
    shifts = [OPEN if offset == move else -OPEN for offset in (-1, 0, 1)]
    raw = [*key, strength, gate, *shifts, gamma]
    if add is not None:
        raw += [OPEN if e else CLOSED for e in erase] + list(add)
    return torch.tensor([raw], dtype=torch.float64)


def at(slot, slots=4):
    return torch.eye(slots, dtype=torch.float64)[slot].view(1, 1, slots)


def tape():
    """Four slots; slot i holds i + 1 at place i."""
    return torch.diag(torch.arange(1.0, 5.0, dtype=torch.float64)).unsqueeze(0)


def step(state, *, order="read-first", reading=None, writing=None):
    """One step of a head pair."""
    memory = NTM(4, 4, order=order).build().double()
    reading = interface() if reading is None else reading
    writing = interface(erase=[0] * 4, add=[0.0] * 4) if writing is None else writing
    heads = [reading, writing] if order == "read-first" else [writing, reading]
    return memory(heads, state)


def nearly(found, expected, atol=1e-12):
    assert_close(found, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


def test_a_strong_key_reads_the_third_row():
    looking = interface(key=(0.0, 0.0, 1.0, 0.0), strength=100.0, gate=OPEN)
    read, state, _ = step(NTMState(tape(), at(0), at(0)), reading=looking)
    nearly(state.read_addresses, at(2))
    nearly(read, [[0.0, 0.0, 3.0, 0.0]])


def test_a_shut_gate_stays_where_it_was_whatever_the_key():
    looking = interface(key=(0.0, 0.0, 1.0, 0.0), strength=100.0, gate=CLOSED)
    _, state, _ = step(NTMState(tape(), at(1), at(0)), reading=looking)
    nearly(state.read_addresses, at(1))


@pytest.mark.parametrize(
    ("start", "move", "end"), [(1, 1, 2), (1, -1, 0), (3, 1, 0), (0, -1, 3), (2, 0, 2)], ids=lambda value: str(value)
)
def test_shifts_by_one_and_around_the_end(start, move, end):
    _, state, _ = step(NTMState(tape(), at(start), at(start)), reading=interface(move=move))
    nearly(state.read_addresses, at(end))


def test_a_wider_range_shifts_by_two():
    moved = shift(at(0, 6)[0], torch.eye(5, dtype=torch.float64)[4:5])
    nearly(moved, at(2, 6)[0])


def test_a_split_shift_splits_the_address():
    moved = shift(at(1)[0], torch.tensor([[0.25, 0.0, 0.75]], dtype=torch.float64))
    nearly(moved, [[0.25, 0.0, 0.75, 0.0]])


def test_sharpening_raises_to_a_power_and_renormalises():
    blurred = torch.tensor([[0.2, 0.6, 0.2]], dtype=torch.float64)
    nearly(sharpen(blurred, torch.tensor([[1.0]]).double()), blurred)
    nearly(sharpen(blurred, torch.tensor([[2.0]]).double()), [[4 / 44, 36 / 44, 4 / 44]])
    nearly(sharpen(blurred, torch.tensor([[50.0]]).double()), [[0.0, 1.0, 0.0]])


def test_shifts_by_one_and_sharpens():
    soft = torch.tensor([[[0.1, 0.8, 0.1, 0.0]]], dtype=torch.float64)
    _, state, _ = step(NTMState(tape(), soft, soft), reading=interface(move=1, gamma=49.0))
    nearly(state.read_addresses, at(2))


def test_writing_erases_and_adds_in_its_row_and_nowhere_else():
    writing = interface(erase=[1, 1, 0, 0], add=[0.0, 5.0, 0.5, 0.0])
    _, state, _ = step(NTMState(tape(), at(0), at(2)), writing=writing)
    expected = tape()
    expected[0, 2] = torch.tensor([0.0, 5.0, 3.5, 0.0])
    nearly(state.memory, expected)


def test_half_an_address_erases_half():
    half = torch.tensor([[[0.5, 0.5, 0.0, 0.0]]], dtype=torch.float64)
    writing = interface(erase=[1, 1, 1, 1], add=[0.0, 0.0, 0.0, 2.0])
    _, state, _ = step(NTMState(tape(), at(0), half), writing=writing)
    nearly(state.memory[0, :2], [[0.5, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]])


@pytest.mark.parametrize(("order", "seen"), [("read-first", 2.0), ("write-first", 9.0)])
def test_whether_a_read_sees_this_steps_write_is_a_matter_of_order(order, seen):
    writing = interface(erase=[1] * 4, add=[0.0, 9.0, 0.0, 0.0])
    read, _, _ = step(NTMState(tape(), at(1), at(1)), order=order, writing=writing)
    nearly(read, [[0.0, seen, 0.0, 0.0]])


def test_the_second_read_head_sees_what_the_first_write_head_wrote_but_not_the_second():
    memory = NTM(4, 4, read_heads=2, write_heads=2).build().double()
    both = at(1).expand(1, 2, 4)
    first = interface(erase=[1] * 4, add=[0.0, 9.0, 0.0, 0.0])
    second = interface(erase=[1] * 4, add=[0.0, 7.0, 0.0, 0.0])
    read, state, _ = memory([interface(), first, interface(), second], NTMState(tape(), both, both))
    nearly(read, [[0.0, 2.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0.0]])
    nearly(state.memory[0, 1], [0.0, 7.0, 0.0, 0.0])


def test_a_head_that_moves_on_each_step_writes_the_tape_in_order_and_another_reads_it_back():
    memory = NTM(4, 4).build().double()
    state = memory.initial_state(1)
    for value in (1.0, 2.0, 3.0):
        writing = interface(move=1, erase=[1] * 4, add=[value, 0.0, 0.0, 0.0])
        _, state, _ = memory([interface(), writing], state)
    nearly(state.memory[0, :, 0], [1e-6, 1.0, 2.0, 3.0], atol=1e-10)
    reads = []
    for _ in range(3):
        read, state, _ = memory([interface(move=1), interface(erase=[0] * 4, add=[0.0] * 4)], state)
        reads.append(read[0, 0])
    nearly(torch.stack(reads), [1.0, 2.0, 3.0], atol=1e-10)


def test_a_key_between_two_rows_reads_both_alike():
    looking = interface(key=(1.0, 1.0, 0.0, 0.0), strength=200.0, gate=OPEN)
    read, _, _ = step(NTMState(tape(), at(3), at(0)), reading=looking)
    # The ε in the norms weighs on the shorter row: 200 · 0.7 · (1/1² − 1/2²) · ε/2 ≈ 5e-7 between the logits.
    nearly(read, [[0.5, 1.0, 0.0, 0.0]], atol=5e-7)
