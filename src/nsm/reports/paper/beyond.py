"""Not in the paper: what of NUTM's advantage is its programs, and how machines do on longer sequences seed by seed."""

from __future__ import annotations

import numpy as np

from nsm.experiments import intervals
from nsm.experiments.paper import SEQUENCING, SINGLE
from nsm.experiments.results import Settings
from nsm.experiments.summary import number
from nsm.reports import figures
from nsm.reports.document import Picture, Table
from nsm.reports.paper.evidence import Evidence, Group
from nsm.reports.paper.section import Part, Section, by_settings, learning, section

HALVES = {
    "programs": {"ntm": -1.0, "nutm": 1.0},
    "small weights": {"large": -1.0, "small": 1.0},
}
"""The two factors of the factorial comparison: which of their two values adds to what they are worth."""


# --- programs or weights ----------------------------------------------------------------------------------------------


def factorial(evidence: Evidence) -> Section | None:
    """Programs or initial weights? Left out where it was not run."""
    found = evidence.groups("factorial")
    paper = (
        "The published code starts an NTM's interfaces with large weights and a NUTM's with small ones. Here both "
        "models have both, to tell the programs' share of the advantage from that of the weights. What each is worth "
        "is a difference: of the shares of seeds that solve the task, in points of a hundred, with its interval by "
        "Newcombe's method; and of the mean wrong bits per test sequence, below zero where there are fewer, with its "
        "bootstrap interval."
    )
    return by_settings("Not in the paper: programs or initial weights", paper, found, _factorial) if found else None


def _factorial(settings: Settings, group: Group) -> Part:
    solving, effects, told = [], [], []
    for (row, model), summary in group.items():
        if solved := summary.solving:
            low, high = intervals.of_share(sum(solved), len(solved))
            name, _, weights = model.partition("-")
            share = f"{sum(solved)} of {len(solved)}", f"{low:.0%} to {high:.0%}"
            solving.append((row, name.upper(), weights, *share, number(summary.solved_steps, 0)))
    for row in dict.fromkeys(row for row, _ in group):
        cells = {model: summary for (r, model), summary in group.items() if r == row and summary.finished}
        if len(cells) < 4:
            continue
        worth = []
        for factor in HALVES:
            for words, contrast in _contrasts(factor).items():
                shares = intervals.of_shares([(w, cells[model].solving) for model, w in contrast.items()])
                wrong = intervals.of_means([(w, cells[model].figures) for model, w in contrast.items()])
                effects.append((row, f"{factor}, {words}", *shares.texts(0, 100), *wrong.texts(1)))
            worth.append(f"{factor} {shares.text(0, 100)}")
        told.append(f"{row}: {', '.join(worth)}")
    columns = ("task", "model", "initial weights", "seeds that solve it", "95 % interval", "iterations, median")
    caption = "How many seeds solve the task of training (validation loss below 0.01)."
    blocks = [Table(columns, solving, words=3, caption=caption)]
    columns = ("task", "what changes", "points", "95 % interval", "wrong bits", "95 % interval of these")
    caption = "What each of the two is worth, while the other stays and on average over it."
    blocks.append(Table(columns, effects, words=2, caption=caption))
    finding = (
        f"Worth in points, on average over the other factor: {'; '.join(told)}."
        if told
        else "No task has been run with all four machines."
    )
    return Part(finding, [], [*blocks, *learning("factorial", settings, group, "wrong bits per test sequence", True)])


def _contrasts(factor: str) -> dict[str, dict[str, float]]:
    """What a factor is worth with either value of the other and on average, as cells with weights."""
    worth, (other,) = HALVES[factor], [halves for name, halves in HALVES.items() if name != factor]
    signs = {f"{m}-{w}": worth.get(m, worth.get(w, 0.0)) for m in HALVES["programs"] for w in HALVES["small weights"]}
    alone = {kept: {model: sign for model, sign in signs.items() if kept in model.split("-")} for kept in other}
    return {**alone, "on average": {model: sign / 2 for model, sign in signs.items()}}


# --- longer sequences -------------------------------------------------------------------------------------------------


def longer_sequences(evidence: Evidence) -> Section | None:
    """How the seeds spread on sequences longer than those trained on, under every preset; left out without runs."""
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
                    rows.append((task, model.upper(), settings.preset, middle, f"{low} to {high}", *counts))
                    panels.setdefault(task, {})[model, settings.preset] = wrong
                    medians.setdefault(settings.preset, []).append(float(np.median(wrong)))
    if not rows:
        return None
    words = (
        "A machine that has learned its task may still fail on longer sequences, and which seed fails is a lottery. "
        "The paper has the best of five seeds; here are all of them, with its settings and with ours (tapes of random "
        "size and noise on the cell where they help; see docs/campaign.md)."
    )
    columns = ("task", "model", "settings", "median", "quartiles", "below 1 bit", "solved", "seeds")
    picture = Picture(
        "longer-sequences",
        lambda: figures.seeds(panels),
        "Wrong bits per test sequence: a point is a seed, the line their median; linear below one bit, logarithmic "
        "above.",
    )
    caption = "Wrong bits per test sequence of every seed's best machine."
    shares = (f"{sum(m < 1 for m in of)} of {len(of)} with {name} settings" for name, of in sorted(medians.items()))
    finding = f"Cells whose median seed has less than one wrong bit: {', '.join(shares)}."
    part = Part(finding, [], [Table(columns, rows, words=3, caption=caption), picture])
    return section("Not in the paper: longer sequences, seed by seed", words, part, "The runs of the sections above.")
