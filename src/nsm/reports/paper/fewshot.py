"""Few-shot learning."""

from __future__ import annotations

from nsm.experiments.paper import PUBLISHED_FEW_SHOT
from nsm.experiments.results import Settings
from nsm.experiments.summary import number
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.document import Block, Picture, Table
from nsm.reports.paper.claims import Claim, more
from nsm.reports.paper.evidence import Evidence, Group
from nsm.reports.paper.section import Part, drawn, of_experiment, spread

PRESENTATIONS = (2, 3, 5)
PUBLISHED = {
    (f"{task}-persistent" if persistent else task, model): numbers
    for (task, model, persistent), numbers in PUBLISHED_FEW_SHOT.items()
}
"""By row and model."""
CLOSE = 2.0
"""Percentage points within which an accuracy counts as reached."""


@of_experiment(
    "fewshot",
    "Table 2: few-shot learning",
    "Table 2 has the accuracy at the second, third and fifth presentation of a character, for 5 and 10 characters per "
    "episode, with a memory that is wiped between episodes and with one that persists. NUTM is ahead of MANN (both on "
    "LRUA), most clearly with 10 characters. A published number counts as reached if the best seed is within two "
    "points.",
)
def few_shot(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Table 2 and the appendix's figures of test accuracy."""
    reached, ahead = [], []
    for row in dict.fromkeys(row for row, _ in PUBLISHED):
        ours, theirs = (_right(group, row, model) for model in ("nutm", "mann"))
        target = PUBLISHED[row, "nutm"][0]
        best = f"{100 * max(ours):.1f} %, best of {len(ours)}" if ours else ""
        words = f"{row}: NUTM reaches {target} % at the second presentation"
        reached.append(Claim(words, best, 100 * max(ours) >= target - CLOSE if ours else None))
        ahead.append(more(f"{row}: NUTM is ahead of MANN at the second presentation", ours, theirs, 1, 100))
    claims = [claim for pair in zip(reached, ahead, strict=True) for claim in pair]
    held, run = sum(claim.holds is True for claim in reached), sum(claim.holds is not None for claim in reached)
    few = sum(claim.answer == "too few seeds" for claim in ahead)
    finding = (
        f"NUTM reaches the published accuracy at the second presentation in {held} of the {run} rows that were run, "
        "and is significantly ahead of MANN in "
        f"{sum(claim.holds is True for claim in ahead)}{f' (too few seeds for {few})' if few else ''}."
    )
    return Part(finding if run else "", claims, _blocks(settings, group))


def _right(group: Group, row: str, model: str, presentation: int = 2) -> list[float]:
    """The accuracies of all seeds at a presentation."""
    return group[row, model].values(f"accuracy/{presentation}") if (row, model) in group else []


def _blocks(settings: Settings, group: Group) -> list[Block]:
    rows = []
    for (row, model), numbers in PUBLISHED.items():
        cells = [row, named(model)]
        for presentation, percent in zip(PRESENTATIONS, numbers, strict=True):
            cells += [number(percent, 1), spread(_right(group, row, model, presentation), 1, 100)]
        rows.append((*cells, group[row, model].count if (row, model) in group else "0"))
    columns = [f"{name}, {whose}" for name in ("2nd", "3rd", "5th") for whose in ("paper", "ours")]
    caption = (
        "Accuracy in per cent at the second, third and fifth presentation; ours is mean ± standard deviation over "
    )
    table = Table(("row", "model", *columns, "seeds"), rows, words=2, caption=f"{caption}all seeds.")
    panels: dict[str, dict[str, list[figures.Curve]]] = {}
    for (row, name), summary in group.items():
        panels.setdefault(row, {})[name] = summary.curves
    if not panels:
        return [table]
    lines = [line for models in panels.values() for curves in models.values() for curve in curves for line in curve]
    part = "test" if any("test" in line for line in lines) else "validation"
    picture = Picture(
        f"fewshot-{settings.directory}-accuracy",
        lambda: figures.learning_curves(panels, f"{part}/accuracy/2", label="accuracy, 2nd presentation", top=1.0),
        f"Accuracy at the second presentation of a class during training, {settings.words}, on {part} episodes. "
        f"{drawn(panels.values())}",
    )
    return [table, picture]
