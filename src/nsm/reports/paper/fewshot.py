"""Few-shot learning."""

from __future__ import annotations

from nsm.experiments.paper import PUBLISHED_FEW_SHOT
from nsm.experiments.results import Settings
from nsm.experiments.summary import number
from nsm.reports import figures
from nsm.reports.document import Block, Picture, Table
from nsm.reports.paper.claims import Claim, more
from nsm.reports.paper.evidence import Evidence, Group
from nsm.reports.paper.section import Part, Section, by_settings, drawn, spread

PRESENTATIONS = (2, 3, 5)
PUBLISHED = {
    (f"{task}-persistent" if persistent else task, model): numbers
    for (task, model, persistent), numbers in PUBLISHED_FEW_SHOT.items()
}
"""By row and model."""
CLOSE = 2.0
"""Per cent points within which an accuracy counts as reached."""


def few_shot(evidence: Evidence) -> Section:
    """Table 2 and the appendix's figures of test accuracy."""
    paper = (
        "Table 2 has the accuracy at the second, third and fifth presentation of a character, for 5 and 10 "
        "characters an episode, with a memory that is wiped between episodes and with one that is not. NUTM is ahead "
        "of MANN (both on LRUA), most with 10 characters. A number counts as reached by the best seed, within two "
        "points."
    )
    return by_settings("Table 2: few-shot learning", paper, evidence.groups("fewshot"), _part)


def _part(settings: Settings, group: Group) -> Part:
    claims, told = [], []
    for row in dict.fromkeys(row for row, _ in PUBLISHED):
        ours, theirs = (_right(group, row, model) for model in ("nutm", "mann"))
        target = PUBLISHED[row, "nutm"][0]
        best = f"{100 * max(ours):.1f} %, best of {len(ours)}" if ours else ""
        reached = 100 * max(ours) >= target - CLOSE if ours else None
        claims.append(Claim(f"{row}: NUTM reaches {target} % at the second presentation", best, reached))
        claims.append(more(f"{row}: NUTM is ahead of MANN", ours, theirs, 1, 100))
        if ours and theirs:
            told.append(f"{row} {spread(ours, 1, 100)} and {spread(theirs, 1, 100)} %")
    finding = f"Right at the second presentation, NUTM and MANN: {'; '.join(told)}." if told else "There are no runs."
    return Part(finding, claims, _blocks(settings, group))


def _right(group: Group, row: str, model: str, presentation: int = 2) -> list[float]:
    """The accuracies of all seeds at a presentation."""
    return group[row, model].values(f"accuracy/{presentation}") if (row, model) in group else []


def _blocks(settings: Settings, group: Group) -> list[Block]:
    rows = []
    for (row, model), numbers in PUBLISHED.items():
        cells = [row, model.upper()]
        for presentation, percent in zip(PRESENTATIONS, numbers, strict=True):
            cells += [number(percent, 1), spread(_right(group, row, model, presentation), 1, 100)]
        rows.append((*cells, group[row, model].count if (row, model) in group else "0"))
    columns = [f"{name}, {whose}" for name in ("2nd", "3rd", "5th") for whose in ("paper", "ours")]
    caption = "Per cent right; ours is the mean over seeds ± deviation."
    table = Table(("row", "model", *columns, "seeds"), rows, words=2, caption=caption)
    panels: dict[str, dict[str, list[figures.Curve]]] = {}
    for (row, name), summary in group.items():
        panels.setdefault(row, {})[name] = summary.curves
    if not panels:
        return [table]
    lines = [line for models in panels.values() for curves in models.values() for curve in curves for line in curve]
    part, of = ("test", "test") if any("test" in line for line in lines) else ("validation", "validation")
    picture = Picture(
        f"fewshot-{settings.directory}-accuracy",
        lambda: figures.learning_curves(panels, f"{part}/accuracy/2", label="accuracy, 2nd presentation", top=1.0),
        f"Accuracy at the second presentation of a class while training, {settings.words}, on {of} episodes. "
        f"{drawn(panels.values())}",
    )
    return [table, picture]
