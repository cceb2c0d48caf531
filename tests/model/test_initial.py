"""What a machine starts from: the tape, the addresses, the controller's state, the weights."""

import math

import pytest
import torch
from torch.testing import assert_close

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Programs
from nsm.memories import MEMORIES

EXACT = {"rtol": 0.0, "atol": 0.0}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- the tape ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", MEMORIES.values(), ids=MEMORIES)
def test_a_constant_tape_is_the_same_everywhere(config):
    state = config(slots=5, width=3).build().initial_state(2)
    assert_close(state.memory, torch.full((2, 5, 3), 1e-6), **EXACT)


@pytest.mark.parametrize("config", MEMORIES.values(), ids=MEMORIES)
def test_a_random_tape_is_fixed_and_bounded(config):
    memory = config(slots=40, width=24, initial_memory="random").build(generator())
    tape = memory.initial_state(2).memory
    assert 0.95 / 8 < tape.abs().max() <= 1 / 8
    assert tape.mean().abs() < 0.02
    assert torch.equal(tape[0], tape[1])
    assert torch.equal(memory.initial_state(1).memory[0], tape[0])
    assert not memory.initial_memory.requires_grad


@pytest.mark.parametrize("start", ["constant", "random"])
@pytest.mark.parametrize("config", MEMORIES.values(), ids=MEMORIES)
def test_a_shorter_tape_is_the_beginning_and_a_longer_one_goes_on(config, start):
    memory = config(slots=6, width=3, initial_memory=start).build(generator())
    usual = memory.initial_state(2).memory
    assert torch.equal(memory.initial_state(2, slots=4).memory, usual[:, :4])
    longer = memory.initial_state(2, slots=50).memory
    assert longer.shape == (2, 50, 3)
    assert torch.equal(longer[:, :6], usual)
    assert torch.equal(memory.initial_state(2, slots=50).memory, longer)
    assert torch.equal(memory.initial_state(1, slots=60).memory[0, :50], longer[0])
    if start == "constant":
        assert torch.equal(longer, usual[:, :1].expand_as(longer))
    else:
        assert 0.9 / 3 < longer[:, 6:].abs().max() <= 1 / 3
        assert len(longer[0, :, 0].unique()) == 50


def test_a_machine_runs_on_a_tape_of_any_length(machine, randn):
    for slots in (1, 4, 9):
        x = randn(3, 2, 3)
        out, state, trace = machine(x, machine.initial_state(2, slots=slots), trace=True)
        assert out.isfinite().all()
        assert state.memory.memory.shape == (2, slots, 3)
        assert trace.read_addresses.shape[-1] == slots


def test_the_first_address_by_kind():
    expected = {"one-hot": [1.0, 0.0, 0.0, 0.0], "zeros": [0.0] * 4, "uniform": [0.25] * 4}
    for kind, address in expected.items():
        state = NTM(4, 3, read_heads=2, write_heads=3, initial_address=kind).build().initial_state(2)
        assert state.read_addresses.tolist() == [[address] * 2] * 2
        assert state.write_addresses.tolist() == [[address] * 3] * 2
    longer = NTM(4, 3, initial_address="uniform").build().initial_state(1, slots=8)
    assert longer.read_addresses.tolist() == [[[0.125] * 8]]


@pytest.mark.parametrize("config", [LRUA(4, 3), DNC(4, 3), DNC(4, 3, links=True)], ids=["lrua", "dnc", "dnc-links"])
def test_lrua_and_dnc_start_unused_and_nowhere(config):
    state = config.build().initial_state(2, slots=5)
    for name, leaf in state._asdict().items():
        if name != "memory":
            assert leaf.shape[0] == 2
            assert not leaf.any()
            assert leaf.numel() == 0 or leaf.shape[-1] == 5


def test_heads_stand_on_the_first_slot_by_default():
    assert NTM().initial_address == "one-hot"
    assert NTM().initial_memory == LRUA().initial_memory == DNC().initial_memory == "constant"


# --- the state --------------------------------------------------------------------------------------------------------


def test_the_first_read_is_small_fixed_noise():
    made = MANN(3, 2, memory=NTM(5, 400), generator=generator())
    state = made.initial_state(3)
    assert state.read.shape == (3, 400)
    assert 0.008 < state.read[0].std() < 0.012
    assert torch.equal(state.read[0], state.read[2])
    assert "initial_read" not in dict(made.named_parameters())


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_gradients_reach_the_learned_initial_state_of_the_controller(kind, memory, randn):
    made = NUTM(3, 2, controller=Controller(kind, size=5), memory=memory).double()
    made(randn(3, 2, 3))[0].square().sum().backward()
    assert len(made.controller.initial) == (2 if kind == "lstm" else 1)
    for start in made.controller.initial.values():
        assert start.grad.abs().min() > 0


# --- initial weights of the interfaces --------------------------------------------------------------------------------


def largest(weights):
    return weights.detach().abs().max().item()


def copy_machines(fan):
    """The paper's Copy machines, interfaces started by `fan`: their read and write programs and heads."""
    interface = Interface(fan=fan)
    nutm = NUTM(10, 8, 2, controller=Controller(size=80), interface=interface, generator=generator())
    plain = MANN(10, 8, controller=Controller(size=80), interface=interface, generator=generator())
    return [network.memory for network in nutm.interfaces], plain.interfaces


def test_interface_weights_by_head():
    programs, linears = copy_machines("head")
    for size, stored, linear in zip((26, 66), programs, linears, strict=True):
        bound = 1.4 * math.sqrt(6 / (80 + size))
        for weights in (stored.weight, linear.weight):
            assert 0.99 * bound < largest(weights) <= bound


def test_interface_weights_by_memory():
    programs, linears = copy_machines("memory")
    for size, stored, linear in zip((26, 66), programs, linears, strict=True):
        for weights, fan in ((stored.weight, 2 + 2 + 81 * size), (linear.weight, 1 + 81 * size)):
            bound = 1.4 * math.sqrt(6 / fan)
            assert 0.99 * bound < largest(weights) <= bound
        assert largest(stored.key) <= 1.4 * math.sqrt(6 / (4 + 81 * size))


def test_programs_started_by_memory_are_four_to_six_times_smaller():
    small, large = copy_machines("memory")[0], copy_machines("head")[0]
    ratios = [largest(ours.weight) / largest(theirs.weight) for ours, theirs in zip(large, small, strict=True)]
    assert ratios[0] == pytest.approx(math.sqrt((4 + 81 * 26) / 106), rel=0.01)
    assert ratios[1] == pytest.approx(math.sqrt((4 + 81 * 66) / 146), rel=0.01)
    assert 4 < ratios[0] < ratios[1] < 6.1


def test_the_gain_scales_the_interfaces():
    twice = Interface(gain=2.8, fan="head").bound(80, 26, None)
    assert twice == pytest.approx(2 * Interface(fan="head").bound(80, 26, None))


def test_biases_and_output_layer():
    made = MANN(10, 50, controller=Controller(size=80), memory=NTM(8, 300), generator=generator())
    for linear in made.interfaces:
        assert 0.008 < linear.bias.std() < 0.012
    bound = math.sqrt(6 / (50 + 380))
    assert 0.99 * bound < largest(made.output.weight) <= bound
    assert 0.005 < made.output.bias.std() < 0.015


# --- sizes ------------------------------------------------------------------------------------------------------------

COUNTS = [
    ("copy", 10, 8, 1, 100, None, 63_260),
    ("copy", 10, 8, 1, 80, 2, 52_206),
    ("repeat copy", 10, 9, 1, 100, None, 63_381),
    ("repeat copy", 10, 9, 1, 80, 2, 52_307),
    ("associative recall", 8, 6, 1, 100, None, 62_218),
    ("associative recall", 8, 6, 1, 80, 2, 51_364),
    ("n-grams", 1, 1, 1, 100, None, 58_813),
    ("n-grams", 1, 1, 1, 80, 2, 48_619),
    ("priority sort", 9, 8, 5, 200, None, 344_068),
    ("priority sort", 9, 8, 5, 150, 2, 302_398),
    ("C+RC", 10, 9, 1, 200, None, 206_481),
    ("C+RC", 10, 9, 1, 150, 3, 153_941),
    ("C+AR", 10, 8, 1, 200, None, 206_260),
    ("C+AR", 10, 8, 1, 150, 3, 153_770),
    ("C+PS", 10, 8, 3, 200, None, 275_564),
    ("C+PS", 10, 8, 3, 150, 3, 263_894),
    ("C+RC+AR+PS", 10, 9, 3, 250, None, 394_575),
    ("C+RC+AR+PS", 10, 9, 3, 200, 4, 448_379),
]


@pytest.mark.parametrize(("task", "inputs", "outputs", "heads", "size", "programs", "published"), COUNTS)
def test_parameter_counts_of_the_paper(task, inputs, outputs, heads, size, programs, published):
    options = {"controller": Controller(size=size), "memory": NTM(read_heads=heads, write_heads=heads)}
    made = MANN(inputs, outputs, **options) if programs is None else NUTM(inputs, outputs, programs, **options)
    assert made.parameter_count == published


@pytest.mark.parametrize(("programs", "size", "published"), [(1, 256, 891_136), (2, 240, 934_787), (4, 172, 794_773)])
def test_parameter_counts_of_question_answering(programs, size, published):
    options = {
        "controller": Controller(size=size, biases=1, layer_norm=True),
        "memory": DNC(196),
        "interface": Interface(norm=True),
    }
    if programs == 1:
        made = MANN(159, 159, **options)
    else:
        made = NUTM(159, 159, Programs(programs, query_bias=False), **options)
    # The published count takes h0 and c0 as fixed.
    assert made.parameter_count - 2 * size == published


# --- starts for question answering ------------------------------------------------------------------------------------


def both(**options):
    """Machines of the same draws, one with the usual start and one with another; DNC, 3 inputs."""
    interface = Interface(norm=options.pop("norm", False))
    other = Interface(norm=interface.norm, **options.pop("interface", {}))
    kind = options.pop("kind", MANN)
    size = {"size": 5, "layer_norm": options.pop("layer_norm", False)}
    shape = {"memory": DNC(slots=6, width=4, read_heads=2)}
    usual = kind(3, 2, controller=Controller(**size), interface=interface, generator=generator(), **shape)
    changed = kind(3, 2, controller=Controller(**size, **options), interface=other, generator=generator(), **shape)
    return usual, changed


def differing(usual, changed):
    theirs = changed.state_dict()
    return {name for name, tensor in usual.state_dict().items() if not torch.equal(tensor, theirs[name])}


def test_weights_of_the_input_can_start_larger_than_those_of_reads_and_state():
    usual, changed = both(input_gain=4.0)
    assert differing(usual, changed) == {"controller.weight_ih"}
    assert_close(changed.controller.weight_ih[:, :3], 4 * usual.controller.weight_ih[:, :3], **EXACT)
    assert_close(changed.controller.weight_ih[:, 3:], usual.controller.weight_ih[:, 3:], **EXACT)


@pytest.mark.parametrize(("norm", "where"), [(False, "controller.bias_ih"), (True, "controller.gate_norms.1.bias")])
def test_forget_gates_start_at_their_bias(norm, where, randn):
    usual, changed = both(forget_bias=50.0, layer_norm=norm)
    assert differing(usual, changed) == {where}
    state = changed.initial_state(2)
    state = state._replace(controller=state.controller._replace(cell=torch.full((2, 5), 7.0)))
    _, after = changed.double().step(randn(2, 3), changed.double().initial_state(2)._replace(controller=_double(state)))
    assert (after.controller.cell >= 6).all(), "gates that are wide open keep all of the cell, and add at most 1"


def _double(state):
    return type(state.controller)(*(leaf.double() for leaf in state.controller))


@pytest.mark.parametrize("kind", [MANN, NUTM])
def test_keys_can_start_as_what_is_written(kind, randn):
    usual, changed = both(kind=kind, interface={"keys": "written"})
    place = "memory." if kind is NUTM else ""
    expected = {f"interfaces.{head}.{place}{name}" for head in (0, 1) for name in ("weight", "bias")}
    assert differing(usual, changed) == expected
    c = randn(4, 5).float()
    (reading, _), (writing, _) = (changed._interface(head, c, None) for head in (0, 1))
    (_, _), (unchanged, _) = (usual._interface(head, c, None) for head in (0, 1))
    key, _, erase, add, *_ = writing.split(changed.memory.write_parts, dim=-1)
    assert_close(writing[:, 4:], unchanged[:, 4:])
    assert_close(key, add)
    if kind is MANN:  # the heads of a NUTM choose their programs each for itself
        assert_close(reading[:, :4], add)
        assert_close(reading[:, 4:8], add)
    assert not torch.allclose(erase, add)


@pytest.mark.parametrize("kind", [MANN, NUTM])
@pytest.mark.parametrize("norm", [False, True])
def test_strengths_can_start_sharp(kind, norm, randn):
    usual, changed = both(kind=kind, norm=norm, interface={"sharpness": 3.0})
    c = randn(4, 5).float()
    for head, strengths in ((0, slice(8, 10)), (1, slice(4, 5))):
        before, after = (machine._interface(head, c, None)[0] for machine in (usual, changed))
        if norm:
            before, after = usual.norms[head](before), changed.norms[head](after)
        added = torch.zeros_like(before)
        added[:, strengths] = 3.0
        assert_close(after, before + added)


def test_keys_of_lrua_can_start_as_what_is_written(randn):
    memory = LRUA(slots=6, width=4, read_heads=2, write_heads=1)
    machine = MANN(3, 2, memory=memory, controller=Controller(size=5), interface=Interface(keys="written"))
    c = randn(4, 5).float()
    first, second, writing = (machine._interface(head, c, None)[0] for head in range(3))
    assert writing.shape == (4, 5)
    assert_close(first, writing[:, :4])
    assert_close(second, writing[:, :4])


def test_such_starts_need_a_memory_that_knows_its_keys():
    with pytest.raises(ValueError, match="interface keys need an LRUA or a DNC, the memory is NTMMemory"):
        MANN(3, 2, memory=NTM(slots=4, width=3), interface=Interface(keys="written"))
    for memory in (NTM(slots=4, width=3), LRUA(slots=4, width=3)):
        with pytest.raises(ValueError, match=r"interface sharpness needs a DNC, the memory is (NTM|LRUA)Memory"):
            MANN(3, 2, memory=memory, interface=Interface(sharpness=1.0))
    with pytest.raises(ValueError, match="forget_bias needs an lstm controller, was 'gru'"):
        Controller("gru", forget_bias=1.0)
    with pytest.raises(ValueError, match="interface keys must be one of 'own', 'written'"):
        Interface(keys="writen")
