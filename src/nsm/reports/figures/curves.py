"""Learning curves: a thin line per seed, since some seeds learn and some don't, and a thick line for their median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsm.experiments.results import thinned
from nsm.plots import style
from nsm.reports.execution import Array
from nsm.training.run import Line

Curve = list[Line]
"""Lines of metrics of one seed."""
POINTS = 80
"""Neighbouring lines are averaged to this many points: the loss of single batches is noisy."""
CHANCE = 0.75
"""The top of the scale unless a curve exceeds it: a little above ln 2, chance level for a bit."""
MEDIAN = 3
"""The median is drawn for at least this many seeds."""
THOUSANDS = 1000.0, "iterations (thousands)"


@style.figure
def learning_curves(
    panels: Mapping[str, Mapping[str, Sequence[Curve]]],
    quantity: str = "loss",
    label: str = "training loss (nats per bit)",
    top: float = CHANCE,
    across: tuple[float, str] = THOUSANDS,
    columns: int = 3,
) -> Figure:
    """A panel per task, a colour per model. `quantity` is "loss", or one of an evaluation like "test/accuracy/2".

    `across` is the number of steps in one unit of the x axis, and its label.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(5.0, 3.6 * columns + 0.6), 2.7 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flat
    looks = style.looks(dict.fromkeys(model for models in panels.values() for model in models))
    for ax, (name, models) in zip(grid, panels.items(), strict=False):
        for model, curves in models.items():
            _seeds(ax, model, looks[model], [series(curve, quantity, across[0]) for curve in curves])
        ax.set_title(name, loc="left")
        ax.set_xlabel(across[1])
        ax.set_ylabel(label if ax.get_subplotspec().is_first_col() else "")
        highest = max((float(line.get_ydata().max()) for line in ax.lines), default=0.0)
        ax.set_ylim(0, top if highest <= top else 1.05 * highest)
        ax.set_xlim(left=0)
        if ax.lines:
            ax.legend(loc="best")
    for ax in list(figure.axes)[len(panels) :]:
        ax.remove()
    return figure


def _seeds(ax: Axes, model: str, look: tuple[str, Any], measured: Sequence[tuple[Array, Array]]) -> None:
    measured = [points for points in measured if len(points[0])]
    many = len(measured) >= MEDIAN
    colour, dashes = look
    label = f"{style.named(model)}, {len(measured)} seed{'s' if len(measured) > 1 else ''}"
    for number, (steps, values) in enumerate(measured):
        ax.plot(steps, values, color=colour, linestyle="-" if many else dashes, linewidth=0.6 if many else 1.4,
                alpha=0.5 if many else 1.0, label=label if number == 0 and not many else None)  # fmt: skip
    if many:
        ax.plot(*median(measured), color=colour, linestyle=dashes, linewidth=2.0, label=f"{label}, median")


def series(curve: Curve, quantity: str, unit: float = 1.0) -> tuple[Array, Array]:
    """Steps and values of one quantity; "test/accuracy/2" is the figure accuracy/2 of the line's test."""
    found = []
    for line in thinned(curve, POINTS):
        part, _, name = quantity.partition("/")
        figures: Any = line.get(part)
        value = figures.get(name) if name and figures is not None else figures
        if value is not None:
            found.append((line["step"] / unit, value))
    points = np.array(found, dtype=float).reshape(-1, 2)
    return points[:, 0], points[:, 1]


def median(measured: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Steps and the median over the seeds that were trained that far, the lower of two in the middle."""
    steps = np.unique(np.concatenate([at for at, _ in measured]))
    values = np.array([np.interp(steps, at, value, left=np.nan, right=np.nan) for at, value in measured])
    return steps, np.nanquantile(values, 0.5, axis=0, method="lower")
