"""The controller's states in two dimensions: do they cluster, and by what?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nsm.plots import style
from nsm.reports.execution import Array, Execution

MOST = 1_500
"""The silhouette compares all pairs of states, so it is computed from at most this many, evenly spaced."""


def processing_states(runs: Sequence[Execution]) -> tuple[Array, list[str], Array]:
    """States (n, size), the phase of each, and its position in the sequence, 0 to 1.

    The phase includes the subtask where there are several: "copy, answering". Steps outside any phase are left out.
    """
    states, labels, times = [], [], []
    for run in runs:
        doing = run.doing()
        told = np.flatnonzero([bool(phase) for phase in doing])
        states.append(run.controller[told])
        labels += [doing[step] for step in told]
        times.append(told / max(1, run.steps - 1))
    return np.concatenate(states), labels, np.concatenate(times)


def principal_components(states: Array, count: int = 2) -> tuple[Array, Array]:
    """(n, count) coordinates along the directions of largest variance, and the share of variance of each."""
    centred = states - states.mean(axis=0)
    _, scale, directions = np.linalg.svd(centred.astype(float), full_matrices=False)
    # A direction may point either way; the largest entry is made positive, so that a figure is always the same.
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    coordinates: Array = centred @ (directions * signs[:, None])[:count].T
    return coordinates, (scale**2 / (scale**2).sum())[:count]


def silhouette(states: Array, labels: Sequence[str]) -> float:
    """The mean silhouette of labelled states: 1 for tight clusters far apart, 0 for none, below 0 for wrong ones.

    For one state it is (b − a) / max(a, b), with a its mean distance to others of its label and b to those of the
    nearest other label; 0 if it is the only one with its label (Rousseeuw 1987).
    """
    every = np.unique(np.linspace(0, len(states) - 1, min(MOST, len(states))).astype(int))
    points, kinds = states[every].astype(float), np.array(labels)[every]
    names = np.unique(kinds)
    if len(names) < 2:
        return 0.0
    squares = (points**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
    np.fill_diagonal(distance, 0)
    members = (kinds[:, None] == names).astype(float)  # (n, labels)
    totals, sizes, own = distance @ members, members.sum(axis=0), members > 0
    alone = sizes[own.argmax(axis=1)] == 1
    inside = totals[own] / np.maximum(sizes[own.argmax(axis=1)] - 1, 1)
    outside = np.where(own, np.inf, totals / sizes).min(axis=1)
    scores = np.where(alone, 0.0, (outside - inside) / np.maximum(np.maximum(inside, outside), 1e-12))
    return float(scores.mean())


@style.figure
def states(panels: Mapping[str, Sequence[Execution]]) -> Figure:
    """A panel per machine: c_t along its first two principal components, coloured by phase; earlier is paler."""
    figure = Figure(figsize=(4.4 * len(panels) + 0.4, 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (name, runs) in zip(axes, panels.items(), strict=True):
        points, labels, times = processing_states(runs)
        places, shares = principal_components(points)
        kinds = sorted(set(labels))
        for index, kind in enumerate(kinds):
            mine = np.array(labels) == kind
            full = np.array(to_rgb(style.colour(index)))
            strength = (0.25 + 0.75 * times[mine])[:, None]
            ax.scatter(*places[mine].T, s=9, color=1 - strength * (1 - full), label=kind, linewidths=0,
                       marker="o^sDvP"[index % 6], rasterized=True)  # fmt: skip
        ax.set_title(f"{name}: silhouette {silhouette(points, labels):.2f}", loc="left")
        ax.set_xlabel(f"first component ({shares[0]:.0%} of variance)")
        ax.set_ylabel(f"second ({shares[1]:.0%})")
        handles = [
            Line2D([], [], marker="o^sDvP"[i % 6], linestyle="", color=style.colour(i), label=kind, markersize=5)
            for i, kind in enumerate(kinds)
        ]
        ax.legend(handles=handles, loc="best")
    return figure
