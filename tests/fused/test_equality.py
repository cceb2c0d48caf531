"""Fused equals reference: outputs, final state and every gradient, whatever the shape."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nsm
from fused.compare import Case, assert_equal
from nsm.attention import ATTENTION
from nsm.experiments.choice import as_in_the_paper, as_the_authors
from nsm.fused import kernels, tape


def build(memory, programs, controller="lstm", size=12, inputs=5, outputs=3, norm=False, **options):
    torch.manual_seed(0)
    chosen = {"controller": nsm.Controller(controller, size=size, gain=1.5, layer_norm=norm), "memory": memory}
    interface = nsm.Interface(fan="head", norm=norm)
    if programs is None:
        return nsm.MANN(inputs, outputs, **chosen, interface=interface)
    return nsm.NUTM(inputs, outputs, programs, **chosen, interface=interface, **options)


COMPLETE = "interface", "state", "output"
PARTS = [("interface", "state"), ("interface", "output"), COMPLETE]
MEMORIES = {
    "ntm": nsm.NTM(slots=19, width=6, read_heads=2, write_heads=1),
    "ntm write-first": nsm.NTM(slots=32, width=7, read_heads=1, write_heads=2, order="write-first", shift_range=2),
    "lrua": nsm.LRUA(slots=21, width=6, read_heads=3, write_heads=1),
    "lrua read-first": nsm.LRUA(slots=16, width=5, read_heads=2, write_heads=2, order="read-first", least_used=1),
    "dnc": nsm.DNC(slots=18, width=6, read_heads=3),
    "dnc links": nsm.DNC(slots=19, width=6, read_heads=4, links=True),
    "dnc masked": nsm.DNC(slots=83, width=18, read_heads=4, masked=True),
    "dnc erasing": nsm.DNC(slots=19, width=6, read_heads=3, erase_freed=True),
    "dnc all": nsm.DNC(slots=19, width=6, read_heads=3, links=True, masked=True, erase_freed=True),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("attention", [None, *ATTENTION])
@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
def test_every_room_with_every_other(memory, attention, controller):
    programs = None if attention is None else nsm.Programs(3, attention=attention, temperature=0.7)
    machine = build(MEMORIES[memory], programs, controller)
    assert_equal(Case(machine, 5, 3, lengths=[5, 2, 4], cell_noise=0.3 if controller == "lstm" else 0.0))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
def test_complete_machines(memory, attention, controller):
    """State network and output layer are stored programs, too."""
    programs = nsm.Programs(3, attention=attention, temperature=0.7, parts=COMPLETE)
    machine = build(MEMORIES[memory], programs, controller)
    assert_equal(Case(machine, 5, 3, lengths=[5, 2, 4], cell_noise=0.3 if controller == "lstm" else 0.0))


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
@pytest.mark.parametrize("parts", PARTS[:-1], ids="+".join)
def test_one_part_stored_and_the_other_not(parts, controller, attention):
    machine = build(MEMORIES["ntm"], nsm.Programs(3, attention=attention, parts=parts), controller)
    assert_equal(Case(machine, 5, 3, lengths=[5, 2, 4]))


@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
@pytest.mark.parametrize("memory", MEMORIES)
def test_layer_norms_and_single_bias(memory, parts):
    machine = nsm.NUTM(
        5,
        3,
        nsm.Programs(2, query_bias=False, parts=parts),
        controller=nsm.Controller(size=20, biases=1, learned_start=False, layer_norm=True),
        memory=MEMORIES[memory],
        interface=nsm.Interface(norm=True),
    )
    assert_equal(Case(machine, 5, 3))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
def test_controllers_whose_rows_are_kept_apart(memory, controller):
    """A width that fills whole pages is padded further than to the lanes."""
    norm = controller == "lstm"
    programs = nsm.Programs(2, attention="direct", parts=COMPLETE if memory == "ntm" else ("interface",))
    machine = build(MEMORIES[memory], programs, controller, size=250, norm=norm)
    assert kernels.kernels(machine._description, 5, 3).sizes.size_p == 272
    assert_equal(Case(machine, 3, 2, lengths=[3, 2]))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("preset", [replace, as_in_the_paper, as_the_authors], ids=["default", "paper", "authors"])
def test_from_the_machines_own_initial_state(memory, preset):
    """Blank tapes are full of ties: slots alike, usage zero everywhere."""
    torch.manual_seed(0)
    config = nsm.MachineConfig(5, 3, nsm.Controller(size=16), MEMORIES[memory], nsm.Programs(3))
    machine = nsm.Machine.from_config(preset(config))
    assert_equal(Case(machine, 7, 2, fresh=True))


@pytest.mark.parametrize("memory", [name for name in MEMORIES if not name.startswith("ntm")])
def test_usage_that_is_not_a_number_goes_on_as_such(memory):
    """It has no place in the order, and must not be written outside the tape for that."""
    case = Case(build(MEMORIES[memory], nsm.Programs(2)), 4, 2)
    case.state.memory.usage[0, 2] = float("nan")
    assert np.isfinite(case.fused()["out"][:, 1]).all()


@pytest.mark.parametrize("memory", MEMORIES)
def test_tapes_of_another_size_than_configured(memory):
    machine = build(MEMORIES[memory], nsm.Programs(2))
    for slots in (1, 5, 16, 48):
        assert_equal(Case(machine, 4, 2, slots=slots))


@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("batch", [8, 9, 17])
def test_batches_of_several_chunks(memory, batch, parts):
    machine = build(MEMORIES[memory], nsm.Programs(2, parts=parts))
    lengths = [1 + (5 * b) % 6 for b in range(batch)]
    assert_equal(Case(machine, 6, batch, lengths=lengths), threads=2)


@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
@pytest.mark.parametrize("memory", MEMORIES)
def test_long_sequences_in_stretches(memory, parts, monkeypatch):
    monkeypatch.setattr(kernels, "LIMIT", 40_000)
    machine = build(MEMORIES[memory], nsm.Programs(2, parts=parts))
    assert_equal(Case(machine, 11, 3, lengths=[11, 4, 8], cell_noise=0.1))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("steps", [1, 3, 4, 9, 11])
def test_tapes_kept_every_few_steps_only(memory, steps, monkeypatch):
    """Those between are written once more on the way back, whether or not the last stretch is a whole one."""
    monkeypatch.setattr(tape, "NEAR", 0)
    machine = build(MEMORIES[memory], nsm.Programs(2))
    assert_equal(Case(machine, steps, 3, lengths=[1 + steps // 2, 1, steps]))


@pytest.mark.parametrize("strength", [0.3, 4.0, 10.0])
@pytest.mark.parametrize("order", ["read-first", "write-first"])
def test_strengths_of_lrua(strength, order):
    machine = build(nsm.LRUA(slots=18, width=7, read_heads=4, write_heads=1, strength=strength, order=order), None)
    assert_equal(Case(machine, 6, 3, lengths=[6, 2, 5]))


@pytest.mark.parametrize("controller", ["lstm", "gru", "rnn", "feed-forward"])
@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("answers", [0, 1, 24])
@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
def test_inputs_and_answers_that_are_mostly_zero(parts, controller, hot, answers):
    """The kernels pass over zeros where nearly all are; here inputs are one-hot, answers are few, both or neither."""
    machine = build(MEMORIES["ntm"], nsm.Programs(2, parts=parts), controller, inputs=40, outputs=20)
    case = Case(machine, 8, 3, lengths=[8, 5, 7])
    if hot:
        case.x = torch.nn.functional.one_hot(case.x.argmax(-1), 40).float()
    case.d_out.view(24, 20)[answers:] = 0
    assert_equal(case)


@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
def test_any_number_of_programs(count, parts):
    machine = build(nsm.NTM(slots=8, width=4), nsm.Programs(count, key_size=5, parts=parts))
    assert_equal(Case(machine, 3, 2))


@pytest.mark.parametrize("kind", [nsm.NTM, nsm.LRUA, nsm.DNC])
@pytest.mark.parametrize("slots", range(1, 50))
def test_any_number_of_slots(kind, slots):
    """Padding of every width, beside interfaces so narrow that a vector reaches beyond them."""
    machine = build(kind(slots=slots, width=3, read_heads=1), None, "feed-forward", size=2, inputs=1, outputs=1)
    assert_equal(Case(machine, 2, 1))


@pytest.mark.parametrize("shift_range", [0, 1, 3, 9])
def test_any_shift_range(shift_range):
    """Nine steps either way on a tape of five slots go round it more than once."""
    machine = build(nsm.NTM(slots=5, width=4, shift_range=shift_range), nsm.Programs(2))
    assert_equal(Case(machine, 4, 2))


@settings(max_examples=40)
@given(data=st.data())
def test_random_machines(data):
    draw = data.draw
    kind = draw(st.sampled_from(["ntm", "lrua", "dnc"]))
    shape = {
        "slots": draw(st.integers(2, 40)),
        # A cosine of width 1 is a sign, and its gradient rounding alone.
        "width": draw(st.integers(2, 20)),
        "read_heads": draw(st.integers(1, 5)),
    }
    if kind == "ntm":
        memory = nsm.NTM(
            **shape,
            write_heads=draw(st.integers(1, 4)),
            shift_range=draw(st.integers(0, 3)),
            order=draw(st.sampled_from(["read-first", "write-first"])),
        )
    elif kind == "lrua":
        memory = nsm.LRUA(
            **shape,
            write_heads=draw(st.integers(1, 3)),
            order=draw(st.sampled_from(["read-first", "write-first"])),
            least_used=draw(st.integers(1, 3)),
            strength=draw(st.sampled_from([1.0, 4.0])),
        )
    else:
        memory = nsm.DNC(**shape, **{option: draw(st.booleans()) for option in ("links", "masked", "erase_freed")})
    attention = draw(st.sampled_from([None, *ATTENTION]))
    programs = None
    if attention is not None:
        count = draw(st.integers(1, 5))
        key_size = count if attention == "direct" else draw(st.integers(2, 6))
        programs = nsm.Programs(
            count,
            key_size,
            attention,
            bounded_keys=draw(st.booleans()),
            query_bias=draw(st.booleans()),
            parts=draw(st.sampled_from([("interface",), *PARTS])),
        )
    controller = draw(st.sampled_from(["lstm", "gru", "rnn", "feed-forward"]))
    machine = build(
        memory,
        programs,
        controller,
        size=draw(st.integers(3, 40)),  # so is a layer norm of two numbers
        inputs=draw(st.integers(1, 20)),
        outputs=draw(st.integers(1, 20)),
        norm=controller == "lstm" and draw(st.booleans()),
    )
    steps, batch = draw(st.integers(1, 6)), draw(st.integers(1, 10))
    lengths = [draw(st.integers(1, steps)) for _ in range(batch - 1)] + [steps]
    noise = 0.2 if controller == "lstm" and draw(st.booleans()) else 0.0
    assert_equal(Case(machine, steps, batch, lengths=lengths, cell_noise=noise, seed=draw(st.integers(0, 1000))))
