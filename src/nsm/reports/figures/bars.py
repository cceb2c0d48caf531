"""Bars with error bars over seeds: continual learning after each task, question answering task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsm.plots import style

Phases = Sequence[Mapping[str, float]]
"""Continual learning of one seed: the accuracy on every task after each."""


@style.figure
def continual(models: Mapping[str, Sequence[Phases]]) -> Figure:
    """A panel after each task with the accuracy on every task, and a last panel with their mean."""
    tasks = list(next(iter(models.values()))[0][0])
    learned = tasks[: min(len(seed) for seeds in models.values() for seed in seeds)]
    figure = Figure(figsize=(2.2 * (len(learned) + 1) + 0.6, 3.2), layout="constrained")
    axes = figure.subplots(1, len(learned) + 1, sharey=True, squeeze=False)[0]
    for phase, (ax, task) in enumerate(zip(axes, learned, strict=False)):
        heights = {model: [[seed[phase][name] for name in tasks] for seed in seeds] for model, seeds in models.items()}
        _bars(ax, [_short(name) for name in tasks], heights)
        ax.set_title(f"after {task}", loc="left")
    averages = {
        model: [[float(np.mean(list(phase.values()))) for phase in seed[: len(learned)]] for seed in seeds]
        for model, seeds in models.items()
    }
    _bars(axes[-1], [f"after {_short(name)}" for name in learned], averages)
    axes[-1].set_title("mean of all tasks", loc="left")
    axes[-1].tick_params(axis="x", labelrotation=35)
    axes[0].set_ylabel("bit accuracy")
    axes[0].set_ylim(0, 1.05)
    for ax in axes:
        ax.axhline(0.5, color=style.FAINT, linewidth=0.8, linestyle=":")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=len(models))
    return figure


@style.figure
def errors_by_task(
    tasks: Sequence[str], models: Mapping[str, Sequence[Sequence[float]]], published: Mapping[str, Sequence[float]]
) -> Figure:
    """Error in per cent on every task: bars are ours, marks are published."""
    figure = Figure(figsize=(max(7.0, 0.62 * len(tasks) + 1), 3.6), layout="constrained")
    ax = figure.subplots()
    if models:
        _bars(ax, tasks, models)
    ax.set_xticks(range(len(tasks)), tasks, rotation=40, ha="right")
    for index, (name, values) in enumerate(published.items()):
        mark = "D_"[index % 2]
        ax.plot(range(len(tasks)), values, mark, color=style.INK, markersize=5 + 5 * (mark == "_"), label=name)
    ax.axhline(5, color=style.FAINT, linewidth=0.8, linestyle=":")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("error (%)")
    ax.legend(loc="upper left")
    return figure


def _bars(ax: Axes, names: Sequence[str], models: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """A group of bars per name: mean ± standard deviation over seeds."""
    width, looks = 0.8 / len(models), style.looks(models)
    for index, (model, seeds) in enumerate(models.items()):
        values = np.array(seeds, dtype=float)
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
        places = np.arange(len(names)) + (index - (len(models) - 1) / 2) * width
        many = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
        ax.bar(places, values.mean(axis=0), width * 0.92, color=looks[model][0],
               label=f"{style.named(model)}, {many}", yerr=spread, error_kw={"linewidth": 1, "capsize": 2})  # fmt: skip
    ax.set_xticks(range(len(names)), names)


def _short(task: str) -> str:
    """As the paper abbreviates: RC for repeat-copy."""
    return "".join(word[0] for word in task.split("-")).upper()
