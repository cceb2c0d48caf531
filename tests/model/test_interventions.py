"""Interventions: what each kind does to a machine that runs, and that none does nothing."""

import math
from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

import nsm
from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Programs
from nsm.attention import ATTENTION
from nsm.interventions import heads_of
from nsm.state_programs import WEIGHTS

STEPS, BATCH, SLOTS = 6, 2, 5
EXACT = {"rtol": 0.0, "atol": 0.0}
MEMORIES = {
    "ntm": NTM(SLOTS, 3, read_heads=2, initial_memory="random"),
    "lrua": LRUA(SLOTS, 3, read_heads=2, write_heads=2),
    "dnc": DNC(SLOTS, 3, read_heads=2),
    "dnc with links": DNC(SLOTS, 3, read_heads=2, links=True),
}


def make(memory=MEMORIES["ntm"], programs=3, kind=NUTM, **options):
    generator = torch.Generator().manual_seed(3)
    rest = {"controller": Controller(size=5), "memory": memory, "generator": generator, **options}
    return (kind(3, 2, **rest) if programs is None else kind(3, 2, programs, **rest)).double()


@pytest.fixture(params=MEMORIES)
def machine(request):
    return make(MEMORIES[request.param])


@pytest.fixture
def x(randn):
    return randn(STEPS, BATCH, 3)


def ran(machine, x, *interventions, **options):
    """The trace of a run, with the tape."""
    return machine.run(x, interventions, trace="memory", **options)[2]


# --- none, and what a run is ------------------------------------------------------------------------------------------


def test_none_is_an_ordinary_forward(machine, x):
    machine.backend = "reference"
    for trace in (True, "memory"):
        assert_close(machine.run(x, trace=trace), machine(x, trace=trace), **EXACT)
    state = machine.initial_state(BATCH, slots=8)
    assert_close(machine.run(x, (), state, [6, 3]), machine(x, state, [6, 3], trace=True), **EXACT)


def test_a_run_leaves_the_machine_alone(machine, x):
    before = machine(x)
    machine.run(x, [nsm.ForceProgram("read 1", 1), nsm.EraseSlot(1, step=2)])
    assert_close(machine(x), before, **EXACT)


def test_what_is_done_at_a_step_does_not_reach_those_before_it(machine, x):
    usual = ran(machine, x)
    for act in (
        nsm.ForceProgram("write 1", 0, start=3),
        nsm.ForbidProgram("read 1", 0, start=3),
        nsm.EraseSlot(0, step=3),
        nsm.SwapSlots(0, 2, step=3),
        nsm.MoveHead("read 2", 1, step=3),
        nsm.PlaceHead("write 1", 4, step=3),
    ):
        trace = ran(machine, x, act)
        for ours, theirs in (
            (trace.memory, usual.memory),
            (trace.read_addresses, usual.read_addresses),
            (trace.programs, usual.programs),
        ):
            assert_close(ours[:3], theirs[:3], **EXACT)
        assert not torch.equal(trace.reads[3:], usual.reads[3:]), act


def test_batch_first_and_an_unbatched_sequence(x):
    machine = make()
    act = nsm.ForceProgram("read 1", 2, start=1)
    out, _, trace = machine.run(x, [act])
    alone, _, own = machine.run(x[:, 0], [act])
    assert_close(alone, out[:, 0])
    assert own.programs.shape == (STEPS, 3, 3)
    first = make(batch_first=True)
    assert_close(first.run(x.transpose(0, 1), [act])[0], out.transpose(0, 1))
    assert_close(trace.head_traces(0)[0].programs, own.head_traces()[0].programs)


def test_a_sequence_that_has_ended_stays_as_it_is(x):
    machine = make()
    _, state, _ = machine.run(x, [nsm.EraseSlot(0, step=4)], lengths=[6, 3])
    _, before, _ = machine.run(x[:3], lengths=[3, 3])
    assert_close(state.memory.memory[1], before.memory.memory[1], **EXACT)
    assert not torch.equal(state.memory.memory[0], machine(x)[1].memory.memory[0])


def test_gradients_go_through(x):
    machine = make()
    acts = [
        *(nsm.ForbidProgram("read 1", 0), nsm.ForceProgram("write 1", 1, start=2)),
        *(nsm.SwapSlots(0, 1, step=3), nsm.MoveHead("read 1", 1, step=4), nsm.PlaceHead("write 1", 2, step=4)),
    ]
    machine.run(x, acts)[0].square().sum().backward()
    gradients = [parameter.grad for parameter in machine.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert machine.interfaces[0].memory.weight.grad[0].abs().max() == 0, "a forbidden program has no part in it"


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_forced_program_is_the_only_one_as_long_as_it_is(attention, x):
    machine = make(programs=Programs(3, attention=attention)).eval()
    usual, trace = ran(machine, x), ran(machine, x, nsm.ForceProgram("read 2", 1, start=2, stop=4))
    control = [head.name for head in machine.memory.heads].index("read1")
    assert_close(trace.programs[2:4, :, control], torch.tensor([0.0, 1, 0]).double().expand(2, BATCH, -1), **EXACT)
    assert_close(trace.programs[:2], usual.programs[:2], **EXACT)
    assert (trace.programs[4:].sum(-1) - 1).abs().max() < 1e-12
    program = machine.interfaces[control].memory
    assert_close(trace.interfaces[control][2], trace.controller[2] @ program.weight[1] + program.bias[1])
    others = [n for n in range(len(machine.memory.heads)) if n != control]
    assert_close(trace.programs[2][:, others], usual.programs[2][:, others], **EXACT)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("part", ["state", "output"])
def test_programs_of_state_network_and_output_layer_are_forced_and_forbidden(part, attention, x):
    """By their names in a trace; the choice of the other part is left to it until what it sees changes."""
    machine = make(programs=Programs(3, attention=attention, parts=("interface", "state", "output"))).eval()
    forced, forbidden = nsm.ForceProgram(part, 1, start=2, stop=4), nsm.ForbidProgram(part, 0, start=2)
    usual, trace = ran(machine, x), ran(machine, x, forced)
    mix, other = getattr(trace, f"{part}_programs"), "output" if part == "state" else "state"
    assert_close(mix[2:4], torch.tensor([0.0, 1, 0]).double().expand(2, BATCH, -1), **EXACT)
    assert_close(mix[:2], getattr(usual, f"{part}_programs")[:2], **EXACT)
    assert_close(getattr(trace, f"{other}_programs")[:2], getattr(usual, f"{other}_programs")[:2], **EXACT)
    if part == "output":
        program, seen = machine.output.memory, torch.cat([trace.controller[2], trace.reads[2]], dim=-1)
        assert_close(machine.run(x, [forced])[0][2], seen @ program.weight[1] + program.bias[1])
    others = getattr(ran(machine, x, forbidden), f"{part}_programs")
    assert others[2:, :, 0].abs().max() == 0
    assert_close(others.sum(-1), torch.ones(STEPS, BATCH).double())
    only = machine.run(x, [nsm.ForceProgram(part, 1)])[0]
    stored = machine.output.memory if part == "output" else machine.state_network
    with torch.no_grad():
        for weight in (stored.weight, stored.bias) if part == "output" else (getattr(stored, name) for name in WEIGHTS):
            weight.copy_(weight[1].expand_as(weight).clone())
    assert_close(only, machine(x)[0])


def test_all_steps_of_a_forced_program_are_those_of_a_machine_that_has_no_other(x):
    machine = make(MEMORIES["dnc"])
    plain = make(MEMORIES["dnc"], programs=None, kind=MANN)
    plain.load_state_dict(machine.state_dict(), strict=False)
    with torch.no_grad():
        for ours, theirs in zip(plain.interfaces, machine.interfaces, strict=True):
            ours.weight.copy_(theirs.memory.weight[2].T)
            ours.bias.copy_(theirs.memory.bias[2])
    acts = [nsm.ForceProgram("read 1", 2), nsm.ForceProgram("write 1", 2)]
    assert_close(machine.run(x, acts)[0], plain(x)[0])


@pytest.mark.parametrize("attention", ["key-value", "direct", "uniform"])
def test_without_a_forbidden_program_the_others_keep_their_proportions(attention, x):
    machine = make(programs=Programs(3, attention=attention))
    usual, trace = ran(machine, x)[2], ran(machine, x, nsm.ForbidProgram("read 1", 0, stop=1))[2]
    first, found = usual[0, :, 0], trace[0, :, 0]
    assert_close(found[:, 0], torch.zeros(BATCH).double(), **EXACT)
    assert_close(found[:, 1:], first[:, 1:] / first[:, 1:].sum(-1, keepdim=True))


def test_without_a_forbidden_program_a_greedy_head_takes_the_next_best(x):
    machine = make(programs=Programs(3, attention="gumbel")).eval()
    ranks = make(programs=3)
    ranks.load_state_dict(machine.state_dict())
    order = ran(ranks, x).programs[0, 0, 0].argsort(descending=True).tolist()
    trace = ran(machine, x, nsm.ForbidProgram("read 1", order[0]))
    assert trace.programs[0, 0, 0].tolist() == [float(p == order[1]) for p in range(3)]


def test_a_program_is_forbidden_though_it_has_all_the_weight(x):
    machine = make(programs=Programs(2, attention="direct"))
    network = machine.interfaces[0]
    with torch.no_grad():
        network.query.bias.copy_(torch.tensor([1e6, 0.0]))
    assert ran(machine, x).programs[0, 0, 0].tolist() == [1, 0]
    assert ran(machine, x, nsm.ForbidProgram("read 1", 0)).programs[0, 0, 0].tolist() == [0, 1]


def test_read_heads_of_a_dnc_share_their_programs(x):
    machine = make(MEMORIES["dnc"])
    one, other = (machine.run(x, [nsm.ForceProgram(head, 1)])[0] for head in ("read 1", "read 2"))
    assert_close(one, other, **EXACT)


def test_heads_are_called_as_in_a_trace(machine, x):
    named = [(head.name, head.kind) for head in ran(machine, x).head_traces()]
    assert [(name, where.kind) for name, where in heads_of(machine.memory).items()] == named


# --- the tape ---------------------------------------------------------------------------------------------------------


def still(memory):
    """A machine that writes nothing: what stands on the tape stays."""
    machine = make(memory, programs=None, kind=MANN)
    parts = machine.memory
    with torch.no_grad():
        network = machine.interfaces[[head.kind for head in parts.heads].index("write")]
        network.weight.zero_()
        network.bias.zero_()
        if isinstance(memory, NTM):
            network.bias[parts.address_size : parts.address_size + parts.width] = -math.inf
        else:
            network.bias[-1] = -math.inf
    return machine


@pytest.mark.parametrize("memory", [NTM(SLOTS, 3, initial_memory="random"), DNC(SLOTS, 3)], ids=["ntm", "dnc"])
def test_slots_are_erased_and_swapped_on_the_tape(memory, x, randn):
    machine = still(memory)
    state = machine.initial_state(BATCH)
    blank = state.memory.memory.clone()
    written = randn(BATCH, SLOTS, 3)
    state = state._replace(memory=state.memory._replace(memory=written))
    trace = ran(machine, x, nsm.EraseSlot(1, step=2), nsm.SwapSlots(4, 0, step=3), state=state)
    assert_close(trace.memory[1], written, **EXACT)
    erased = written.clone()
    erased[:, 1] = blank[:, 1]
    assert_close(trace.memory[2], erased, **EXACT)
    assert_close(trace.memory[3], erased[:, [4, 1, 2, 3, 0]], **EXACT)
    assert_close(trace.memory[5], trace.memory[3], **EXACT)
    assert_close(trace.reads[3][:, :3], (trace.read_addresses[3, :, :1] @ trace.memory[3]).squeeze(1))


def test_usage_and_links_stay_when_a_slot_is_erased(x):
    machine = make(MEMORIES["dnc with links"])
    begun = machine(x[:3])[1]
    first = {"state": begun, "trace": True}
    _, usual, _ = machine.run(x[3:4], **first)
    _, erased, _ = machine.run(x[3:4], [nsm.EraseSlot(1, step=0)], **first)
    assert_close(erased.memory.usage, usual.memory.usage, **EXACT)
    assert not torch.equal(erased.memory.memory, usual.memory.memory)


def test_a_slot_beyond_the_machines_own_tape_is_erased_too(x):
    machine = make()
    state = machine.initial_state(BATCH, slots=9)
    blank = state.memory.memory[:, 8].clone()
    state.memory.memory[:, 8] = 3
    trace = ran(machine, x, nsm.EraseSlot(8, step=0), nsm.PlaceHead("write 1", 0, step=0), state=state)
    assert_close(trace.memory[0, :, 8], blank)


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [1, -2, SLOTS + 1])
@pytest.mark.parametrize("head", ["read 2", "write 1"])
def test_a_moved_head_is_so_many_slots_further(machine, head, by, x):
    usual, trace = ran(machine, x), ran(machine, x, nsm.MoveHead(head, by, step=2))
    kind, number = head.split()
    n = int(number) - 1
    ours, theirs = (getattr(each, f"{kind}_addresses")[2, :, n] for each in (trace, usual))
    assert_close(ours, theirs.roll(by, dims=-1), **EXACT)
    if head == "read 2":
        assert_close(trace.read_addresses[2, :, 0], usual.read_addresses[2, :, 0], **EXACT)


@pytest.mark.parametrize("head", ["read 2", "write 1"])
def test_a_placed_head_is_on_one_slot_with_all_it_has(machine, head, x):
    usual, trace = ran(machine, x), ran(machine, x, nsm.PlaceHead(head, 3, step=2))
    kind, number = head.split()
    n = int(number) - 1
    ours, theirs = (getattr(each, f"{kind}_addresses")[2, :, n] for each in (trace, usual))
    assert_close(ours[:, 3], theirs.sum(-1), **EXACT)
    assert ours[:, [0, 1, 2, 4]].abs().max() == 0


def test_a_placed_head_reads_and_writes_there(x):
    machine = make(NTM(SLOTS, 3, initial_memory="random"))
    trace = ran(machine, x, nsm.PlaceHead("read 1", 2, step=1), nsm.PlaceHead("write 1", 4, step=1))
    before, after = trace.memory[0], trace.memory[1]
    assert_close(trace.reads[1], before[:, 2])
    assert_close(after[:, :4], before[:, :4], **EXACT)
    assert (after[:, 4] - before[:, 4]).abs().min() > 1e-6


def test_a_head_goes_on_from_where_it_was_put(x):
    """An NTM's heads that keep where they are, whatever the tape says."""
    machine = make(NTM(SLOTS, 3), programs=None, kind=MANN)
    with torch.no_grad():
        for network in machine.interfaces:
            network.weight.zero_()
            network.bias.zero_()
            network.bias[4] = -math.inf  # the gate: nothing of the content
            network.bias[5:8] = torch.tensor([-200.0, -200.0, 200.0])  # one slot on at every step
            network.bias[8] = 50.0
    trace = ran(machine, x, nsm.PlaceHead("read 1", 0, step=3), nsm.MoveHead("write 1", 2, step=4))
    places = [addresses[:, 0, 0].argmax(-1).tolist() for addresses in (trace.read_addresses, trace.write_addresses)]
    assert places == [[1, 2, 3, 0, 1, 2], [1, 2, 3, 4, 2, 3]]


# --- noise ------------------------------------------------------------------------------------------------------------


def test_noise_is_silenced_as_long_as_it_is(x):
    machine = make(programs=Programs(3, attention="gumbel")).train()
    noise = machine.draw_noise(STEPS, BATCH, generator=torch.Generator().manual_seed(0), cell=0.5)
    quiet = nsm.Noise(torch.zeros_like(noise.cell), torch.zeros_like(noise.programs))
    some = tuple(torch.cat([zero[:4], drawn[4:]]) for zero, drawn in zip(quiet, noise, strict=True))
    silenced = ran(machine, x, nsm.SilenceNoise(stop=4), noise=noise)
    assert_close(silenced, ran(machine, x, noise=nsm.Noise(*some)))
    assert not torch.equal(silenced.controller, ran(machine, x, noise=noise).controller)


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arguments", "times", "said"),
    [
        (nsm.ForceProgram, (1, 1), {}, "head must be the name of a head, such as 'read 1', was 1"),
        (nsm.ForceProgram, ("read 1", -1), {}, "program must be an integer of at least 0, was -1"),
        (nsm.ForceProgram, ("read 1", True), {}, "program must be an integer of at least 0, was True"),
        (nsm.ForbidProgram, ("read 1", 1), {"start": 3, "stop": 3}, "stop must be an integer of at least 4, was 3"),
        (nsm.EraseSlot, (1.0,), {"step": 0}, "slot must be an integer of at least 0, was 1.0"),
        (nsm.SwapSlots, (1, 2), {"step": -1}, "step must be an integer of at least 0, was -1"),
        (nsm.MoveHead, ("read 1", 0.5), {"step": 1}, "by must be an integer, was 0.5"),
    ],
)
def test_what_an_intervention_is_made_of_is_checked(kind, arguments, times, said):
    with pytest.raises(nsm.UserError, match=f"^{said}$"):
        kind(*arguments, **times)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (nsm.ForceProgram("reed 1", 0), r"ForceProgram\.head must be one of .* did you mean 'read 1'\?"),
        (nsm.ForceProgram("read 3", 0), "ForceProgram.head must be one of 'read 1', 'read 2', 'write 1'"),
        (nsm.ForceProgram("state", 0), "ForceProgram.head must be one of 'read 1', 'read 2', 'write 1', was 'state'"),
        (nsm.ForceProgram("read 1", 3), "ForceProgram.program must be at most 2 in this run, was 3"),
        (nsm.ForceProgram("read 1", 0, start=6), "ForceProgram.start must be at most 5 in this run, was 6"),
        (nsm.EraseSlot(5, step=0), "EraseSlot.slot must be at most 4 in this run, was 5"),
        (nsm.SwapSlots(0, 9, step=0), "SwapSlots.second must be at most 4 in this run, was 9"),
        (nsm.MoveHead("read 1", 1, step=6), "MoveHead.step must be at most 5 in this run, was 6"),
        ("read 1", "interventions must be ForceProgram, EraseSlot and so on, one was 'read 1'"),
    ],
)
def test_what_the_machine_does_not_have_is_named(act, said, x):
    with pytest.raises(nsm.UserError, match=said):
        make().run(x, [act])


def test_state_network_and_output_layer_are_no_heads_of_the_tape(x):
    machine = make(programs=Programs(3, parts=("interface", "output")))
    with pytest.raises(
        nsm.UserError, match=r"MoveHead\.head must be one of 'read 1', 'read 2', 'write 1', was 'output'"
    ):
        machine.run(x, [nsm.MoveHead("output", 1, step=0)])
    with pytest.raises(nsm.UserError, match=r"ForceProgram\.head must be one of .*'write 1', 'output', was 'state'"):
        machine.run(x, [nsm.ForceProgram("state", 1)])
    with pytest.raises(nsm.UserError, match="leave 'output' no program to run"):
        machine.run(x, [nsm.ForceProgram("output", 0), nsm.ForbidProgram("output", 0)])


def test_a_head_is_not_left_without_a_program(x):
    acts = [nsm.ForbidProgram("read 1", program) for program in range(3)]
    with pytest.raises(nsm.UserError, match="leave 'read 1' no program to run"):
        make().run(x, acts)
    with pytest.raises(nsm.UserError, match="leave 'read 1' no program to run"):
        make().run(x, [nsm.ForceProgram("read 1", 0), nsm.ForceProgram("read 1", 1)])
    with pytest.raises(nsm.UserError, match="ForceProgram needs a machine with stored programs"):
        make(programs=None, kind=MANN).run(x, [nsm.ForceProgram("read 1", 0)])


def test_the_fused_back_end_says_that_it_has_none(x):
    machine = make().float()
    machine.backend = "fused"
    with pytest.raises(nsm.UserError, match="doesn't cover interventions; backend 'reference' does"):
        machine.run(x.float(), [nsm.EraseSlot(0, step=0)])


class Total(NamedTuple):
    total: torch.Tensor


class Sum(nsm.Memory):
    """A memory of one's own: the sum of what it was told."""

    def __init__(self):
        super().__init__()
        self.heads, self.read_size, self.slots = (nsm.Head("write", "write", 3),), 3, 1

    def initial_state(self, batch, slots=None):
        return Total(torch.zeros(batch, 3).double())

    def forward(self, interfaces, state):
        here = torch.ones(len(state.total), 1, 1).double()
        return state.total, Total(state.total + interfaces[0]), nsm.Addresses(here[:, :0], here)


def test_a_memory_of_ones_own_has_its_programs_forced_and_says_what_it_lacks(x):
    machine = make(Sum(), backend="reference")
    trace = machine.run(x, [nsm.ForceProgram("write 1", 2)])[2]
    assert_close(trace.programs[:, :, 0, 2], torch.ones(STEPS, BATCH).double(), **EXACT)
    with pytest.raises(nsm.UserError, match="EraseSlot needs a machine with a tape in its state"):
        machine.run(x, [nsm.EraseSlot(0, step=0)])
    with pytest.raises(nsm.UserError, match="MoveHead needs a machine with an NTM, LRUA or DNC memory"):
        machine.run(x, [nsm.MoveHead("write 1", 1, step=0)])
