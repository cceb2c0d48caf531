"""The synthetic tasks: single tasks, the ablation, sequences of tasks, continual learning."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from nsm.experiments import params
from nsm.experiments.intervals import best_of
from nsm.experiments.paper import PUBLISHED_SINGLE, SEQUENCING, SINGLE
from nsm.experiments.results import Settings
from nsm.experiments.summary import number
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.document import Block, Note, Picture, Table
from nsm.reports.paper.claims import Claim, best_within, more, oftener
from nsm.reports.paper.evidence import Evidence, Group
from nsm.reports.paper.section import Part, Section, learning, of_experiment, section, spread

PUBLISHED_SEEDS = 5
"""The paper has the best of this many runs; the best of more runs would be better by chance."""
TOLERANCE = 1.05, 0.5
"""A published number is reached within five per cent, or half a bit where it is small."""
WRONG = "wrong bits per test sequence"


def parameters() -> Section:
    """The appendix's tables of hyper-parameters."""
    rows = params.table()
    table = Table(
        ("row", "model", "paper", "ours"),
        [(row.row, named(row.model), f"{row.published:,}", f"{row.ours:,}") for row in rows],
        words=2,
        caption="Trainable parameters of every machine in the paper.",
    )
    equal = sum(row.ours == row.published for row in rows)
    claims = [Claim("Every parameter count matches", f"{equal} of {len(rows)}", equal == len(rows))]
    notes: list[Block] = [Note(f"{row.row}, {named(row.model)}: {row.note}.") for row in rows if row.note]
    words = "The appendix has the number of parameters of every machine. The notes list errors that the counts reveal."
    finding = f"{equal} of {len(rows)} published parameter counts match exactly."
    return section("Appendix: parameters", words, Part(finding, claims, [table, *notes]), "Counted, not trained.")


def _values(group: Group, row: str, model: str, figure: str = "") -> list[float]:
    """A figure of every seed of a cell, by default the one it is judged by; empty if it was not run."""
    summary = group.get((row, model))
    return [] if summary is None else summary.values(figure) if figure else summary.figures


def _solving(group: Group, row: str, model: str) -> list[bool]:
    """Whether each seed of a cell solved its task."""
    return group[row, model].solving if (row, model) in group else []


def _held(claims: list[Claim]) -> int:
    return sum(claim.holds is True for claim in claims)


# --- single tasks -----------------------------------------------------------------------------------------------------


@of_experiment(
    "single",
    "Table 1 and Figure 2 (a): single tasks",
    "Table 1 has the bit errors of the best of five runs on sequences longer than those trained on; Figure 2 (a) has "
    "the learning curves. NUTM with two programs is at least as good as NTM in every task and learns faster in all "
    "but Copy. Like the paper's table, the claims are about the best of five seeds; with more seeds, a claim holds if "
    "it does in most draws of five. The tables below them are about all seeds. A published number counts as reached "
    "within 5 % or half a bit, and NUTM as no worse than NTM within half a bit.",
)
def single(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Table 1 and Figure 2 (a)."""
    reached, ahead = ([claim(group, task) for task in SINGLE] for claim in (_reached, _no_worse))
    claims = [claim for pair in zip(reached, ahead, strict=True) for claim in pair]
    if not group:
        rows = [(task, number(ntm), number(nutm)) for task, (ntm, nutm) in PUBLISHED_SINGLE.items()]
        return Part("", claims, [Table(("task", "NTM, paper", "NUTM, paper"), rows)])
    finding = (
        f"The best of five NUTM seeds reaches the published number in {_held(reached)} of {len(SINGLE)} tasks and is "
        f"no worse than the best of five NTM seeds in {_held(ahead)}."
    )
    note = Note(
        "The paper's bit error is Σ|p−y|, without a threshold; compare it with the column “best Σ|p−y|”. For N-grams "
        "compare the column “best”, cross-entropy in bits; “optimum” is the best possible. All other figures count "
        "bits after thresholding."
    )
    return Part(
        finding, claims, [note, *learning("single", settings, group, f"{WRONG} (N-grams: bits of cross-entropy)")]
    )


def _papers(group: Group, task: str, model: str) -> list[float]:
    """The seeds of a task by the measure of the paper's table."""
    return _values(group, task, model, "cross_entropy_bits" if task == "ngrams" else "l1_errors")


def _reached(group: Group, task: str) -> Claim:
    published = PUBLISHED_SINGLE[task][1]
    limit = max(TOLERANCE[0] * published, published + TOLERANCE[1])
    words = f"{task}: the best of five NUTM seeds reaches {number(published)}"
    return best_within(words, _papers(group, task, "nutm"), [(limit, 1.0)], PUBLISHED_SEEDS)


def _no_worse(group: Group, task: str) -> Claim:
    theirs = _papers(group, task, "ntm")
    limits = [(value + TOLERANCE[1], p) for value, p in best_of(theirs, PUBLISHED_SEEDS)] if theirs else []
    words = f"{task}: the best of five NUTM seeds is no worse than the best of five NTM seeds"
    return best_within(words, _papers(group, task, "nutm"), limits, PUBLISHED_SEEDS)


# --- ablation ---------------------------------------------------------------------------------------------------------

ABLATION = {
    "direct": "direct attention (DA)",
    "key-value": "key-value attention without the loss on keys (KV)",
    "uniform": "uniform programs (UP)",
    "ntm": "NTM",
    "ntm-2-heads": "NTM with two heads",
}


@of_experiment(
    "ablation",
    "Figure 2 (b): ablation",
    "Figure 2 (b) has the learning curves on Associative Recall with one part removed at a time: direct attention "
    "learns fast but stops early, key-value attention converges, the loss on keys helps further, and uniform programs "
    "and a second head fall behind. Here the claims compare the shares of seeds that solve the task, in percentage "
    "points, with Newcombe's interval.",
)
def ablation(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Figure 2 (b)."""
    row = "associative-recall"
    nutm = _solving(group, row, "nutm")
    claims = [
        oftener(f"NUTM solves it more often than {words}", nutm, _solving(group, row, model))
        for model, words in ABLATION.items()
    ]
    behind = [words for words, claim in zip(ABLATION.values(), claims, strict=True) if claim.holds]
    finding = (
        f"NUTM solves Associative Recall in {sum(nutm)} of {len(nutm)} seeds, significantly more often than "
        f"{len(behind)} of {len(claims)} variants{': ' * bool(behind)}{', '.join(behind)}."
    )
    return Part(finding if nutm else "", claims, learning("ablation", settings, group, WRONG, apart=True))


# --- sequencing -------------------------------------------------------------------------------------------------------


@of_experiment(
    "sequencing",
    "Figure 4: sequences of tasks",
    "Figure 4 has the learning curves on sequences of tasks whose order is given at the beginning. NTM gets stuck in "
    "one of the subtasks; NUTM learns to switch programs when a new subtask begins. The claims are about the seeds "
    "that solve the sequence.",
)
def sequencing(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Figure 4."""
    mostly, ahead = [], []
    for task in SEQUENCING:
        nutm, ntm = (_solving(group, task, model) for model in ("nutm", "ntm"))
        told, most = (f"{sum(nutm)} of {len(nutm)} seeds", sum(nutm) > len(nutm) / 2) if nutm else ("", None)
        mostly.append(Claim(f"{task}: NUTM solves it in most seeds", told, most))
        ahead.append(oftener(f"{task}: NUTM solves it more often than NTM", nutm, ntm))
    claims = [claim for pair in zip(mostly, ahead, strict=True) for claim in pair]
    few = sum(claim.answer == "too few seeds" for claim in ahead)
    finding = (
        f"NUTM solves {_held(mostly)} of {len(SEQUENCING)} sequences in most seeds, and {_held(ahead)} significantly "
        f"more often than NTM{f' (too few seeds for {few})' if few else ''}."
    )
    return Part(finding if group else "", claims, learning("sequencing", settings, group, WRONG))


# --- continual --------------------------------------------------------------------------------------------------------


LINES = {
    "ntm": ("continual", "ntm"),
    "nutm": ("continual", "nutm"),
    "ntm, ewc": ("continual-ewc", "ntm"),
    "repertoire": ("continual-growing", "ntm"),
    "repertoire, labels": ("continual-labels", "ntm"),
}
"""What the figure shows; the last three are not in the paper (docs/howto/continual-learning.md)."""
READINGS = {
    "continual": "feed-forward controller, hard choices, as in the text",
    "continual-lstm": "LSTM controller, as in the parameter count",
    "continual-noisy": "Gumbel noise on probabilities at temperature 10, as in the published code",
}


def _other_readings(group: Group) -> Iterator[Claim]:
    """The same claim for runs that read the paper in another way, if there are any."""
    if lstm := _values(group, "continual-lstm", "nutm"):
        yield more(
            "The same with the LSTM of the paper's parameter count", lstm, _values(group, "continual-lstm", "ntm"), 3
        )
    if noisy := _values(group, "continual-noisy", "nutm"):
        ntm = _values(group, "continual", "ntm")
        yield more("The same with the published code's choice of programs", noisy, ntm, 3)


@of_experiment(
    "continual",
    "Figure 5: continual learning",
    "Figure 5 has the accuracy on four tasks that are learned one after another. NUTM, with one program per task "
    "chosen by hard attention, forgets less than NTM, and does not forget Copy after Repeat Copy.",
)
def continual(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Figure 5."""
    phases = {
        line: [outcome.phases for outcome in group[cell].finished]
        for line, cell in LINES.items()
        if cell in group and group[cell].finished
    }
    # A run cut to fewer iterations than there are tasks has learned the first of them only.
    learned = min((len(seed) for seeds in phases.values() for seed in seeds), default=0)
    nutm, ntm = (_values(group, "continual", model) for model in ("nutm", "ntm"))
    still = [next(iter(seed[1].values())) for seed in phases.get("nutm", []) if learned > 1]
    claims = [
        more("NUTM is more accurate than NTM after the last task, mean over the four tasks", nutm, ntm, 3),
        *_other_readings(group),
        Claim(
            "NUTM still copies perfectly (99 %) after Repeat Copy",
            f"{fmean(still):.3f}, mean of {len(still)} seed{'s' * (len(still) != 1)}" if still else "",
            fmean(still) > 0.99 if still else None,
        ),
    ]
    if not phases:
        return Part("", claims, [])
    means = [f"{number(fmean(_values(group, *LINES[line])), 3)} ({named(line)})" for line in phases]
    tasks = list(next(iter(phases.values()))[0][0])
    rows = [
        (named(line), after, *(number(mean[task], 3) for task in tasks), group[LINES[line]].count)
        for line in phases
        for after, mean in zip(tasks[:learned], group[LINES[line]].phases, strict=False)
    ]
    columns = ("model", "after", *tasks, "seeds")
    table = Table(columns, rows, words=2, caption="Bit accuracy on every task after each was learned, mean over seeds.")
    readings = Table(
        ("reading", "model", "after the last task", "seeds"),
        [
            (reading, named(model), spread(values, 3), str(len(values)))
            for row, reading in READINGS.items()
            for model in ("ntm", "nutm")
            if (values := _values(group, row, model))
        ],
        words=2,
        caption="The paper can be read in three ways: mean accuracy over the four tasks, mean ± standard deviation "
        "over seeds.",
    )
    several = any(len(seeds) > 1 for seeds in phases.values())
    picture = Picture(
        f"continual-{settings.directory}",
        lambda: figures.continual(phases),
        f"Bit accuracy on every task (abbreviated by initials) after each was learned, {settings.words}; right: their "
        f"mean. {'Error bars are one standard deviation over seeds. ' if several else ''}The dotted line is chance "
        "level.",
    )
    *first, last = means
    listed = f"{', '.join(first)} and {last}" if first else last
    finding = f"After the last task the mean bit accuracy is {listed}."
    return Part(finding, claims, [table, *([readings] if readings.rows else []), picture])
