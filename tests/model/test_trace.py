"""What a trace shows of a pass."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Programs

pytestmark = pytest.mark.usefixtures("backend")

STEPS, BATCH = 5, 3
EXACT = {"rtol": 0.0, "atol": 0.0}

HEADS = [
    (NTM(6, 3, read_heads=2, write_heads=1), 2, 1, [9, 15, 9]),
    (LRUA(6, 3, read_heads=3, write_heads=2), 3, 2, [3, 3, 3, 4, 4]),
    (DNC(6, 3, read_heads=2, links=True), 2, 1, [16, 12]),
]


@pytest.mark.parametrize(("memory", "reads", "writes", "sizes"), HEADS, ids=["ntm", "lrua", "dnc"])
def test_shapes(memory, reads, writes, sizes, randn):
    made = NUTM(3, 2, 4, controller=Controller(size=5), memory=memory).double()
    out, state, trace = made(randn(STEPS, BATCH, 3), trace="memory")
    assert trace.controller.shape == (STEPS, BATCH, 5)
    assert [interface.shape for interface in trace.interfaces] == [(STEPS, BATCH, size) for size in sizes]
    assert trace.programs.shape == (STEPS, BATCH, len(sizes), 4)
    assert trace.read_addresses.shape == (STEPS, BATCH, reads, 6)
    assert trace.write_addresses.shape == (STEPS, BATCH, writes, 6)
    assert trace.reads.shape == (STEPS, BATCH, reads * 3)
    assert trace.memory.shape == (STEPS, BATCH, 6, 3)
    assert_close(trace.programs.sum(-1), torch.ones(STEPS, BATCH, len(sizes)).double())
    assert_close(trace.memory[-1], state.memory.memory, **EXACT)
    assert_close(trace.read_addresses[-1], state.memory.read_addresses, **EXACT)
    assert_close(made.output(torch.cat([trace.controller, trace.reads], dim=-1)), out)


def test_addresses_of_an_ntm_sum_to_one(randn):
    made = MANN(3, 2, memory=NTM(6, 3, read_heads=2, write_heads=2)).double()
    _, _, trace = made(randn(STEPS, BATCH, 3), trace=True)
    for address in (trace.read_addresses, trace.write_addresses):
        assert_close(address.sum(-1), torch.ones(STEPS, BATCH, 2).double())


def test_reads_are_what_stood_where_a_head_of_an_ntm_looked(randn):
    made = MANN(3, 2, memory=NTM(6, 3, order="write-first"), controller=Controller(size=5)).double()
    _, _, trace = made(randn(STEPS, BATCH, 3), trace="memory")
    assert_close(trace.reads, torch.einsum("tbn,tbnm->tbm", trace.read_addresses[:, :, 0], trace.memory))


def test_the_tape_only_on_request(machine, randn):
    x = randn(STEPS, BATCH, 3)
    out, state = machine(x)
    traced_out, traced_state, trace = machine(x, trace=True)
    assert trace.memory is None
    assert (trace.programs is None) == isinstance(machine, MANN)
    assert_close((traced_out, traced_state), (out, state), **EXACT)
    with_tape = machine(x, trace="memory")[2]
    assert_close(with_tape._replace(memory=None), trace, **EXACT)


def test_steps_after_the_end_are_zero_and_those_before_are_the_samples_own(machine, randn):
    x = randn(STEPS, BATCH, 3)
    lengths = [5, 2, 1]
    _, _, trace = machine(x, lengths=lengths, trace="memory")
    _, _, whole = machine(x, trace="memory")
    for found, expected in zip(tree_leaves(trace), tree_leaves(whole), strict=True):
        for b, length in enumerate(lengths):
            if found is not None:
                assert not found[length:, b].any()
                assert_close(found[:length, b], expected[:length, b], rtol=1e-12, atol=1e-12)


def test_programs_of_a_uniform_machine_are_shown_too(randn):
    made = NUTM(3, 2, Programs(4, attention="uniform"), memory=NTM(6, 3)).double()
    _, _, trace = made(randn(STEPS, BATCH, 3), trace=True)
    assert_close(trace.programs, torch.full((STEPS, BATCH, 2, 4), 0.25).double())


def test_gumbel_shows_one_program_at_a_time(randn):
    made = NUTM(3, 2, Programs(3, attention="gumbel"), memory=NTM(6, 3)).double()
    for mode in (True, False):
        _, _, trace = made.train(mode)(randn(20, BATCH, 3), trace=True)
        assert set(trace.programs.unique().tolist()) == {0.0, 1.0}
        assert torch.equal(trace.programs.sum(-1), torch.ones(20, BATCH, 2).double())
