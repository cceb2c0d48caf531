"""Every seed as a point, to show what means and deviations hide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from nsm.plots import style

Machine = tuple[str, str]
"""A model and the settings it was trained with."""
FILLED = "default"
"""The settings whose points are filled; those of others are rings."""


@style.figure
def seeds(panels: Mapping[str, Mapping[Machine, Sequence[float]]], label: str = "wrong bits per sequence") -> Figure:
    """A panel per task, a column of points per machine with a line at the median; one logarithmic scale above 1."""
    widest = max(map(len, panels.values()))
    largest = max(value for machines in panels.values() for values in machines.values() for value in values)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(5.0, 3.6 * columns + 0.6), 2.7 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for ax, (task, machines) in zip(axes.flat, panels.items(), strict=False):
        looks = style.looks(model for model, _ in machines)
        for place, ((model, settings), values) in enumerate(machines.items()):
            colour, inside = looks[model][0], "full" if settings == FILLED else "none"
            # Side by side in the order of seeds: equal points stay visible, and the figure is deterministic.
            spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
            ax.plot(place + spread, values, "o", color=colour, fillstyle=inside, markersize=4, clip_on=False)
            ax.plot([place - 0.32, place + 0.32], [median(values)] * 2, color=style.INK, linewidth=1.4)
        names = [f"{style.named(model)}, {settings}" for model, settings in machines]
        ax.set_xticks(range(len(machines)), names, rotation=30, ha="right")
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(0, 1.5 * max(largest, 1))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xlim(-0.6, widest - 0.4)
        ax.set_title(task, loc="left")
        ax.set_ylabel(label if ax.get_subplotspec().is_first_col() else "")
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    return figure
