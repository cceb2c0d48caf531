import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nsm import DNC
from nsm.memories import DNCState
from nsm.memories.dnc import allocation, retention, update_links, update_usage
from oracles import dnc as oracle

BATCH = 3
CLOSED, OPEN = -60.0, 60.0


def random_state(randn, config):
    reads, slots, linked = config.read_heads, config.slots, config.slots if config.links else 0
    write = torch.softmax(randn(BATCH, slots), dim=-1).unsqueeze(1)
    return DNCState(
        randn(BATCH, slots, config.width),
        torch.sigmoid(randn(BATCH, slots)),
        torch.softmax(randn(BATCH, reads, slots), dim=-1),
        write,
        torch.softmax(randn(BATCH, linked), dim=-1) if linked else torch.zeros(BATCH, 0).double(),
        torch.softmax(randn(BATCH, linked, linked), dim=-1) / 2 if linked else torch.zeros(BATCH, 0, 0).double(),
    )


@pytest.mark.parametrize("fresh", [True, False], ids=["blank", "random"])
@pytest.mark.parametrize(
    "options", [(), ("links",), ("masked",), ("erase_freed",), ("links", "masked", "erase_freed")], ids="+".join
)
@pytest.mark.parametrize("reads", [1, 3])
def test_steps_follow_the_equations(reads, options, fresh, randn):
    config = DNC(5, 3, read_heads=reads, **dict.fromkeys(options, True))
    width = 3 + 3 * config.masked
    memory = config.build().double()
    state = memory.initial_state(BATCH) if fresh else random_state(randn, config)
    expected = []
    for b in range(BATCH):
        start = {field: getattr(state, field)[b].numpy() for field in DNCState._fields}
        expected.append({**start, "write_address": start["write_address"][0]})
    for _ in range(6):
        reading, writing = 2 * randn(BATCH, reads * (width + 2 + 3 * config.links)), 2 * randn(BATCH, 9 + width)
        read, state, visited = memory([reading, writing], state)
        for b in range(BATCH):
            raw = reading[b].numpy(), writing[b].numpy()
            reads_b, expected[b] = oracle.step(*raw, expected[b], reads, **dict.fromkeys(options, True))
            np.testing.assert_allclose(read[b].numpy(), np.concatenate(reads_b), rtol=1e-9, atol=1e-11)
            for field, value in expected[b].items():
                found = getattr(state, field)[b].numpy().reshape(value.shape)
                np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-11, err_msg=field)
        assert torch.equal(visited.read, state.read_addresses)
        assert torch.equal(visited.write, state.write_address)


def test_the_interface_has_the_published_459_numbers():
    memory = DNC(196).build()
    assert [head.size for head in memory.heads] == [4 * 66, 3 * 64 + 3]
    assert sum(head.size for head in memory.heads) == 459
    assert memory.read_size == 256


def test_without_links_none_are_kept():
    state = DNC(5, 3).build().initial_state(2)
    assert state.precedence.shape == (2, 0)
    assert state.links.shape == (2, 0, 0)


# --- allocation and usage, in words -----------------------------------------------------------------------------------


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def test_a_blank_memory_allocates_its_first_slot():
    assert_close(allocation(row(0, 0, 0, 0)), row(1, 0, 0, 0), rtol=0, atol=1e-5)


def test_allocates_the_least_used_row():
    assert_close(allocation(row(0.9, 1, 0, 0.5)), row(0, 0, 1, 0), rtol=0, atol=1e-5)


def test_what_the_least_used_row_leaves_over_goes_to_the_next():
    assert_close(allocation(row(1, 0.25, 0.5, 1)), row(0, 0.75, 0.25 * 0.5, 0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("used", [0.0, 0.25, 0.7])
def test_rounding_does_not_decide_the_order_of_slots_that_are_used_alike(used, randn):
    alike = torch.full((20, 40), used, dtype=torch.float64)
    assert_close(allocation(alike + 1e-7 * torch.tanh(randn(20, 40))), allocation(alike), rtol=0, atol=1e-5)


def test_usage_is_told_apart_by_a_thousandth_and_rounded_halves_to_even():
    def first(*steps):
        return allocation(row(*steps) / 1024).argmax().item()

    assert first(101, 100) == 1
    assert first(100.4, 99.6) == 0
    assert first(100.5, 100) == 0  # rounds to 100
    assert first(101.5, 101) == 1  # rounds to 102


def test_nothing_is_allocated_when_all_is_used():
    assert_close(allocation(row(1, 1, 1)), row(0, 0, 0), rtol=0, atol=1e-12)


def test_the_gradient_of_allocation_lives_at_a_fully_used_and_at_a_blank_memory():
    for usage in (row(1, 1, 1), row(0, 0, 0), row(0, 1, 0)):
        usage.requires_grad_()
        (allocation(usage) * row(1, 2, 3)).sum().backward()
        assert usage.grad.isfinite().all()
        assert usage.grad.abs().sum() > 0


def test_a_written_slot_is_used_and_a_freed_one_is_not():
    usage, write = row(0.5, 0, 0.5), row(0, 1, 0)
    read = torch.tensor([[[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]]]).double()
    assert_close(update_usage(usage, write, retention(row(0, 0), read)), row(0.5, 1, 0.5))
    assert_close(update_usage(usage, write, retention(row(1, 1), read)), row(0.25, 1, 0))


def test_no_slot_follows_itself(randn):
    links = update_links(randn(2, 4, 4), torch.softmax(randn(2, 4), -1), torch.softmax(randn(2, 4), -1))
    assert not links.diagonal(dim1=1, dim2=2).any()


# --- a machine operated by hand ---------------------------------------------------------------------------------------

WIDTH = 4
MODES = {"backward": [OPEN, -OPEN, -OPEN], "content": [-OPEN, OPEN, -OPEN], "forward": [-OPEN, -OPEN, OPEN]}


def reading(key, free=CLOSED, mode="content", links=False):
    raw = [*key, 200.0, free] + (MODES[mode] if links else [])
    return torch.tensor([raw], dtype=torch.float64)


def writing(add, gate=OPEN, allocate=OPEN, key=(1.0, 0.0, 0.0, 0.0), erase=OPEN):
    return torch.tensor([[*key, 200.0, *[erase] * WIDTH, *add, allocate, gate]], dtype=torch.float64)


def unit(i):
    return torch.eye(WIDTH)[i].tolist()


def filled(count, links=False):
    """A memory of four slots that unit vectors 0, 1, … were written to by allocation, and the slot each one is in."""
    memory = DNC(4, WIDTH, read_heads=1, links=links).build().double()
    state, slots = memory.initial_state(1), []
    for i in range(count):
        _, state, visited = memory([reading(unit(i), links=links), writing(unit(i))], state)
        slots.append(visited.write.argmax().item())
    return memory, state, slots


def idle(memory, state, raw):
    """A step that reads and doesn't write."""
    return memory([raw, writing(unit(0), gate=CLOSED)], state)


def nearly(found, expected, atol=1e-4):
    """Equal but for what ε = 1e-6 lets through."""
    assert_close(found, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


def one_hot(slot):
    return torch.eye(4, dtype=torch.float64)[slot]


def test_each_write_goes_to_a_slot_of_its_own():
    _, state, slots = filled(4)
    assert sorted(slots) == [0, 1, 2, 3]
    nearly(state.memory[0, slots], torch.eye(4))


def test_a_shut_write_gate_leaves_the_tape_alone():
    memory, state, _ = filled(3)
    _, after, visited = idle(memory, state, reading(unit(1)))
    nearly(after.memory, state.memory, atol=1e-20)
    assert visited.write.sum() < 1e-20


def test_reads_by_content():
    memory, state, slots = filled(4)
    read, _, visited = idle(memory, state, reading([0.0, 0.0, 2.0, 0.0]))
    nearly(visited.read[0, 0], one_hot(slots[2]))
    nearly(read[0], unit(2))


@pytest.mark.parametrize("freed", [0, 1, 2, 3])
def test_a_freed_slot_is_allocated_next(freed):
    memory, state, slots = filled(4)
    # Usage takes in a write one step later, a freed read one step later too.
    _, state, _ = idle(memory, state, reading(unit(freed)))
    assert state.usage.min() > 0.9999
    _, state, visited = memory([reading(unit(0), free=OPEN), writing([0.0, 9.0, 0.0, 9.0])], state)
    nearly(visited.write[0, 0], one_hot(slots[freed]))
    nearly(state.memory[0, slots[freed]], [0.0, 9.0, 0.0, 9.0])


def test_without_a_free_slot_nothing_is_written_by_allocation():
    memory, state, _ = filled(4)
    _, state, _ = idle(memory, state, reading(unit(2)))
    _, after, visited = memory([reading(unit(0)), writing([9.0] * 4)], state)
    nearly(visited.write, torch.zeros(1, 1, 4))
    nearly(after.memory, state.memory)


def test_a_shut_allocation_gate_writes_where_the_key_matches():
    memory, state, slots = filled(3)
    raw = writing([0.0, 0.0, 5.0, 0.0], allocate=CLOSED, key=unit(1))
    _, after, visited = memory([reading(unit(0)), raw], state)
    nearly(visited.write[0, 0], one_hot(slots[1]))
    nearly(after.memory[0, slots[1]], [0.0, 0.0, 5.0, 0.0])


def test_erasing_is_optional():
    memory, state, slots = filled(3)
    raw = writing([0.0, 0.0, 5.0, 0.0], allocate=CLOSED, key=unit(1), erase=CLOSED)
    _, after, _ = memory([reading(unit(0)), raw], state)
    nearly(after.memory[0, slots[1]], [0.0, 1.0, 5.0, 0.0])


def test_a_read_sees_this_steps_write():
    memory, state, _ = filled(2)
    read, _, _ = memory([reading([0.0, 0.0, 0.0, 1.0]), writing([0.0, 0.0, 0.0, 3.0])], state)
    nearly(read[0], [0.0, 0.0, 0.0, 3.0])


def follow(first, mode):
    """What is read when a head finds `first` by content and then goes by `mode` twice."""
    memory, state, _ = filled(3, links=True)
    _, state, _ = idle(memory, state, reading(unit(first), links=True))
    found = []
    for _ in range(2):
        read, state, _ = idle(memory, state, reading(unit(3), mode=mode, links=True))
        found.append(read[0])
    return torch.stack(found)


def test_the_forward_link_reads_what_was_written_next():
    nearly(follow(0, "forward"), [unit(1), unit(2)])


def test_the_backward_link_reads_what_was_written_before():
    nearly(follow(2, "backward"), [unit(1), unit(0)])


def test_after_the_last_write_there_is_no_next():
    nearly(follow(2, "forward"), torch.zeros(2, 4))


def test_precedence_is_on_the_slot_written_last_and_stays_while_nothing_is_written():
    memory, state, slots = filled(3, links=True)
    nearly(state.precedence[0], one_hot(slots[2]))
    _, after, _ = idle(memory, state, reading(unit(0), links=True))
    nearly(after.precedence, state.precedence, atol=1e-12)
