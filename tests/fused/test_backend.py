"""What a user of `machine(x)` sees of the fused back end."""

import logging

import pytest
import torch

import nsm
from nsm import machine as machine_module
from nsm import nested
from nsm.fused import cache
from nsm.fused.function import engine

MEMORIES = {
    "ntm": nsm.NTM(slots=12, width=5, read_heads=2, write_heads=2),
    "lrua": nsm.LRUA(slots=12, width=5),
    "dnc": nsm.DNC(slots=12, width=5, initial_memory="random"),
}


def build(memory="ntm", backend="fused", **options):
    generator = torch.Generator().manual_seed(0)
    options.setdefault("memory", MEMORIES.get(memory, memory))
    return nsm.NUTM(4, 3, 2, controller=nsm.Controller(size=16), backend=backend, generator=generator, **options)


def gradients(machine, x, **options):
    machine.zero_grad()
    x = x.clone().requires_grad_()
    out, state = machine(x, **options)[:2]
    (out.square().sum() + state.memory.memory.square().sum() + state.read.sum()).backward()
    return [x.grad, *(parameter.grad.clone() for parameter in machine.parameters())]


@pytest.mark.parametrize("memory", MEMORIES)
def test_autograd_through_the_kernels_equals_the_reference(memory):
    x = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(1))
    fused, reference = build(memory), build(memory, "reference")
    for ours, theirs in zip(gradients(fused, x), gradients(reference, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("memory", MEMORIES)
def test_traces_are_the_same(memory):
    x = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(1))
    _, _, ours = build(memory)(x, lengths=[7, 2, 5], trace="memory")
    _, _, theirs = build(memory, "reference")(x, lengths=[7, 2, 5], trace="memory")
    nested.apply(lambda a, b: torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-5), ours, theirs)
    assert build(memory)(x, trace=True)[2].memory is None


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_state_handed_on_equals_one_long_sequence(memory):
    machine, x = build(memory), torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(1))
    whole, end = machine(x)
    first, middle = machine(x[:4])
    second, last = machine(x[4:], middle)
    assert torch.equal(torch.cat([first, second]), whole)
    nested.apply(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), last, end)


def test_batch_first_is_the_transposed():
    x = torch.randn(5, 3, 4)
    assert torch.equal(build(batch_first=True)(x.transpose(0, 1))[0].transpose(0, 1), build()(x)[0])


def test_gradients_are_of_the_weights_the_forward_pass_had():
    """Two passes alive at once, and weights that changed in between: each goes back through its own."""
    machine, x = build(), torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(1))
    expected = gradients(machine, x)[1:]
    machine.zero_grad()
    out, state = machine(x)
    kept = [parameter.detach().clone() for parameter in machine.parameters()]
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.mul_(1.5)
    machine(x)
    (out.square().sum() + state.memory.memory.square().sum() + state.read.sum()).backward()
    found = [parameter.grad for parameter in machine.parameters()]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        for parameter, value in zip(machine.parameters(), kept, strict=True):
            parameter.copy_(value)


def test_evaluation_keeps_nothing_for_a_way_back():
    machine = build()
    with torch.no_grad():
        out, _ = machine(torch.randn(5, 2, 4))
    assert not out.requires_grad
    assert len(engine(machine).buffers.free) == 1


def test_what_is_not_covered_falls_back_and_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(machine_module, "_told", set())
    machine = nsm.MANN(4, 3, controller=nsm.Controller("gru", size=8), memory=MEMORIES["ntm"])
    with caplog.at_level(logging.WARNING, logger="nsm"):
        machine(torch.randn(2, 1, 4))
        machine(torch.randn(2, 1, 4))
    assert [record.message for record in caplog.records] == [
        "nsm: the fused back end doesn't cover a gru controller; using the reference, which is slower"
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"controller": nsm.Controller("rnn", size=8)}, "rnn"),
        ({"memory": nsm.DNC(slots=8, width=4, links=True)}, "temporal links"),
    ],
)
def test_fused_refuses_by_name_what_it_does_not_cover(options, named):
    options = {"controller": nsm.Controller(size=8), "memory": MEMORIES["ntm"], **options}
    with pytest.raises(ValueError, match=named):
        nsm.MANN(4, 3, **options, backend="fused")(torch.randn(2, 1, 4))


def test_fused_refuses_float64():
    with pytest.raises(ValueError, match="float64"):
        build().double()(torch.randn(2, 1, 4).double())


def test_an_edited_source_has_another_key(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("a = 1\n")
    before = cache.key([source])
    assert cache.key([source]) == before
    source.write_text("a = 2\n")
    assert cache.key([source]) != before
    assert {path.name for path in cache._sources()} >= {"recurrence.py", "ntm.py", "lanes.py", "similarity.py"}
