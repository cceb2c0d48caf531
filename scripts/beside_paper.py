"""The plot of README.md: wrong bits on longer sequences, every seed of ours beside the paper's best of five.

    python scripts/beside_paper.py docs/images/beside-paper.png

Reads results/. The figure is the paper's own, Σ|p − y| per test sequence, without a threshold.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nsm.experiments.paper import PUBLISHED_SINGLE

RESULTS = Path(__file__).parents[1] / "results" / "single" / "default"
TASKS = {
    "copy": "Copy\nlength 120",
    "long-copy": "Long Copy\nlength 200",
    "associative-recall": "Associative Recall\n6–20 items",
    "repeat-copy": "Repeat Copy\n10–20 items × times",
}
"""Those that have several seeds with both models, by how they are called."""
MODELS = {"ntm": ("NTM", "#8c1d18"), "nutm": ("NUTM", "#0072b2")}


def errors(task: str, model: str) -> list[float]:
    """One number a seed: that of its best checkpoint."""
    files = sorted((RESULTS / task / model).glob("seed-*.json"))
    outcomes = [json.loads(file.read_text(encoding="utf-8"))["outcome"] for file in files]
    return [outcome["best"]["figures"]["l1_errors"] for outcome in outcomes if outcome is not None]


def draw() -> Figure:
    figure = Figure(figsize=(9, 2.9), dpi=130, layout="constrained")
    random = np.random.default_rng(0)
    for axes, (task, title) in zip(figure.subplots(1, len(TASKS), sharey=True), TASKS.items(), strict=True):
        for place, ((model, (_, colour)), paper) in enumerate(zip(MODELS.items(), PUBLISHED_SINGLE[task], strict=True)):
            ours = errors(task, model)
            across = place + random.uniform(-0.22, 0.22, len(ours))
            axes.plot(across, ours, "o", color=colour, alpha=0.65, markersize=5, markeredgewidth=0)
            axes.plot([place - 0.34, place + 0.34], [np.median(ours)] * 2, color="black", linewidth=1.6)
            axes.plot(place, paper, "D", color="none", markeredgecolor="black", markersize=8, markeredgewidth=1.4)
            axes.text(place, 2400, f"{len(ours)} seeds", ha="center", va="top", fontsize=7.5, color="0.4")
        axes.set_yscale("symlog", linthresh=1, linscale=0.8)
        axes.set_ylim(-0.08, 3000)
        axes.set_yticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
        axes.set_xlim(-0.6, 1.6)
        axes.set_xticks([0, 1], [name for name, _ in MODELS.values()])
        axes.set_title(title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("Σ|p − y| per sequence", fontsize=9)
    figure.legend(
        handles=[
            figure.axes[0].plot([], [], "o", color="0.4", label="nsm, one seed")[0],
            figure.axes[0].plot([], [], color="black", label="nsm, median")[0],
            figure.axes[0].plot([], [], "D", color="none", markeredgecolor="black", label="paper, best of 5")[0],
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    draw().savefig(given.out, metadata={"Software": None})
