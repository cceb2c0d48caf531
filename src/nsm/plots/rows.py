"""Rows over time, one above the other: where each head was, and the programs that steered it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nsm.plots import style
from nsm.plots.heads import Array, HeadTrace, by_programs, used_slots

Row = tuple[float, Callable[[Axes], None]]
"""How high a row is, in inches, and what draws it."""


class Plot(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        return style.rendered(self, "png")


@style.figure
def heads_over_time(heads: Sequence[HeadTrace], others: Sequence[tuple[str, Array]] = ()) -> Plot:
    """Where each head was, and by which programs; then those (T, P) of other parts of a controller, by their name."""
    rows: list[Row] = [(0.75, partial(programs, name=name, weights=mix)) for name, mix in others]
    plot, _ = stacked([*head_rows(heads), *rows], len(heads[0].address))
    return plot


def head_rows(heads: Sequence[HeadTrace]) -> list[Row]:
    """Read addresses, read programs, write addresses, write programs; several heads have a row of each."""
    rows: list[Row] = []
    window = used_slots(heads)
    for kind in ("read", "write"):
        mine = [head for head in heads if head.kind == kind]
        several = len(mine) > 1
        rows += [(0.8 if several else 1.4, partial(address, head=head, window=window)) for head in mine]
        rows += [
            (0.45 if several else 0.75, partial(programs, name=name, weights=mix)) for name, mix in by_programs(mine)
        ]
    return rows


def stacked(rows: Sequence[Row], steps: int, above: float = 0.0) -> tuple[Plot, list[Axes]]:
    """The rows on a common axis of time, with `above` inches of room over them."""
    heights = [height for height, _ in rows]
    size = (min(14.0, max(7.5, steps * 0.06)), sum(heights) + 0.2 * len(rows) + 0.4 + above)
    plot = Plot(figsize=size, layout="constrained")
    grid = plot.subplots(len(rows), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    axes: list[Axes] = list(grid[:, 0])
    for ax, (_, draw) in zip(axes, rows, strict=True):
        draw(ax)
    axes[0].set_xlim(-0.5, steps - 0.5)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    return plot, axes


def address(ax: Axes, head: HeadTrace, window: tuple[int, int]) -> None:
    """Steps to the right, slots of the window downwards: the darker, the more a head attends to one."""
    first, length = window
    steps, slots = head.address.shape
    shown = np.take(head.address, np.arange(first, first + length) % slots, axis=1)
    cmap = style.READS if head.kind == "read" else style.WRITES
    ax.imshow(shown.T, aspect="auto", cmap=cmap, vmin=0, vmax=1, interpolation="nearest",
              extent=(-0.5, steps - 0.5, first + length - 0.5, first - 0.5))  # fmt: skip
    every = max(1, 5 * round(length / 20)) if length > 10 else 2
    ticks = [slot for slot in range(first, first + length) if slot % slots % every == 0]
    # Not one just before the tape begins anew: its number would lie on that of slot 0.
    crowded = {slot for slot, following in pairwise(ticks) if following - slot < every}
    ticks = [slot for slot in ticks if slot not in crowded]
    ax.set_yticks(ticks, [str(slot % slots) for slot in ticks])
    ax.set_ylabel(f"{head.name}\nslot", rotation=0, ha="right", va="center")


def programs(ax: Axes, name: str, weights: Array) -> None:
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
    handles, labels = ax.get_legend_handles_labels()  # turned round, to stand in the order of the areas
    ax.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=0.8,
              labelspacing=0.2)  # fmt: skip
