"""A section of the report: what the paper shows, what we found, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nsm.experiments import summary
from nsm.experiments.intervals import of_means
from nsm.experiments.paper import cells
from nsm.experiments.results import Settings
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Note, Paragraph, Picture, Table, Verdict
from nsm.reports.paper.claims import Claim, claim_table, judge
from nsm.reports.paper.evidence import Group, commits
from nsm.tasks import Measure


class Part(NamedTuple):
    """What runs with some settings came to."""

    finding: str
    """In one sentence."""
    claims: list[Claim]
    blocks: list[Block]


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper beside ours."""

    title: str
    paper: str
    """What the paper shows there, in a sentence or two."""
    verdict: Verdict
    finding: str
    blocks: list[Block] = field(default_factory=list)

    def all_blocks(self) -> list[Block]:
        return [Heading(self.title), Paragraph(self.paper), *self.blocks]


def section(title: str, paper: str, part: Part, origin: str, budget: int | None = None) -> Section:
    """A section with its verdict; where its numbers come from is a footnote."""
    verdict = judge(part.claims, part.finding, budget)
    table = [claim_table(part.claims)] if part.claims else []
    return Section(title, paper, verdict, part.finding, [verdict, *table, *part.blocks, Note(origin)])


def by_settings(
    title: str,
    paper: str,
    found: Sequence[tuple[Settings, Group]],
    part: Callable[[Settings, Group], Part],
) -> Section:
    """A section of the most telling settings, and those of the others below it, each with a verdict of its own."""
    # Without runs the paper's numbers stand alone.
    first, *others = found or [(Settings("paper"), {})]
    whole = section(title, paper, part(*first), sources(*first), first[0].budget)
    for settings, group in others:
        below = section("", "", part(settings, group), sources(settings, group), settings.budget)
        name = title.split(": ")[-1]
        whole.blocks.extend([Heading(f"{name[0].upper()}{name[1:]}, {settings.words}", 3), *below.blocks])
    return whole


def sources(settings: Settings, group: Group) -> str:
    """Where the numbers of a group come from, in words."""
    records = [record for cell in group.values() for record in cell.records]
    if not records:
        return "No runs."
    counts = [cell.seeds for cell in group.values()]
    budgets = sorted({record.experiment.schedule.iterations for record in records})
    shown = f"{min(counts)}–{max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    word = "seed" if max(counts) == 1 else "seeds"
    iterations = " or ".join(f"{budget:,}" for budget in budgets)
    return (
        f"{settings.words[0].upper()}{settings.words[1:]}; {shown} finished {word} a cell; "
        f"{iterations} iterations a run; commit {commits(records)}."
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int = 2, times: float = 1) -> str:
    """Mean ± deviation over seeds; a dash where there are none."""
    return summary.spread([times * value for value in values], Measure("", ""), digits)


def cell_table(group: Group, figure: str) -> Table:
    """A line per cell: best, mean and deviation, median, share of seeds solved, and what it took them."""
    rows = summary.columns(list(group.values()))
    names = [(row, model.upper()) for row, model in group]
    caption = f"Ours, all seeds: {figure}; iterations and seconds until solved are medians."
    cells = [(*name, *row.values()) for name, row in zip(names, rows, strict=True)]
    return Table(("task", "model", *rows[0]), cells, words=2, caption=caption)


def gap_table(group: Group, figure: str) -> list[Table]:
    """NUTM − NTM in every row that has both, with a bootstrap interval."""
    rows = []
    for row in dict.fromkeys(row for row, _ in group):
        ours, theirs = (group[row, model].figures if (row, model) in group else [] for model in ("nutm", "ntm"))
        if ours and theirs:
            rows.append((row, *of_means([(1, ours), (-1, theirs)]).texts(2)))
    caption = f"NUTM − NTM: difference of the means over seeds of {figure}, and its 95 % bootstrap interval."
    return [Table(("task", "NUTM − NTM", "95 % interval"), rows, caption=caption)] if rows else []


def learning(name: str, settings: Settings, group: Group, figure: str, apart: bool = False) -> list[Block]:
    """What every experiment with learning curves has: cells, gaps, curves; `apart`: every model in its own panel."""
    if not group:
        return []
    blocks: list[Block] = [cell_table(group, figure)]
    missing = [cell.name for cell in cells(name, settings.preset) if (cell.row, cell.model) not in group]
    if missing:
        blocks.append(
            Note(f"Not yet run with these settings: {', '.join(missing)}. docs/campaign.md says what it takes.")
        )
    return [*blocks, *gap_table(group, figure), curves(f"{name}-{settings.directory}-curves", group, settings, apart)]


def curves(name: str, group: Group, settings: Settings, apart: bool = False) -> Picture:
    """The training losses of all seeds."""
    panels: dict[str, dict[str, list[figures.Curve]]] = {}
    for (row, model), cell in group.items():
        panels.setdefault(f"{row}, {model.upper()}" if apart else row, {})[model] = cell.curves
    widest = 3 if not apart else max(len([1 for r, _ in group if r == row]) for row, _ in group)
    draw = figures.learning_curves
    return Picture(
        name,
        lambda: draw(panels, columns=widest if widest <= 4 else 3),
        f"Training loss over iterations, {settings.words}. Guessing costs 0.69. {drawn(panels.values())}",
    )


def drawn(panels: Iterable[dict[str, list[figures.Curve]]]) -> str:
    """What the lines of learning curves are, for a caption."""
    counts = [len(curves) for models in panels for curves in models.values()]
    if max(counts, default=0) < figures.MEDIAN:
        return "A line is a seed."
    return "Thin lines are seeds, thick ones their median" + (
        "." if min(counts) >= figures.MEDIAN else f"; where there are fewer than {figures.MEDIAN}, a line is a seed."
    )
