"""A section of the report: what the paper shows, what we found, where that comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean

from nsm.experiments import intervals
from nsm.experiments.paper import cells
from nsm.experiments.summary import number
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Note, Paragraph, Picture, Table, Verdict
from nsm.reports.paper.evidence import Group, Seeds, Settings, commits


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper beside ours."""

    title: str
    paper: str
    """What the paper shows there, in a sentence or two."""
    verdict: Verdict
    sources: str
    """Settings, seeds, budget and commits."""
    blocks: list[Block] = field(default_factory=list)

    def all_blocks(self) -> list[Block]:
        return [Heading(self.title), Paragraph(self.paper), self.verdict, Note(self.sources), *self.blocks]


def sources(settings: Settings | None, seeds: Iterable[Seeds]) -> str:
    """Where the numbers of a group come from, in words."""
    records = [record for cell in seeds for record in cell.records]
    if settings is None or not records:
        return "No runs."
    counts = [len(cell.finished) for cell in seeds]
    budgets = sorted({record.experiment.schedule.iterations for record in records})
    shown = f"{min(counts)}–{max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    word = "seed" if max(counts) == 1 else "seeds"
    iterations = " or ".join(f"{budget:,}" for budget in budgets)
    return (
        f"{settings.words[0].upper()}{settings.words[1:]}; {shown} finished {word} a cell; "
        f"{iterations} iterations a run; commit {commits(records)}."
    )


COLUMNS = (
    "task",
    "model",
    "paper",
    "best Σ|p−y|",
    "best",
    "mean ± sd",
    "median",
    "solved",
    "iterations",
    "seconds",
    "seeds",
)


def cell_table(group: Group, caption: str) -> Table:
    """A line per cell: best, mean and deviation, median, share of seeds solved, and what it took them."""
    rows = []
    for (row, model), seeds in group.items():
        s = seeds.summary
        spread = f" ± {number(s.sd)}" if s.sd is not None else ""
        failed = f" ({s.failed} failed)" if s.failed else ""
        rows.append(
            (
                row,
                model.upper(),
                number(s.cell.published),
                number(s.extra.get("l1_errors")),
                number(s.best),
                f"{number(s.mean)}{spread}",
                number(s.median),
                "–" if s.solved is None else f"{s.solved:.0%}",
                number(s.solved_steps, 0),
                number(s.solved_seconds, 0),
                f"{s.seeds}{failed}",
            )
        )
    return Table(COLUMNS, rows, words=2, caption=caption)


def gap(group: Group, row: str, ours: str = "nutm", theirs: str = "ntm") -> tuple[float, str] | None:
    """Mean of `ours` − mean of `theirs`, and its interval in words; None if one of them has not been run."""
    if (row, ours) not in group or (row, theirs) not in group:
        return None
    mine, other = group[row, ours].summary.figures, group[row, theirs].summary.figures
    if not mine or not other:
        return None
    interval = intervals.of_means([(1, mine), (-1, other)])
    shift = fmean(mine) - fmean(other)
    return shift, "needs five seeds of each" if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def gap_table(group: Group, figure: str) -> Table | None:
    """NUTM − NTM in every row that has both, with a bootstrap interval."""
    rows = []
    for row in dict.fromkeys(row for row, _ in group):
        found = gap(group, row)
        if found is not None:
            rows.append((row, number(found[0]), found[1]))
    if not rows:
        return None
    caption = f"NUTM − NTM: difference of the means over seeds of {figure}, and its 95 % bootstrap interval."
    return Table(("task", "NUTM − NTM", "95 % interval"), rows, caption=caption)


def learning(name: str, settings: Settings, group: Group, figure: str, note: str = "") -> list[Block]:
    """What every experiment with learning curves has: the cells, the gaps, the curves."""
    blocks: list[Block] = [cell_table(group, f"Ours: {figure}; iterations and seconds until solved are medians.")]
    missing = [cell.name for cell in cells(name, settings.preset) if (cell.row, cell.model) not in group]
    if missing:
        blocks.append(
            Note(f"Not yet run with these settings: {', '.join(missing)}. docs/campaign.md says what it takes.")
        )
    if note:
        blocks.append(Note(note))
    gaps = gap_table(group, figure)
    if gaps is not None:
        blocks.append(gaps)
    panels: dict[str, dict[str, list[figures.Curve]]] = {}
    for (row, model), seeds in group.items():
        panels.setdefault(row, {})[model] = seeds.curves
    blocks.append(
        Picture(
            f"{name}-{settings.directory}-curves",
            lambda: figures.learning_curves(panels),
            f"Training loss over iterations, {settings.words}: mean over seeds, and one standard deviation to either "
            "side. Guessing costs 0.69.",
        )
    )
    return blocks


def score(seeds: Seeds) -> tuple[float, float]:
    """How well a cell learned, less is better: the share of seeds that solve it, and the iterations that takes them."""
    s = seeds.summary
    return -(s.solved or 0.0), s.solved_steps if s.solved_steps is not None else float("inf")


def compare(group: Group, row: str, ours: str, theirs: str) -> int | None:
    """1 if one model of a row learned it better than another, −1 if worse, 0 if alike, as where neither learned it.

    None if one of them has not been run.
    """
    pair = [group.get((row, model)) for model in (ours, theirs)]
    if not all(cell is not None and cell.finished for cell in pair):
        return None
    first, second = (score(cell) for cell in pair if cell is not None)
    return (first < second) - (first > second)
