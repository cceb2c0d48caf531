"""What a user of `machine(x)` sees of the fused back end."""

import logging

import pytest
import torch

import nsm
from nsm import backends
from nsm.fused import cache
from nsm.pytree import tree_map

MEMORIES = {
    "ntm": nsm.NTM(slots=12, width=5, read_heads=2, write_heads=2),
    "lrua": nsm.LRUA(slots=12, width=5),
    "dnc": nsm.DNC(slots=12, width=5),
    "dnc links": nsm.DNC(slots=12, width=5, links=True),
}
PARTS = [("interface",), ("interface", "state"), ("interface", "output"), ("interface", "state", "output")]


def build(memory="ntm", backend="fused", **options):
    generator = torch.Generator().manual_seed(0)
    options.setdefault("memory", MEMORIES.get(memory, memory))
    stored = options.pop("programs", 2)
    return nsm.NUTM(4, 3, stored, controller=nsm.Controller(size=16), backend=backend, generator=generator, **options)


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


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
@pytest.mark.parametrize("memory", MEMORIES)
def test_traces_are_the_same(memory, parts):
    x = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(1))
    fused, reference = (build(memory, kind, programs=nsm.Programs(2, parts=parts)) for kind in ("fused", "reference"))
    _, _, ours = fused(x, lengths=[7, 2, 5], trace="memory")
    _, _, theirs = reference(x, lengths=[7, 2, 5], trace="memory")
    tree_map(lambda a, b: torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-5), ours, theirs)
    assert (ours.state_programs is not None) == ("state" in parts)
    assert (ours.output_programs is not None) == ("output" in parts)
    assert fused(x, trace=True)[2].memory is None
    with torch.no_grad():  # written over, stretch after stretch, where nothing is kept for a way back
        _, _, again = fused(x, lengths=[7, 2, 5], trace="memory")
    tree_map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), again, ours)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_state_handed_on_equals_one_long_sequence(memory):
    machine, x = build(memory), torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(1))
    whole, end = machine(x)
    first, middle = machine(x[:4])
    second, last = machine(x[4:], middle)
    assert torch.equal(torch.cat([first, second]), whole)
    tree_map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), last, end)


def test_batch_first_is_the_transposed():
    x = torch.randn(5, 3, 4)
    assert torch.equal(build(batch_first=True)(x.transpose(0, 1))[0].transpose(0, 1), build()(x)[0])


def test_evaluation_keeps_nothing_for_a_way_back():
    machine, x = build(), torch.randn(5, 2, 4)
    with torch.no_grad():
        out, _ = machine(x)
    assert not out.requires_grad
    inputs = [*machine.initial_state(2).controller, *machine.initial_state(2).memory, machine.initial_state(2).read]
    *_, kept = torch.ops.nsm.ntm(x, inputs, machine.operands(), None, None, None, machine._description, 0)
    assert kept.numel() > 0
    with torch.no_grad():
        *_, kept = torch.ops.nsm.ntm(x, inputs, machine.operands(), None, None, None, machine._description, 0)
    assert kept.numel() == 0


class Mine(nsm.Memory):
    """A memory that remembers the last thing written."""

    heads, read_size, slots = (nsm.Head("write", "write", 5),), 5, 1

    def initial_state(self, batch, slots=None):
        return nsm.memories.NTMState(torch.zeros(batch, 1, 5), torch.ones(batch, 1, 1), torch.ones(batch, 1, 1))

    def forward(self, interfaces, state):
        addresses = nsm.Addresses(state.read_addresses, state.write_addresses)
        return interfaces[0], state._replace(memory=interfaces[0].unsqueeze(1)), addresses


def test_what_is_not_covered_falls_back_and_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(backends, "_told", set())
    machine = build(Mine(), "auto")
    with caplog.at_level(logging.WARNING, logger="nsm"):
        machine(torch.randn(2, 1, 4))
        machine(torch.randn(2, 1, 4))
    assert [record.message for record in caplog.records] == [
        "nsm: the fused backend doesn't cover a Mine; using the reference, which is slower"
    ]


def test_fused_refuses_by_name_what_it_does_not_cover():
    with pytest.raises(ValueError, match="backend 'fused' doesn't cover a Mine; backend 'reference' does"):
        build(Mine())(torch.randn(2, 1, 4))
    with pytest.raises(ValueError, match=r"backend 'fused' doesn't cover torch\.float64 on cpu"):
        build().double()(torch.randn(2, 1, 4).double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_run_the_reference_without_a_word(dtype, caplog, monkeypatch):
    monkeypatch.setattr(backends, "_told", set())
    with caplog.at_level(logging.WARNING, logger="nsm"):
        out, _ = build(backend="auto").to(dtype)(torch.randn(2, 1, 4, dtype=dtype))
    assert out.dtype == dtype
    assert not caplog.records


@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
@pytest.mark.parametrize("memory", [nsm.NTM, nsm.LRUA, nsm.DNC, lambda **shape: nsm.DNC(links=True, **shape)])
def test_everything_else_is_covered(controller, memory):
    machine = nsm.MANN(4, 3, controller=nsm.Controller(controller, size=8), memory=memory(slots=8, width=4))
    assert machine.uncovered() is None


def test_an_edited_source_has_another_key(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("a = 1\n")
    before = cache.key([source])
    assert cache.key([source]) == before
    source.write_text("a = 2\n")
    assert cache.key([source]) != before
    assert {path.name for path in cache._sources()} >= {"recurrence.py", "ntm.py", "lanes.py", "similarity.py"}
