"""Not in the paper: how much of NUTM's advantage is due to programs, complete machines, length generalisation."""

from __future__ import annotations

import numpy as np

from nsm.experiments import intervals
from nsm.experiments.paper import SEQUENCING, SINGLE
from nsm.experiments.results import Settings
from nsm.experiments.summary import number
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.document import Picture, Table
from nsm.reports.paper.evidence import Evidence, Group
from nsm.reports.paper.section import Part, Section, learning, of_experiment, section

HALVES = {
    "programs": {"ntm": -1.0, "nutm": 1.0},
    "small weights": {"large": -1.0, "small": 1.0},
}
"""The two factors of the factorial comparison, with the sign of each of their values in an effect."""


# --- programs or weights ----------------------------------------------------------------------------------------------


@of_experiment(
    "factorial",
    "Not in the paper: programs or initial weights",
    "The published code initialises an NTM's interfaces with large weights and a NUTM's with small ones. Here both "
    "models are trained with both, to separate the effect of the programs from that of the initial weights. An effect "
    "is the difference in the share of seeds that solve the task, in percentage points with Newcombe's interval, and "
    "the difference in the mean wrong bits per test sequence, negative if there are fewer, with its bootstrap "
    "interval.",
    optional=True,
)
def factorial(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Programs or initial weights? Left out if it has not been run."""
    solving, effects, complete = [], [], 0
    helped: dict[str, list[str]] = {factor: [] for factor in HALVES}
    for (row, model), summary in group.items():
        if solved := summary.solving:
            low, high = intervals.of_share(sum(solved), len(solved))
            name, _, weights = model.partition("-")
            share = f"{sum(solved)} of {len(solved)}", f"{low:.0%} to {high:.0%}"
            solving.append((row, named(name), weights, *share, number(summary.solved_steps, 0)))
    for row in dict.fromkeys(row for row, _ in group):
        cells = {model: summary for (r, model), summary in group.items() if r == row and summary.finished}
        if len(cells) < 4:
            continue
        complete += 1
        for factor in HALVES:
            for words, contrast in _contrasts(factor).items():
                shares = intervals.of_shares([(w, cells[model].solving) for model, w in contrast.items()])
                wrong = intervals.of_means([(w, cells[model].figures) for model, w in contrast.items()])
                effects.append((row, factor, named(words), *shares.texts(0, 100), *wrong.texts(1)))
            if shares.above_zero:  # on average over the other factor, which comes last
                helped[factor].append(row)
    columns = ("task", "model", "initial weights", "seeds that solve it", "95 % interval", "iterations, median")
    caption = "Seeds that solve the task they are trained on."
    blocks = [Table(columns, solving, words=3, caption=caption)]
    headings = ("task", "effect of", "with", "solved (points)", "95 % interval", "wrong bits", "95 % interval (bits)")
    caption = "The effect of each factor for either value of the other, and on average over both."
    blocks.append(Table(headings, effects, words=3, caption=caption))
    told = [f"{factor} in {len(rows)} of {complete} tasks{_listed(rows)}" for factor, rows in helped.items()]
    finding = (
        f"The share of seeds that solve the task rises significantly with {' and with '.join(told)}."
        if complete
        else "No task has been run with all four machines."
    )
    return Part(finding, [], [*blocks, *learning("factorial", settings, group, "wrong bits per test sequence", True)])


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _contrasts(factor: str) -> dict[str, dict[str, float]]:
    """The effect of a factor for either value of the other, then on average: cells with weights."""
    worth, (other,) = HALVES[factor], [halves for name, halves in HALVES.items() if name != factor]
    signs = {f"{m}-{w}": worth.get(m, worth.get(w, 0.0)) for m in HALVES["programs"] for w in HALVES["small weights"]}
    alone = {kept: {model: sign for model, sign in signs.items() if kept in model.split("-")} for kept in other}
    return {**alone, "on average": {model: sign / 2 for model, sign in signs.items()}}


# --- complete machines ------------------------------------------------------------------------------------------------


@of_experiment(
    "complete",
    "Not in the paper: complete machines",
    "The paper stores only the interface networks as programs; storing the state network, too, would encode the whole "
    "machine. Here the state network and the output layer are stored as well, with fewer units, so that both machines "
    "have the same number of weights (within 1 %).",
    optional=True,
)
def complete(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """The effect of storing all networks. Left out if it has not been run."""
    rows: list[tuple[str, ...]] = []
    gaps: list[tuple[str, ...]] = []
    better: dict[str, list[str]] = {"more": [], "less": []}
    for (row, model), summary in group.items():
        if solved := summary.solving:
            stored = "all" if model.endswith("complete") else "interface"
            low, high = intervals.of_share(sum(solved), len(solved))
            weights = f"{summary.finished[0].parameters:,}"
            share = f"{sum(solved)} of {len(solved)}", f"{low:.0%} to {high:.0%}"
            steps, wrong = number(summary.solved_steps, 0), number(summary.median)
            rows.append((row, stored, weights, *share, steps, number(summary.solved_seconds, 0), wrong))
    for row in dict.fromkeys(row for row, _ in group):
        ours, theirs = group.get((row, "nutm-complete")), group.get((row, "nutm"))
        if ours is None or theirs is None or not (ours.finished and theirs.finished):
            continue
        shares = intervals.of_shares([(1.0, ours.solving), (-1.0, theirs.solving)])
        wrong_bits = intervals.of_means([(1.0, ours.figures), (-1.0, theirs.figures)])
        gaps.append((row, *shares.texts(0, 100), *wrong_bits.texts()))
        if shares.above_zero:
            better["more"].append(row)
        elif intervals.of_shares([(1.0, theirs.solving), (-1.0, ours.solving)]).above_zero:
            better["less"].append(row)
    columns = ("task", "stored", "weights", "solved", "95 % interval", "iterations", "seconds", "wrong bits")
    caption = (
        "Seeds that solve the task they are trained on, median iterations and seconds until then, and the median of "
        "wrong bits per test sequence."
    )
    headings = ("task", "solved (points)", "95 % interval", "wrong bits", "95 % interval (bits)")
    blocks = [
        Table(columns, rows, words=2, caption=caption),
        Table(headings, gaps, caption="The effect of storing all networks: all stored − interface stored."),
    ]
    told = " and ".join(f"{how} often in {len(names)}{_listed(names)}" for how, names in better.items())
    finding = (
        f"Complete machines solve the task significantly {told} of {len(gaps)} task{'s' * (len(gaps) != 1)}."
        if gaps
        else "No task has been run with both machines."
    )
    return Part(finding, [], [*blocks, *learning("complete", settings, group, "wrong bits per test sequence")])


# --- longer sequences -------------------------------------------------------------------------------------------------


def longer_sequences(evidence: Evidence) -> Section | None:
    """Length generalisation of every seed, under every preset; left out without runs."""
    rows: list[tuple[str, ...]] = []
    panels: dict[str, dict[tuple[str, str], list[float]]] = {}
    medians: dict[str, list[float]] = {}
    for experiment, tasks in (("single", SINGLE), ("sequencing", SEQUENCING)):
        groups = [found for found in evidence.groups(experiment) if found[0].budget is None]
        for task in (task for task in tasks if task != "ngrams"):
            for model in ("ntm", "nutm"):
                for settings, group in groups:
                    summary = group.get((task, model))
                    if summary is None or not summary.finished:
                        continue
                    wrong = summary.figures
                    low, middle, high = (number(float(bits)) for bits in np.quantile(wrong, (0.25, 0.5, 0.75)))
                    counts = f"{sum(bits < 1 for bits in wrong)}", f"{sum(summary.solving)}", summary.count
                    rows.append((task, named(model), settings.preset, middle, f"{low} to {high}", *counts))
                    panels.setdefault(task, {})[model, settings.preset] = wrong
                    medians.setdefault(settings.preset, []).append(float(np.median(wrong)))
    if not rows:
        return None
    words = (
        "A machine that has learned its task may still fail on longer sequences, and whether it does depends on the "
        "seed. The paper has the best of five seeds; here are all of them, with the paper's settings and with ours "
        "(tapes of random size, and noise on the cell where it helps; see docs/concepts/presets.md)."
    )
    columns = ("task", "model", "settings", "median", "quartiles", "below 1 bit", "solved", "seeds")
    picture = Picture(
        "longer-sequences",
        lambda: figures.seeds(panels),
        "Wrong bits per test sequence. Each point is a seed, each line the median of a model; the axis is linear below "
        "one bit and logarithmic above.",
    )
    caption = "Wrong bits per test sequence, with the best checkpoint of every seed."
    shares = (f"{sum(m < 1 for m in of)} of {len(of)} with {name} settings" for name, of in sorted(medians.items()))
    finding = f"The median seed has less than one wrong bit per test sequence in these cells: {', '.join(shares)}."
    part = Part(finding, [], [Table(columns, rows, words=3, caption=caption), picture])
    return section(
        "Not in the paper: length generalisation, seed by seed", words, part, "The runs of the sections above."
    )
