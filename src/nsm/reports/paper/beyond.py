"""Not in the paper: what of NUTM's advantage is its programs, and how machines do on longer sequences seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from nsm.experiments import intervals
from nsm.experiments.paper import SEQUENCING, SINGLE
from nsm.experiments.summary import number
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Note, Picture, Table, Verdict
from nsm.reports.paper.claims import MEASURED, NOT_YET
from nsm.reports.paper.evidence import Evidence, Group, Seeds, Settings
from nsm.reports.paper.section import Section, learning, sources

EFFECTS = {
    "programs, small weights": {"nutm-small": 1.0, "ntm-small": -1.0},
    "programs, large weights": {"nutm-large": 1.0, "ntm-large": -1.0},
    "programs, on average": {"nutm-small": 0.5, "ntm-small": -0.5, "nutm-large": 0.5, "ntm-large": -0.5},
    "small weights, NTM": {"ntm-small": 1.0, "ntm-large": -1.0},
    "small weights, NUTM": {"nutm-small": 1.0, "nutm-large": -1.0},
    "small weights, on average": {"ntm-small": 0.5, "ntm-large": -0.5, "nutm-small": 0.5, "nutm-large": -0.5},
}
"""What changes in the factorial comparison, as a sum of cells with weights: those above zero have it."""


# --- programs or weights ----------------------------------------------------------------------------------------------


def factorial(evidence: Evidence) -> Section | None:
    """Programs or initial weights? Left out where it was not run."""
    found = evidence.groups("factorial")
    if not found:
        return None
    paper = (
        "The published code starts an NTM's interfaces with large weights and a NUTM's with small ones. Here both "
        "models have both, to tell the programs' share of the advantage from that of the weights."
    )
    settings, group = found[0]
    section = Section(
        "Not in the paper: programs or initial weights",
        paper,
        _finding(settings, group),
        sources(settings, group.values()),
        _factorial_blocks(settings, group),
    )
    for settings, group in found[1:]:
        heading = Heading(f"Programs or initial weights, {settings.words}", 3)
        note = Note(sources(settings, group.values()))
        section.blocks.extend([heading, _finding(settings, group), note, *_factorial_blocks(settings, group)])
    return section


def _factorial_blocks(settings: Settings, group: Group) -> list[Block]:
    shares = []
    for (row, model), seeds in group.items():
        solved = _solved(seeds)
        if solved:
            low, high = intervals.of_share(sum(solved), len(solved))
            name, _, weights = model.partition("-")
            count = f"{sum(solved)} of {len(solved)}"
            shares.append(
                (row, name.upper(), weights, count, f"{low:.0%} to {high:.0%}", number(seeds.summary.solved_steps, 0))
            )
    effects = [
        (row, words, *_solving(cells), *_longer(cells))
        for row in _rows(group)
        for words, weights in EFFECTS.items()
        if (cells := _weighted(group, row, weights)) is not None
    ]
    columns = ("task", "model", "initial weights", "seeds that solve it", "95 % interval", "iterations, median")
    return [
        Table(
            columns, shares, words=3, caption="How many seeds solve the task of training (validation loss below 0.01)."
        ),
        Table(
            ("task", "what changes", "points", "95 % interval", "wrong bits", "95 % interval of these"),
            effects,
            words=2,
            caption="What each of the two is worth, while the other stays and on average over it: difference of the "
            "shares of seeds that solve the task, in points of a hundred, with its interval by Newcombe's method; and "
            "of the mean wrong bits per test sequence, below zero where there are fewer, with its bootstrap interval.",
        ),
        *learning("factorial", settings, group, "wrong bits per test sequence"),
    ]


def _finding(settings: Settings, group: Group) -> Verdict:
    """What programs and small weights are worth on average over the other, task by task."""
    if settings.budget is not None:
        return Verdict(NOT_YET, f"Only runs cut to {settings.budget:,} iterations, which can't tell.")
    sentences = []
    for row in _rows(group):
        programs, weights = (
            _weighted(group, row, EFFECTS[f"{what}, on average"]) for what in ("programs", "small weights")
        )
        if programs is not None and weights is not None:
            worth = [f"{points} points ({bounds})" for points, bounds in map(_solving, (programs, weights))]
            sentences.append(f"{row}: programs {worth[0]}, small weights {worth[1]}")
    if not sentences:
        return Verdict(NOT_YET, "No task has been run with all four machines.")
    return Verdict(
        MEASURED,
        f"Share of seeds that solve the task, on average over the other factor, with 95 % intervals: "
        f"{'; '.join(sentences)}.",
    )


def _weighted(group: Group, row: str, weights: dict[str, float]) -> list[tuple[float, Seeds]] | None:
    """The cells that are compared and their weights; None if one of them has not been run."""
    found = [(weight, group.get((row, model))) for model, weight in weights.items()]
    cells = [(weight, seeds) for weight, seeds in found if seeds is not None and seeds.finished]
    return cells if len(cells) == len(weights) else None


def _solving(cells: Sequence[tuple[float, Seeds]]) -> tuple[str, str]:
    """The difference of the shares of seeds that solve the task, in points, and its interval."""
    solved = [(weight, _solved(seeds)) for weight, seeds in cells]
    low, high = intervals.of_shares(solved)
    shift = sum(weight * fmean(found) for weight, found in solved)
    return f"{100 * shift:+z.0f}", f"{100 * low:+z.0f} to {100 * high:+z.0f}"


def _longer(cells: Sequence[tuple[float, Seeds]]) -> tuple[str, str]:
    """The difference of the means of wrong bits on test sequences, and its interval."""
    wrong = [(weight, seeds.summary.figures) for weight, seeds in cells]
    bounds = intervals.of_means(wrong)
    shift = sum(weight * fmean(bits) for weight, bits in wrong)
    return f"{shift:+z.1f}", "needs five seeds of each" if bounds is None else f"{bounds[0]:+z.1f} to {bounds[1]:+z.1f}"


def _solved(seeds: Seeds) -> list[bool]:
    """Of every seed that tells, whether it solved its task."""
    return [record.solved for record in seeds.records if record.solved is not None]


def _rows(group: Group) -> list[str]:
    return list(dict.fromkeys(row for row, _ in group))


# --- longer sequences -------------------------------------------------------------------------------------------------


def longer_sequences(evidence: Evidence) -> Section | None:
    """How the seeds spread on sequences longer than those trained on, under every preset; left out without runs."""
    rows: list[tuple[str, ...]] = []
    panels: dict[str, dict[tuple[str, str], list[float]]] = {}
    used: list[Seeds] = []
    for experiment, tasks in (("single", SINGLE), ("sequencing", SEQUENCING)):
        groups = [found for found in evidence.groups(experiment) if found[0].budget is None]
        for task in (task for task in tasks if task != "ngrams"):
            for model in ("ntm", "nutm"):
                for settings, group in groups:
                    seeds = group.get((task, model))
                    if seeds is None or not seeds.finished:
                        continue
                    wrong = seeds.summary.figures
                    rows.append((task, model.upper(), settings.preset, *_spread(wrong), *_counts(seeds)))
                    panels.setdefault(task, {})[model, settings.preset] = wrong
                    used.append(seeds)
    if not rows:
        return None
    words = (
        "A machine that has learned its task may still fail on longer sequences, and which seed fails is a lottery. "
        "The paper has the best of five seeds; here are all of them, with its settings and with ours (tapes of random "
        "size and noise on the cell where they help; see docs/campaign.md)."
    )
    columns = ("task", "model", "settings", "median", "quartiles", "below 1 bit", "solved", "seeds")
    blocks: list[Block] = [
        Table(columns, rows, words=3, caption="Wrong bits per test sequence of every seed's best machine."),
        Picture(
            "longer-sequences",
            lambda: figures.seeds(panels),
            "Wrong bits per test sequence: a point is a seed, the line their median; linear below one bit, logarithmic "
            "above.",
        ),
    ]
    presets = sorted({row[2] for row in rows})
    verdict = Verdict(MEASURED, f"{len(rows)} cells with {' and '.join(presets)} settings.")
    counts = [len(seeds.finished) for seeds in used]
    origin = f"{min(counts)} to {max(counts)} finished seeds a cell; the runs of the sections above."
    return Section("Not in the paper: longer sequences, seed by seed", words, verdict, origin, blocks)


def _spread(wrong: Sequence[float]) -> tuple[str, str]:
    low, middle, high = np.quantile(wrong, (0.25, 0.5, 0.75))
    return number(float(middle)), f"{number(float(low))} to {number(float(high))}"


def _counts(seeds: Seeds) -> tuple[str, str, str]:
    wrong = seeds.summary.figures
    return f"{sum(bits < 1 for bits in wrong)}", f"{sum(_solved(seeds))}", f"{len(wrong)}"
