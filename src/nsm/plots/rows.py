"""Rows over time, one above the other: where each head was, and the programs that steered it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nsm.plots import style
from nsm.plots.heads import Array, HeadTrace, by_programs, used_slots

MOST = 4
"""Maximum number of heads in one column, so that a figure fits a slide."""
LOW = 80
"""Height in pixels below which an axis gets at most three numbers."""
Row = tuple[float, Callable[[Axes], None]]
"""How high a row is, in inches, and what draws it."""


class Plot(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        return style.rendered(self, "png")


@style.figure
def heads_over_time(heads: Sequence[HeadTrace], others: Sequence[tuple[str, Array]] = ()) -> Plot:
    """Where each head was and which programs it used; below, the programs (T, P) of other parts of a controller."""
    columns = head_columns(heads)
    if others:
        below: list[Row] = [(0.75, partial(programs, name=name, weights=mix)) for name, mix in others]
        columns = [[*(row for rows in columns for row in rows), *below]]
    plot, _ = stacked(columns, len(heads[0].address))
    return plot


def head_columns(heads: Sequence[HeadTrace]) -> list[list[Row]]:
    """Addresses and programs of the read heads, then of the write heads; side by side if there are many.

    A head's programs stand under its addresses.
    """
    window = used_slots(heads)
    kinds = [[head for head in heads if head.kind == kind] for kind in ("read", "write")]
    several, many = max(map(len, kinds)) > 1, len(heads) > MOST
    columns = []
    for mine in kinds:
        rows: list[Row] = []
        mixes = by_programs(mine)
        for n, head in enumerate(mine):
            high = 1.75 / len(mine) if many else 0.8 if several else 1.4
            rows.append((high, partial(address, head=head, window=window)))
            # Heads that share programs have them under the last.
            below = mixes[n : n + 1] if len(mixes) == len(mine) else mixes if head is mine[-1] else []
            rows += [
                (high / 1.75 if many else 0.45 if several else 0.75,
                 partial(programs, name=name, weights=mix, legend=n == 0 or not many))
                for name, mix in below
            ]  # fmt: skip
        columns.append(rows)
    return columns if many and len(columns[0]) == len(columns[1]) else [[row for rows in columns for row in rows]]


def stacked(columns: Sequence[Sequence[Row]], steps: int, above: float = 0.0) -> tuple[Plot, list[list[Axes]]]:
    """Columns of as many rows each, on a common axis of time, with `above` inches of room over them."""
    heights = [max(height for height, _ in row) for row in zip(*columns, strict=True)]
    width = min(14.0 if len(columns) == 1 else 7.0, max(7.5 if len(columns) == 1 else 6.6, steps * 0.06))
    size = (width * len(columns), sum(heights) + 0.2 * len(heights) + 0.4 + above)
    plot = Plot(figsize=size, layout="constrained")
    grid = plot.subplots(len(heights), len(columns), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    axes: list[list[Axes]] = [list(grid[:, n]) for n in range(len(columns))]
    for column, rows in zip(axes, columns, strict=True):
        for ax, (_, draw) in zip(column, rows, strict=True):
            draw(ax)
        column[0].set_xlim(-0.5, steps - 0.5)
        column[-1].set_xlabel("step")
        column[-1].xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    return plot, axes


def address(ax: Axes, head: HeadTrace, window: tuple[int, int]) -> None:
    """Steps to the right, slots of the window upwards: the darker, the more a head attends to one.

    The tape is a ring: a window around its end shows the slots before slot 0 as −1, −2, ….
    """
    first, length = window
    steps, slots = head.address.shape
    if first + length > slots:
        first -= slots
    shown = np.take(head.address, np.arange(first, first + length) % slots, axis=1)
    cmap = style.READS if head.kind == "read" else style.WRITES
    ax.imshow(shown.T, aspect="auto", cmap=cmap, vmin=0, vmax=1, interpolation="nearest", origin="lower",
              extent=(-0.5, steps - 0.5, first - 0.5, first + length - 0.5))  # fmt: skip
    ax.yaxis.set_major_locator(MaxNLocator(3 if ax.bbox.height < LOW else "auto", integer=True, steps=[1, 2, 5, 10]))
    ax.set_ylabel(f"{head.name}\nslot", rotation=0, ha="right", va="center")


def programs(ax: Axes, name: str, weights: Array, legend: bool = True) -> None:
    """The weights (T, P) of the programs, stacked to 1."""
    steps = np.arange(len(weights) + 1) - 0.5
    below = np.zeros(len(weights))
    for index, weight in enumerate(weights.T):
        above = below + weight
        # Points, not paths: those of a thousand steps weigh ten times as much.
        ax.fill_between(steps, np.append(below, below[-1]), np.append(above, above[-1]), step="post", linewidth=0,
                        color=style.colour(index), label=f"program {index + 1}", rasterized=True)  # fmt: skip
        below = above
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 1])
    ax.set_ylabel(f"{name}\nprograms", rotation=0, ha="right", va="center")
    if legend:
        handles, labels = ax.get_legend_handles_labels()  # reversed, to match the order of the areas
        ax.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=0.8,
                  labelspacing=0.2)  # fmt: skip
