"""What is in the axes of an execution's figure is what is in the execution."""

from dataclasses import replace

import numpy as np
import pytest

from nsm.plots import style
from nsm.reports import figures


def labelled(figure, word):
    """The axes whose label has a word in it."""
    return [ax for ax in figure.axes if word in ax.get_ylabel()]


def test_five_rows_in_the_order_of_the_paper(known):
    figure = figures.execution(known)
    labels = [ax.get_ylabel().replace("\n", " ") for ax in figure.axes]
    assert labels == ["", "read 1 slot", "read 1 programs", "write 1 slot", "write 1 programs"]


def test_a_machine_without_programs_has_three(plain):
    labels = [ax.get_ylabel().replace("\n", " ") for ax in figures.execution(plain[0]).axes]
    assert labels == ["", "read 1 slot", "write 1 slot"]


def test_inputs_and_answers_are_the_cells_of_the_first_row(known):
    ax = figures.execution(known).axes[0]
    inputs, answers, wrong = (np.ma.filled(image.get_array(), np.nan) for image in ax.images)
    assert np.array_equal(inputs, known.inputs.T)
    assert np.isnan(answers[:, :3]).all(), "before decoding nothing is answered"
    assert np.array_equal(answers[:, 3:], known.answers[3:].T)
    assert np.argwhere(wrong == 1).tolist() == [[1, 4]]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["input", "output"]


def test_wrong_bits_are_crossed_where_they_are(known):
    ax = figures.execution(known).axes[0]
    (crosses,) = [line for line in ax.lines if line.get_label() == "wrong bits"]
    inputs, gap = 2, 1
    assert crosses.get_xdata().tolist() == [4]
    assert crosses.get_ydata().tolist() == [inputs + gap + 1]


def test_the_target_stands_between_input_and_output_where_perseveration_is_shown(known):
    figure = figures.perseveration(known)
    ax = figure.axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["input", "target", "output"]
    assert np.array_equal(np.ma.filled(ax.images[1].get_array(), np.nan)[:, 3:], known.targets[3:].T)
    assert [ax.get_ylabel().split("\n")[0] for ax in figure.axes[1:]] == ["read 1"]


def test_addresses_are_on_a_scale_from_0_to_1_and_go_around_the_tape(known):
    long = np.zeros((6, 40), np.float32)
    long[np.arange(6), [38, 39, 0, 1, 2, 3]] = 1
    run = replace(known, heads=(replace(known.heads[0], address=long),))
    (ax,) = labelled(figures.execution(run), "slot")
    (image,) = ax.images
    assert image.get_clim() == (0, 1)
    assert np.array_equal(image.get_array(), np.roll(long, 4, axis=1)[:, :10].T)
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-0.5, 5.5, -4.5, 5.5)


def test_slots_read_upwards_and_those_before_the_first_are_negative(known):
    long = np.zeros((6, 40), np.float32)
    long[np.arange(6), [38, 39, 0, 1, 2, 3]] = 1
    (ax,) = labelled(figures.execution(replace(known, heads=(replace(known.heads[0], address=long),))), "slot")
    (image,) = ax.images
    assert image.origin == "lower"
    low, high = ax.get_ylim()
    assert low < high
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert ticks == sorted(ticks)
    assert ax.yaxis.get_major_formatter().format_ticks(ticks) == [f"{tick:.0f}".replace("-", "−") for tick in ticks]
    lowest = int(low + 0.5)
    for step, slot in enumerate([-2, -1, 0, 1, 2, 3]):
        assert image.get_array()[slot - lowest, step] == 1


def test_many_heads_stand_side_by_side_and_fit_a_slide(known):
    read, write = known.heads
    heads = [replace(read, name=f"read {n}", programs=read.programs.copy()) for n in range(1, 6)]
    heads += [replace(write, name=f"write {n}", programs=write.programs.copy()) for n in range(1, 6)]
    figure = figures.execution(replace(known, heads=tuple(heads)))
    assert np.all(figure.get_size_inches() <= (13.4, 7.5))
    for word in ("slot", "programs"):
        columns = {kind: set() for kind in ("read", "write")}
        for ax in labelled(figure, word):
            columns[ax.get_ylabel().split()[0]].add(ax.get_subplotspec().colspan.start)
        assert columns == {"read": {0}, "write": {1}}
        assert len(labelled(figure, word)) == 10
    assert sum(ax.get_legend() is not None for ax in figure.axes) == 2, "programs are named once a column"


def test_programs_are_stacked_shares(known):
    ax = labelled(figures.execution(known), "programs")[0]
    first, second = ax.collections
    assert [area.get_label() for area in (first, second)] == ["program 1", "program 2"]
    for step, share in enumerate(known.heads[0].programs[:, 0]):
        heights = [y for path in first.get_paths() for x, y in path.vertices if abs(x - (step - 0.5)) < 1e-6]
        assert np.isclose(max(heights), max(share, known.heads[0].programs[max(step - 1, 0), 0]))
        tops = [y for path in second.get_paths() for x, y in path.vertices if abs(x - (step - 0.5)) < 1e-6]
        assert np.isclose(max(tops), 1)
    assert ax.get_ylim() == (0, 1)


def test_decoding_and_subtasks_are_marked_in_every_row(known):
    for ax in figures.execution(known).axes:
        solid = [line for line in ax.lines if line.get_color() == style.DECODING]
        assert [line.get_xdata()[0] for line in solid] == [2.5]
        dotted = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"]
        assert dotted == [0.5, 3.5]


def test_every_head_has_its_rows(traced):
    run = traced.executions[0]
    figure = figures.execution(run)
    slots = labelled(figure, "slot")
    assert [ax.get_ylabel().split("\n")[0] for ax in slots] == [head.name for head in run.heads]
    own = {id(head.programs) for head in run.heads}
    assert len(labelled(figure, "programs")) == len(own)


def test_the_caption_counts_what_is_seen(known):
    words = figures.caption(known)
    assert "1 of 6 bits are wrong (copy 0 of 2, repeat-copy 1 of 4)" in words
    assert "red" in words
    perfect = replace(known, answers=known.targets)
    assert "0 of 6 bits" in figures.caption(perfect)
    assert "red" not in figures.caption(perfect)
    assert "negative" not in figures.caption(known)
    around = np.zeros((6, 40), np.float32)
    around[np.arange(6), [38, 39, 0, 1, 2, 3]] = 1
    assert "negative" in figures.caption(replace(known, heads=(replace(known.heads[0], address=around),)))


@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")])
def test_files_are_what_their_names_say_and_the_same_every_time(known, tmp_path, suffix, begins):
    paths = [figures.save(figures.execution(known), tmp_path / name / f"figure{suffix}") for name in ("a", "b")]
    assert paths[0].read_bytes().startswith(begins)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_names_with_markup_are_inert(known, tmp_path):
    path = figures.save(
        figures.execution(replace(known, name="<script>alert(1)</script> $x$ & co")), tmp_path / "f.svg"
    )
    assert "<script" not in path.read_text()
    assert "&lt;script" in path.read_text()


def test_colours_are_told_apart_by_the_colour_blind():
    """Distances in Oklab after simulating each kind of dichromacy (Machado, Oliveira & Fernandes 2009)."""
    simulations = {
        "normal": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    }
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    lab = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])

    def seen(colour, simulation):
        light = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        light = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
        return lab @ np.cbrt(cones @ np.clip(np.asarray(simulation) @ light, 0, 1))

    for name, simulation in simulations.items():
        for i, one in enumerate(style.SERIES):
            for other in style.SERIES[:i]:
                distance = np.linalg.norm(seen(one, simulation) - seen(other, simulation))
                assert distance > 0.1, f"{one} and {other} look alike: {name} {distance:.3f}"
