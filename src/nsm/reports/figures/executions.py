"""Executions as in the paper's appendix: input and output, then where each head was and which programs steered it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsm.reports.execution import Array, Execution, HeadTrace
from nsm.reports.figures import style

Row = tuple[float, Callable[[Axes], None]]
"""How high a row is, in inches, and what draws it."""


@style.figure
def execution(run: Execution, title: str = "") -> Figure:
    """Five rows over time: bits, read addresses, read programs, write addresses, write programs.

    A MANN has no programs and three rows; several heads have a row of addresses and of programs each.
    """
    rows: list[Row] = [(1.6, partial(_bits, run=run, target=False))]
    for heads in (run.heads_of("read"), run.heads_of("write")):
        several = len(heads) > 1
        rows += [(0.8 if several else 1.4, partial(_address, head=head, window=run.used_slots())) for head in heads]
        rows += [(0.45 if several else 0.75, partial(_programs, head=head)) for head in _distinct(heads)]
    return _stacked(run, rows, title)


@style.figure
def perseveration(run: Execution, title: str = "") -> Figure:
    """What was asked for beside what was answered, and where the machine read meanwhile."""
    rows: list[Row] = [(2.4, partial(_bits, run=run, target=True))]
    rows += [(1.4, partial(_address, head=head, window=run.used_slots())) for head in run.heads_of("read")]
    return _stacked(run, rows, title)


def caption(run: Execution) -> str:
    """What an execution's figure shows, in words."""
    words = [f"{run.name[0].upper()}{run.name[1:]}: {run.errors:,} of {run.asked:,} {run.unit} are wrong"]
    by_subtask = run.errors_by_subtask()
    if by_subtask:
        shares = (f"{name} {wrong:,} of {bits:,}" for name, (wrong, bits) in by_subtask.items())
        words[0] += f" ({', '.join(shares)})"
    if run.errors:
        words.append(f"wrong {run.unit} are red with a cross")
    words.append("the green line is the start of decoding")
    if len(by_subtask) > 1:
        words.append("dotted lines part subtasks")
    words.append("darker cells on the tape are slots a head attends to more")
    return "; ".join(words) + "."


def _stacked(run: Execution, rows: list[Row], title: str) -> Figure:
    heights = [height for height, _ in rows]
    size = (min(14.0, max(7.5, run.steps * 0.06)), sum(heights) + 0.2 * len(rows) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    axes: list[Axes] = list(grid[:, 0])
    for ax, (_, draw) in zip(axes, rows, strict=True):
        draw(ax)
        _mark(ax, run)
    axes[0].set_xlim(-0.5, run.steps - 0.5)
    axes[-1].set_xlabel("step")
    figure.suptitle(
        title or f"{run.name}: {run.errors:,} of {run.asked:,} {run.unit} wrong", fontsize=10, ha="left", x=0.01
    )
    _name_phases(axes[0], run, room=(size[0] - 2) / 0.07)
    return figure


def _distinct(heads: list[HeadTrace]) -> list[HeadTrace]:
    """Heads with programs of their own; the read heads of a DNC share theirs."""
    kept: list[HeadTrace] = []
    for head in heads:
        if head.programs is not None and all(head.programs is not other.programs for other in kept):
            kept.append(head)
    return kept


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
    """White is 0, black 1 or more; red −1 or less, where there are such numbers. Pale where nothing counts."""
    signed = bool((band < 0).any())
    cmap = (style.SIGNED if signed else style.BITS).with_extremes(bad="#eef0f3")
    ax.imshow(band, aspect="auto", cmap=cmap, vmin=-1 if signed else 0, vmax=1, interpolation="nearest",
              extent=(-0.5, band.shape[1] - 0.5, top + len(band) - 0.5, top - 0.5))  # fmt: skip


def _address(ax: Axes, head: HeadTrace, window: tuple[int, int]) -> None:
    first, length = window
    steps, slots = head.address.shape
    shown = np.take(head.address, np.arange(first, first + length) % slots, axis=1)
    cmap = style.READS if head.kind == "read" else style.WRITES
    ax.imshow(shown.T, aspect="auto", cmap=cmap, vmin=0, vmax=1, interpolation="nearest",
              extent=(-0.5, steps - 0.5, first + length - 0.5, first - 0.5))  # fmt: skip
    every = max(1, 5 * round(length / 20)) if length > 10 else 2
    # Not those just before the tape begins anew: their numbers would lie on that of slot 0.
    ticks = [s for s in range(first, first + length) if s % slots % every == 0 and (-s) % slots not in range(1, every)]
    ax.set_yticks(ticks, [str(slot % slots) for slot in ticks])
    ax.set_ylabel(f"{head.name}\nslot", rotation=0, ha="right", va="center")


def _programs(ax: Axes, head: HeadTrace) -> None:
    assert head.programs is not None
    steps = np.arange(len(head.programs) + 1) - 0.5
    below = np.zeros(len(head.programs))
    for index, weight in enumerate(head.programs.T):
        above = below + weight
        # Points, not paths: those of a thousand steps weigh ten times as much.
        ax.fill_between(steps, np.append(below, below[-1]), np.append(above, above[-1]), step="post", linewidth=0,
                        color=style.colour(index), label=f"program {index + 1}", rasterized=True)  # fmt: skip
        below = above
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 1])
    ax.set_ylabel(f"{head.name}\nprograms", rotation=0, ha="right", va="center")
    handles, labels = ax.get_legend_handles_labels()  # turned round, to stand in the order of the areas
    ax.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=0.8,
              labelspacing=0.2)  # fmt: skip


def _mark(ax: Axes, run: Execution) -> None:
    """The start of decoding as a solid line, other changes of subtask as dotted ones."""
    ax.axvline(run.decoding - 0.5, color=style.DECODING, linewidth=1.6)
    for start, _, _ in run.stretches():
        if start not in (0, run.decoding):
            ax.axvline(start - 0.5, color=style.INK, linewidth=0.7, linestyle=":")


def _name_phases(ax: Axes, run: Execution, room: float) -> None:
    """Above the first row: what is shown and what is asked for, and when; `room` letters fit over all steps."""
    stretches = run.stretches() or [(0, run.decoding, ""), (run.decoding, run.steps, "")]
    for start, end, name in stretches:
        phase = "decoding" if start >= run.decoding else "encoding"
        initials = "".join(word[0] for word in name.split("-") if word).upper()  # as the paper abbreviates: RC
        for words in (f"{name}, {phase}" if name else phase, name or phase[:3], initials):
            if words and (end - start) / run.steps * room > len(words):
                ax.text((start + end - 1) / 2, -1.0, words, ha="center", va="bottom", fontsize=8, color=style.INK)
                break
