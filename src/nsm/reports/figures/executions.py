"""Executions as in the paper's appendix: input and output, then where each head was and which programs steered it."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsm.plots import style
from nsm.plots.heads import used_slots
from nsm.plots.rows import Row, address, head_columns, stacked
from nsm.reports.execution import ANSWERING, READING, Array, Execution


@style.figure
def execution(run: Execution, title: str = "") -> Figure:
    """Five rows over time: bits, read addresses, read programs, write addresses, write programs.

    A MANN has no programs, and so three rows. With several heads, each has a row of addresses and one of programs; with
    many, read heads and write heads are in two columns.
    """
    bits: Row = (1.6, partial(_bits, run=run, target=False))
    return _stacked(run, [[bits, *rows] for rows in head_columns(run.heads)], title)


@style.figure
def perseveration(run: Execution, title: str = "") -> Figure:
    """Targets beside outputs, and where the machine was reading."""
    rows: list[Row] = [(2.4, partial(_bits, run=run, target=True))]
    rows += [(1.4, partial(address, head=head, window=used_slots(run.heads))) for head in run.heads_of("read")]
    return _stacked(run, [rows], title)


def caption(run: Execution) -> str:
    """What the figure of an execution shows, in words."""
    words = [f"{run.name[0].upper()}{run.name[1:]}: {run.errors:,} of {run.asked:,} {run.unit} are wrong"]
    by_subtask = run.errors_by_subtask()
    if by_subtask:
        shares = (f"{name} {wrong:,} of {bits:,}" for name, (wrong, bits) in by_subtask.items())
        words[0] += f" ({', '.join(shares)})"
    if run.errors:
        words.append(f"wrong {run.unit} are red with a cross")
    words.append("answering begins at the green line")
    if len(by_subtask) > 1:
        words.append("dotted lines separate subtasks")
    words.append("darker slots have more of a head's weight")
    first, length = used_slots(run.heads)
    if first < 0 or first + length > run.heads[0].address.shape[1]:
        words.append("the tape is a ring, so slots before slot 0 have negative numbers")
    return "; ".join(words) + "."


def _stacked(run: Execution, columns: list[list[Row]], title: str) -> Figure:
    figure, axes = stacked(columns, run.steps, above=0.5)
    for column in axes:
        for ax in column:
            _mark(ax, run)
        _name_phases(column[0], run, room=(figure.get_figwidth() / len(axes) - 2) / 0.07)
    figure.suptitle(
        title or f"{run.name}: {run.errors:,} of {run.asked:,} {run.unit} wrong", fontsize=10, ha="left", x=0.01
    )
    return figure


def _bits(ax: Axes, run: Execution, target: bool) -> None:
    """Inputs, targets if wanted, and answers, one row of cells a channel; wrong bits in red with a cross."""
    asked = np.where(run.counted, run.targets.T, np.nan)
    answered = np.where(run.counted, run.answers.T, np.nan)
    bands = [("input", run.inputs.T), *([("target", asked)] if target else []), ("output", answered)]
    ticks, top = [], 0
    for name, band in bands:
        _cells(ax, band, top)
        ticks.append((top + (len(band) - 1) / 2, name))
        top += len(band) + 1
    where, when = np.nonzero(run.wrong.T)
    first = top - 1 - run.answers.shape[1]
    wrong = np.where(run.wrong.T, 1.0, np.nan)
    ax.imshow(wrong, aspect="auto", cmap=style.MISTAKES, vmin=0, vmax=1, interpolation="nearest",
              extent=(-0.5, run.steps - 0.5, top - 1.5, first - 0.5))  # fmt: skip
    size = max(0.8, min(4.0, 260 / run.steps))
    ax.plot(
        when,
        where + first,
        "x",
        color="white",
        markersize=size,
        markeredgewidth=size / 6,
        label="wrong bits",
        rasterized=True,
    )
    ax.set_ylim(top - 1.5, -0.5)
    ax.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    ax.tick_params(axis="y", length=0)


def _cells(ax: Axes, band: Array, top: int) -> None:
    """White is 0, black is 1 or more, red is −1 or less if there are negative numbers; pale where nothing counts."""
    signed = bool((band < 0).any())
    cmap = (style.SIGNED if signed else style.BITS).with_extremes(bad="#eef0f3")
    ax.imshow(band, aspect="auto", cmap=cmap, vmin=-1 if signed else 0, vmax=1, interpolation="nearest",
              extent=(-0.5, band.shape[1] - 0.5, top + len(band) - 0.5, top - 0.5))  # fmt: skip


def _mark(ax: Axes, run: Execution) -> None:
    """A solid line where answering begins, dotted lines where the subtask changes."""
    ax.axvline(run.decoding - 0.5, color=style.DECODING, linewidth=1.6)
    for start, _, _ in run.stretches():
        if start not in (0, run.decoding):
            ax.axvline(start - 0.5, color=style.INK, linewidth=0.7, linestyle=":")


def _name_phases(ax: Axes, run: Execution, room: float) -> None:
    """Name the phases above the first row; `room` letters fit over all steps."""
    stretches = run.stretches() or [(0, run.decoding, ""), (run.decoding, run.steps, "")]
    for start, end, name in stretches:
        phase = ANSWERING if start >= run.decoding else READING
        initials = "".join(word[0] for word in name.split("-") if word).upper()  # as the paper abbreviates: RC
        for words in (f"{name}, {phase}" if name else phase, name or phase.split()[0], initials):
            if words and (end - start) / run.steps * room > len(words):
                ax.text((start + end - 1) / 2, -1.0, words, ha="center", va="bottom", fontsize=8, color=style.INK)
                break
