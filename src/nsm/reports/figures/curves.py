"""Learning curves: the mean over seeds as a line, one standard deviation to either side as a band."""

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
"""Neighbouring lines are averaged to this many points: the loss of single batches jumps about."""
CHANCE = 0.75
"""The top of the scale unless a curve goes beyond: a little above ln 2, what guessing a bit costs."""


@style.figure
def learning_curves(
    panels: Mapping[str, Mapping[str, Sequence[Curve]]],
    quantity: str = "loss",
    label: str = "training loss (nats per bit)",
    top: float = CHANCE,
) -> Figure:
    """A panel per task, a line per model. `quantity` is "loss", or a figure of an evaluation like "test/accuracy/2"."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(5.0, 3.6 * columns + 0.6), 2.7 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for ax, (name, models) in zip(grid, panels.items(), strict=False):
        looks = style.looks(models)
        for model, curves in models.items():
            _line(ax, model, looks[model], curves, quantity)
        ax.set_title(name, loc="left")
        ax.set_xlabel("iterations (thousands)")
        ax.set_ylabel(label if ax.get_subplotspec().is_first_col() else "")
        highest = max((float(line.get_ydata().max()) for line in ax.lines), default=0.0)
        ax.set_ylim(0, top if highest <= top else 1.05 * highest)
        ax.set_xlim(left=0)
        if ax.lines:
            ax.legend(loc="best")
    for ax in list(figure.axes)[len(panels) :]:
        ax.remove()
    return figure


def _line(ax: Axes, model: str, look: tuple[str, Any], curves: Sequence[Curve], quantity: str) -> None:
    measured = [points for curve in curves if len((points := series(curve, quantity))[0])]
    if not measured:
        return
    steps, mean, spread = average(measured)
    colour, dashes = look
    seeds = f"{len(measured)} seed{'s' if len(measured) > 1 else ''}"
    ax.plot(steps / 1000, mean, color=colour, linestyle=dashes, linewidth=1.6, label=f"{model.upper()}, {seeds}")
    ax.fill_between(steps / 1000, np.maximum(mean - spread, 0), mean + spread, color=colour, alpha=0.18, linewidth=0)


def series(curve: Curve, quantity: str) -> tuple[Array, Array]:
    """Steps and values of one quantity; "test/accuracy/2" is the figure accuracy/2 of the line's test."""
    found = []
    for line in thinned(curve, POINTS):
        part, _, name = quantity.partition("/")
        figures: Any = line.get(part)
        value = figures.get(name) if name and figures is not None else figures
        if value is not None:
            found.append((line["step"], value))
    points = np.array(found, dtype=float).reshape(-1, 2)
    return points[:, 0], points[:, 1]


def average(measured: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """Steps, mean and standard deviation over seeds; a seed counts as far as it was trained."""
    steps = np.unique(np.concatenate([at for at, _ in measured]))
    values = np.array([np.interp(steps, at, value, left=np.nan, right=np.nan) for at, value in measured])
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    mean = np.where(there, values, 0).sum(axis=0) / count
    squares = np.where(there, (values - mean) ** 2, 0).sum(axis=0)
    return steps, mean, np.sqrt(squares / np.maximum(count - 1, 1))
