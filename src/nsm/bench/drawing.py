"""The times as a figure: a row for every shape, a marker for every system, and the bound from arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from nsm.plots.style import FAINT, INK, colour, figure

MARKS = "os^Dvp"


@figure
def picture(rows: Sequence[dict[str, Any]]) -> Figure:
    """µs per time step of the whole batch, on a logarithmic axis; systems that were not timed have no marker."""
    timed = [row for row in rows if row["failure"] is None]
    systems: dict[str, list[float | None]] = {
        "training loop": [row["loop_us"] for row in timed],
        "public API": [row["public_us"] for row in timed],
        "inference": [row["inference_us"] for row in timed],
    }
    titles = {peer["name"]: peer["title"] for row in timed for peer in row["peers"] if peer["us"] is not None}
    for name, title in titles.items():
        systems[title] = [next((peer["us"] for peer in row["peers"] if peer["name"] == name), None) for row in timed]
    drawn = Figure(figsize=(8, 1.4 + 0.36 * len(timed)), layout="constrained")
    axes = drawn.subplots()
    places = range(len(timed))
    axes.hlines(places, 0, 1, transform=axes.get_yaxis_transform(), color=FAINT, linewidth=0.3, zorder=0)
    axes.plot(
        [row["limit_us"] for row in timed],
        places,
        "|",
        color=INK,
        markersize=14,
        label="bound: operations at GEMM speed",
    )
    for index, (title, times) in enumerate(systems.items()):
        shown = [float("nan") if time is None else time for time in times]
        axes.plot(shown, places, MARKS[index % len(MARKS)], color=colour(index), label=title)
    axes.set_xscale("log")
    axes.set_yticks(places, [f"{row['shape']}, batch {row['batch']}" for row in timed])
    axes.set_ylim(len(timed) - 0.5, -0.5)
    axes.set_xlabel("µs per time step of the whole batch")
    drawn.legend(loc="outside upper center", ncols=4)
    return drawn
