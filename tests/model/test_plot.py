"""`trace.plot()`: what is in its axes is what is in the trace."""

import numpy as np
import pytest
import torch

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller
from nsm.checks import UserError

STEPS, BATCH, SLOTS = 7, 3, 6
SIZE = Controller(size=5)
MEMORIES = {
    "ntm": (NTM(SLOTS, 3), ["read 1", "write 1"], ["read 1", "write 1"]),
    "ntm, several heads": (
        NTM(SLOTS, 3, read_heads=2, write_heads=3, order="write-first"),
        ["read 1", "read 2", "write 1", "write 2", "write 3"],
        ["read 1", "read 2", "write 1", "write 2", "write 3"],
    ),
    "lrua": (
        LRUA(SLOTS, 3, read_heads=3),
        ["read 1", "read 2", "read 3", "write 1"],
        ["read 1", "read 2", "read 3", "write 1"],
    ),
    "dnc": (DNC(SLOTS, 3, read_heads=3), ["read 1", "read 2", "read 3", "write 1"], ["read 1–3", "write 1"]),
}


def traced(memory, randn, backend="auto"):
    machine = NUTM(3, 2, 4, controller=SIZE, memory=memory, backend=backend)
    return machine, machine(randn(STEPS, BATCH, 3).float(), trace=True)[2]


def rows(figure, word):
    """The rows whose label has a word in it, by the name of their head."""
    labels = {ax: ax.get_ylabel().split("\n") for ax in figure.axes}
    return {label[0]: ax for ax, label in labels.items() if label[1] == word}


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize(("memory", "addressed", "steered"), MEMORIES.values(), ids=MEMORIES)
def test_every_head_is_where_the_trace_has_it(memory, addressed, steered, backend, randn):
    machine, trace = traced(memory, randn, backend)
    figure = trace.plot(sample=1)
    slots, programs = rows(figure, "slot"), rows(figure, "programs")
    assert (list(slots), list(programs)) == (addressed, steered)
    for name, ax in slots.items():
        kind, number = name.split()
        whole = getattr(trace, f"{kind}_addresses")
        assert np.array_equal(ax.images[0].get_array(), whole[:, 1, int(number) - 1].detach().T)
    names = [head.name for head in machine.memory.heads]
    for name, ax in programs.items():
        kind, number = name.split()
        own = f"{kind}{int(number[0]) - 1}"
        control = names.index(own if own in names else kind)
        expected = trace.programs[:, 1, control].detach().cumsum(-1)
        for p, area in enumerate(ax.collections):
            assert area.get_label() == f"program {p + 1}"
            heights = area.get_paths()[0].vertices
            for t in range(STEPS):
                here = heights[np.isclose(heights[:, 0], t + 0.5), 1]  # where step t ends and the next begins
                assert np.isclose(here, expected[t, p], atol=1e-6).any()


def test_a_machine_without_programs_has_rows_of_addresses_only(randn):
    machine = MANN(3, 2, controller=SIZE, memory=NTM(SLOTS, 3))
    figure = machine(randn(STEPS, BATCH, 3).float(), trace=True)[2].plot()
    assert [ax.get_ylabel().replace("\n", " ") for ax in figure.axes] == ["read 1 slot", "write 1 slot"]
    assert figure.axes[-1].get_xlabel() == "step"


def test_an_unbatched_sequence_is_drawn_as_in_a_batch(randn):
    machine = NUTM(3, 2, controller=SIZE, memory=NTM(SLOTS, 3))
    x = randn(STEPS, BATCH, 3).float()
    alone, batched = machine(x[:, 2], trace=True)[2].plot(), machine(x, trace=True)[2].plot(sample=2)
    for ours, theirs in zip(rows(alone, "slot").values(), rows(batched, "slot").values(), strict=True):
        assert np.allclose(ours.images[0].get_array(), theirs.images[0].get_array(), atol=1e-6)


def test_a_sequence_that_ended_is_shown_as_far_as_it_went(randn):
    machine = NUTM(3, 2, controller=SIZE, memory=NTM(SLOTS, 3))
    _, _, trace = machine(randn(STEPS, BATCH, 3).float(), lengths=[STEPS, 4, 2], trace=True)
    figure = trace.plot(1, length=4)
    assert figure.axes[0].get_xlim() == (-0.5, 3.5)
    (shown,) = figure.axes[0].images
    assert np.array_equal(shown.get_array(), trace.read_addresses[:4, 1, 0].detach().T)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sample": BATCH}, r"sample must be an integer from 0 to 2, was 3"),
        ({"sample": -1}, r"sample must be an integer from 0 to 2, was -1"),
        ({"sample": True}, r"sample must be an integer from 0 to 2, was True"),
        ({"length": 0}, r"length must be an integer from 1 to 7, was 0"),
        ({"length": STEPS + 1}, r"length must be an integer from 1 to 7, was 8"),
    ],
)
def test_a_sequence_that_is_not_there_is_refused(how, message, randn):
    _, trace = traced(NTM(SLOTS, 3), randn)
    with pytest.raises(UserError, match=message):
        trace.plot(**how)


def test_a_notebook_is_shown_a_picture(randn):
    _, trace = traced(NTM(SLOTS, 3), randn)
    assert trace.plot()._repr_png_().startswith(b"\x89PNG")
    half = trace._replace(read_addresses=trace.read_addresses.to(torch.bfloat16))  # NumPy has no such type
    assert half.plot()._repr_png_().startswith(b"\x89PNG")
