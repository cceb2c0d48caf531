"""A section of the report: what the paper shows, what we found, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import NamedTuple

from nsm.experiments import summary
from nsm.experiments.intervals import of_means
from nsm.experiments.paper import cells
from nsm.experiments.results import Settings
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Note, Paragraph, Picture, Table, Verdict
from nsm.reports.paper.claims import Claim, claim_table, judge
from nsm.reports.paper.evidence import Evidence, Group, commits
from nsm.tasks import Measure


class Part(NamedTuple):
    """What the runs with one settings show."""

    finding: str
    """In one sentence; empty if there are no runs."""
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
    finding = part.finding or "There are no runs."
    verdict = judge(part.claims, finding, budget)
    table = [claim_table(part.claims)] if part.claims else []
    return Section(title, paper, verdict, finding, [verdict, *table, *part.blocks, Note(origin)])


def of_experiment(
    experiment: str, title: str, paper: str, optional: bool = False
) -> Callable[[Callable[[Evidence, Settings, Group], Part]], Callable[[Evidence], Section | None]]:
    """A section about one experiment, from a function that reports on its runs with one settings.

    The most informative settings come first, the others below, each with its own verdict. Without runs only the
    paper's numbers are shown, or, if `optional`, there is no section.
    """

    def decorated(report: Callable[[Evidence, Settings, Group], Part]) -> Callable[[Evidence], Section | None]:
        @wraps(report)
        def whole(evidence: Evidence) -> Section | None:
            found = evidence.groups(experiment)
            if optional:
                found = [(s, group) for s, group in found if any(cell.figures for cell in group.values())]
                if not found:
                    return None
            first, *others = found or [(Settings("paper"), {})]
            made = section(title, paper, report(evidence, *first), sources(*first), first[0].budget)
            for settings, group in others:
                below = section("", "", report(evidence, settings, group), sources(settings, group), settings.budget)
                made.blocks.extend([Heading(f"{_capital(title.split(': ')[-1])}, {settings.words}", 3), *below.blocks])
            return made

        return whole

    return decorated


def sources(settings: Settings, group: Group) -> str:
    """Where the numbers of a group come from, in words."""
    records = [record for cell in group.values() for record in cell.records]
    if not records:
        return "No runs."
    counts = [cell.seeds for cell in group.values()]
    budgets = sorted({record.experiment.schedule.iterations for record in records})
    shown = f"{min(counts)}–{max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    made = commits(records)
    return (
        f"{_capital(settings.words)}; {shown} finished seed{'s' * (max(counts) != 1)} per cell; "
        f"{' or '.join(f'{budget:,}' for budget in budgets)} iterations per run; "
        f"commit{'s' * (len(made) > 1)} {', '.join(made)}."
    )


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


# --- tables -----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int = 2, times: float = 1) -> str:
    """Mean ± deviation over seeds; a dash where there are none."""
    return summary.spread([times * value for value in values], Measure("", ""), digits)


def cell_table(group: Group, figure: str) -> Table:
    """A line per cell: best, mean and deviation, median, share of seeds solved, and the cost until then."""
    rows = summary.columns(list(group.values()))
    solved = next(iter(group.values())).cell.experiment.schedule.solved_loss
    names = [(row, named(model)) for row, model in group]
    caption = (
        f"All our seeds: {figure}. A run counts as solved when its validation loss (training lengths) falls below "
        f"{solved:g}; iterations and seconds until then are medians."
    )
    cells = [(*name, *row.values()) for name, row in zip(names, rows, strict=True)]
    return Table(("task", "model", *rows[0]), cells, words=2, caption=caption)


def gap_table(group: Group, figure: str) -> list[Table]:
    """NUTM − NTM in every row that has both, with a bootstrap interval."""
    rows = []
    for row in dict.fromkeys(row for row, _ in group):
        ours, theirs = (group[row, model].figures if (row, model) in group else [] for model in ("nutm", "ntm"))
        if ours and theirs:
            rows.append((row, *of_means([(1, ours), (-1, theirs)]).texts(2)))
    caption = f"Difference between the models' means over all seeds, in {figure}, with its 95 % bootstrap interval."
    return [Table(("task", "NUTM − NTM", "95 % interval"), rows, caption=caption)] if rows else []


def learning(name: str, settings: Settings, group: Group, figure: str, apart: bool = False) -> list[Block]:
    """What every experiment with learning curves has: cells, gaps, curves; `apart`: each model in its own panel."""
    if not group:
        return []
    blocks: list[Block] = [cell_table(group, figure)]
    missing = [cell.name for cell in cells(name, settings.preset) if (cell.row, cell.model) not in group]
    if missing:
        blocks.append(
            Note(f"Not yet run with these settings: {', '.join(missing)}. See docs/results/cost.md for the cost.")
        )
    return [*blocks, *gap_table(group, figure), curves(f"{name}-{settings.directory}-curves", group, settings, apart)]


def curves(name: str, group: Group, settings: Settings, apart: bool = False) -> Picture:
    """The training losses of all seeds."""
    panels: dict[str, dict[str, list[figures.Curve]]] = {}
    for (row, model), cell in group.items():
        panels.setdefault(f"{row}, {named(model)}" if apart else row, {})[model] = cell.curves
    widest = 3 if not apart else max(len([1 for r, _ in group if r == row]) for row, _ in group)
    draw = figures.learning_curves
    return Picture(
        name,
        lambda: draw(panels, columns=widest if widest <= 4 else 3),
        f"Training loss over iterations, {settings.words}. Chance level is 0.69. {drawn(panels.values())}",
    )


def drawn(panels: Iterable[dict[str, list[figures.Curve]]]) -> str:
    """What the lines of learning curves are, for a caption."""
    counts = [len(curves) for models in panels for curves in models.values()]
    if max(counts, default=0) < figures.MEDIAN:
        return "Each line is a seed."
    few = f" Models with fewer than {figures.MEDIAN} seeds have no median." if min(counts) < figures.MEDIAN else ""
    return f"Thin lines are seeds, thick lines their median.{few}"
