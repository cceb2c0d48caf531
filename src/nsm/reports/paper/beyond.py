"""Not in the paper: what of NUTM's advantage is its programs, and how machines do on longer sequences seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from nsm.experiments.bootstrap import difference, interval
from nsm.experiments.paper import SEQUENCING, SINGLE
from nsm.experiments.summary import number
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Note, Picture, Table, Verdict
from nsm.reports.paper.claims import MEASURED, NOT_YET
from nsm.reports.paper.evidence import Evidence, Group, Seeds, Settings
from nsm.reports.paper.section import Section, learning, sources

MEASURES = {
    "programs, small weights": ("nutm-small", "ntm-small"),
    "programs, large weights": ("nutm-large", "ntm-large"),
    "small weights, NTM": ("ntm-small", "ntm-large"),
    "small weights, NUTM": ("nutm-small", "nutm-large"),
}
"""What changes between two cells of the factorial comparison: the first has it, the second has not."""


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
            low, high = interval(sum(solved), len(solved))
            name, _, weights = model.partition("-")
            count = f"{sum(solved):.0f} of {len(solved)}"
            shares.append(
                (row, name.upper(), weights, count, f"{low:.0%} to {high:.0%}", number(seeds.summary.solved_steps, 0))
            )
    effects = [
        (row, words, f"{100 * shift:+.0f}", bounds)
        for row in _rows(group)
        for words, (ours, theirs) in MEASURES.items()
        if (found := _effect(group, row, ours, theirs)) is not None
        for shift, bounds in [found]
    ]
    columns = ("task", "model", "initial weights", "seeds that solve it", "95 % interval", "iterations, median")
    return [
        Table(
            columns, shares, words=3, caption="How many seeds solve the task of training (held-out loss below 0.01)."
        ),
        Table(
            ("task", "what changes", "points", "95 % interval"),
            effects,
            words=2,
            caption="What each of the two is worth while the other stays: difference of the shares of seeds that solve "
            "the task, in points of a hundred, with its bootstrap interval.",
        ),
        *learning("factorial", settings, group, "wrong bits per test sequence"),
    ]


def _finding(settings: Settings, group: Group) -> Verdict:
    """What programs and small weights are worth on average over the other, task by task."""
    if settings.budget is not None:
        return Verdict(NOT_YET, f"Only runs cut to {settings.budget:,} iterations, which can't tell.")
    sentences = []
    for row in _rows(group):
        found = [_effect(group, row, *pair) for pair in MEASURES.values()]
        shifts = [effect[0] for effect in found if effect is not None]
        if len(shifts) == len(MEASURES):
            programs, weights = fmean(shifts[:2]), fmean(shifts[2:])
            sentences.append(f"{row}: programs {100 * programs:+.0f} points, small weights {100 * weights:+.0f}")
    if not sentences:
        return Verdict(NOT_YET, "No task has been run with all four machines.")
    return Verdict(
        MEASURED, f"Share of seeds that solve the task, on average over the other factor: {'; '.join(sentences)}."
    )


def _effect(group: Group, row: str, ours: str, theirs: str) -> tuple[float, str] | None:
    """How much larger the first cell's share of solved seeds is, and the interval of that in words."""
    pair = [group.get((row, model)) for model in (ours, theirs)]
    mine, other = (_solved(seeds) if seeds is not None else [] for seeds in pair)
    if not mine or not other:
        return None
    bounds = difference(mine, other)
    words = "needs two seeds of each" if bounds is None else f"{100 * bounds[0]:+.0f} to {100 * bounds[1]:+.0f}"
    return fmean(mine) - fmean(other), words


def _solved(seeds: Seeds) -> list[float]:
    return [float(result["solved_step"] is not None) for result in seeds.finished]


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
    return f"{sum(bits < 1 for bits in wrong)}", f"{sum(_solved(seeds)):.0f}", f"{len(wrong)}"
