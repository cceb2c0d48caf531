"""Question answering: all tasks jointly, and one by one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from nsm.checks import UserError
from nsm.experiments import paper as published
from nsm.experiments.results import Settings
from nsm.experiments.summary import number
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.association import associations, usage
from nsm.reports.document import Block, Note, Picture, Table
from nsm.reports.execution import Execution, execute
from nsm.reports.paper.claims import Claim, more
from nsm.reports.paper.evidence import Evidence, Group
from nsm.reports.paper.section import Part, drawn, of_experiment, spread
from nsm.tasks.babi import FAILED, epoch

MODELS = {1: "dnc", 2: "nutm-2", 4: "nutm-4"}
"""By the number of programs."""
TASKS = [title for title, _, _ in published.PUBLISHED_BABI_TASKS]
BEST = [best for _, best, _ in published.PUBLISHED_BABI_TASKS]
MEANS = [mean for _, _, mean in published.PUBLISHED_BABI_TASKS]
"""The paper's errors with four programs: its best run, and the mean over ten."""
ASIDE = 3
"""The task whose training file is partly simulated where the released one is not available."""
STORIES = 50
"""Test stories on which the use of programs is measured."""


@of_experiment(
    "babi",
    "Table 3: question answering",
    "Table 3 has the mean error over the 20 bAbI tasks, trained jointly: more programs help, and four give the best "
    f"mean. The appendix has the error of every task; one with more than {100 * FAILED:g} % counts as failed.",
)
def question_answering(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Table 3 and the appendix's table of all 20 tasks."""
    errors = {programs: _errors(group, model) for programs, model in MODELS.items()}
    means = {programs: [fmean(seed) for seed in seeds] for programs, seeds in errors.items()}
    claims = []
    for programs, mean in published.PUBLISHED_BABI.items():
        limit, ours = mean + published.PUBLISHED_BABI_DEVIATION[programs], means[programs]
        words = f"{_name(programs)}: mean error at most one standard deviation above {mean} %"
        told = f"{spread(ours, 1)} %, {len(ours)} seed{'s' * (len(ours) != 1)}" if ours else ""
        claims.append(Claim(words, told, fmean(ours) <= limit if ours else None))
    claims.append(more("One program has a larger mean error than four", means[1], means[4]))
    known = [f"{spread(ours, 1)} % with p = {programs}" for programs, ours in means.items() if ours]
    finding = f"The mean error is {', '.join(known)}." if known else "No run has finished."
    blocks = [_means_table(group, errors), _task_table(errors), *_under_way(group)]
    blocks += [*_marks(group), *_epochs(settings, group), _tasks_picture(settings, errors)]
    return Part(finding, claims, [*blocks, *_programs(evidence)])


def _name(programs: int) -> str:
    return f"NUTM (DNC core), p = {programs}"


def _errors(group: Group, model: str) -> list[list[float]]:
    """Error on answer words in per cent, all tasks of every seed that was tested on all of them."""
    tests = group["babi", model].tests if ("babi", model) in group else []
    names = [f"word_error/qa{n + 1}" for n in range(len(TASKS))]
    return [[100 * test[name] for name in names] for test in tests if all(name in test for name in names)]


def _without(errors: Sequence[float]) -> float:
    return fmean(error for n, error in enumerate(errors, start=1) if n != ASIDE)


def _failed(errors: Sequence[float]) -> float:
    return float(sum(error > 100 * FAILED for error in errors))


def _marks(group: Group) -> list[Block]:
    """Notes on the data of every result; for unfinished runs, on the data set as it is now."""
    notes: list[str] = []
    for summary in group.values():
        notes += summary.notes
        try:
            notes += [] if summary.notes or summary.finished else summary.cell.experiment.task.notes
        except UserError:
            continue  # the data set is missing
    said = list(dict.fromkeys(notes))
    other = any(f"file of task {ASIDE} is not the released one" in note for note in said)
    mark = f"Task {ASIDE} partly simulated: " if other else ""
    return [Note(f"{mark}{'; '.join(said)}.")] if said else []


def _means_table(group: Group, errors: dict[int, list[list[float]]]) -> Table:
    elsewhere = published.PUBLISHED_BABI_ELSEWHERE.items()
    rows = [(name, f"{mean} ± {sd}", "–", "–", "–", "–", "–") for name, (mean, sd) in elsewhere]
    for programs, mean in published.PUBLISHED_BABI.items():
        seeds, model = errors[programs], ("babi", MODELS[programs])
        best = min(seeds, key=fmean, default=None)
        rows.append(
            (
                _name(programs),
                f"{mean} ± {published.PUBLISHED_BABI_DEVIATION[programs]}",
                number(None if best is None else fmean(best), 1),
                spread([fmean(seed) for seed in seeds], 1),
                spread([_without(seed) for seed in seeds], 1),
                spread([_failed(seed) for seed in seeds], 1),
                group[model].count if model in group else "0",
            )
        )
    columns = ("model", "paper", "best", "mean", f"mean without task {ASIDE}", "tasks failed", "seeds")
    return Table(
        columns,
        rows,
        caption="Mean error over the 20 tasks, per cent of answer words; mean ± standard deviation over seeds.",
    )


def _task_table(errors: dict[int, list[list[float]]]) -> Table:
    best_failed, mean_failed = published.PUBLISHED_BABI_FAILED
    best_mean, mean_mean = published.PUBLISHED_BABI_MEAN
    theirs = [
        (f"{n}: {title}", number(best, 1), f"{mean} ± {published.PUBLISHED_BABI_TASK_DEVIATIONS[n - 1]}")
        for n, (title, best, mean) in enumerate(published.PUBLISHED_BABI_TASKS, start=1)
    ]
    theirs.append(("mean", f"{best_mean}", f"{mean_mean}"))
    theirs.append((f"mean without task {ASIDE}", number(_without(BEST), 1), number(_without(MEANS), 1)))
    theirs.append(("tasks failed", str(best_failed), str(mean_failed)))
    shown = {p: [[*seed, fmean(seed), _without(seed), _failed(seed)] for seed in errors[p]] for p in errors}
    order = sorted(errors, reverse=True)
    best = min(shown[order[0]], key=lambda seed: seed[-3], default=None)
    rows = []
    for n, cells in enumerate(theirs):
        ours = (spread([seed[n] for seed in shown[programs]], 1) for programs in order)
        rows.append((*cells, number(None if best is None else best[n], 1), *ours))
    columns = ("task", "paper, best", "paper, mean", f"best, p = {order[0]}", *(f"mean, p = {p}" for p in order))
    return Table(
        columns,
        rows,
        caption="Error of every task in per cent. The paper's columns have four programs; p is the number of ours.",
    )


def _under_way(group: Group) -> list[Block]:
    """Unfinished runs: the error of every task after their last epoch."""
    last: dict[str, list[float]] = {}
    for (_, model), summary in group.items():
        for record in summary.records:
            if record.outcome is None and record.failure is None and record.evaluations:
                line = record.evaluations[-1]
                of = f"{line['step']:,} of {record.experiment.schedule.iterations:,} iterations"
                found = line["validation"]
                errors = [100 * found[f"word_error/qa{n + 1}"] for n in range(len(TASKS))]
                whose = f"{named(model)}, seed {record.experiment.seed}, {of}"
                last[whose] = [*errors, fmean(errors), _without(errors)]
    names = [*(f"{n}: {title}" for n, title in enumerate(TASKS, start=1)), "mean", f"mean without task {ASIDE}"]
    rows = [(name, *(number(found[n], 1) for found in last.values())) for n, name in enumerate(names)]
    caption = "Runs under way: validation error of every task in per cent after the last epoch."
    return [Table(("task", *last), rows, caption=caption)] if last else []


def _epochs(settings: Settings, group: Group) -> list[Block]:
    curves = {model: summary.curves for (_, model), summary in group.items() if summary.curves}
    if not curves:
        return []
    experiment = next(iter(group.values())).cell.experiment
    across = float(epoch(tuple(range(1, len(TASKS) + 1)), experiment.schedule.batch_size)), "epochs of training stories"
    draw = figures.learning_curves
    label = "validation error"
    words = f"Mean validation error over the 20 tasks during training, {settings.words}. {drawn([curves])}"
    if not any(summary.finished for summary in group.values()):
        words += " No run has finished."
    name = f"babi-{settings.directory}-epochs"
    return [Picture(name, lambda: draw({"babi": curves}, "validation/error", label, 0.6, across), words)]


def _tasks_picture(settings: Settings, errors: dict[int, list[list[float]]]) -> Picture:
    ours = {MODELS[programs]: seeds for programs, seeds in errors.items() if seeds}
    theirs = {"paper, best of 10": BEST, "paper, mean of 10": MEANS}
    names = [f"{n}: {title}" for n, title in enumerate(TASKS, start=1)]
    several = max(map(len, ours.values()), default=0) > 1
    bars = f"Bars are ours, mean{' ± standard deviation' if several else ''} over seeds; marks" if ours else "Marks"
    words = (
        f"Error on each of the 20 tasks, per cent. {bars} are the paper's, with four programs. Above the dotted line, "
        "5 %, a task counts as failed."
    )
    return Picture(f"babi-{settings.directory}-tasks", lambda: figures.errors_by_task(names, ours, theirs), words)


# --- programs ---------------------------------------------------------------------------------------------------------


def _programs(evidence: Evidence) -> list[Block]:
    """Which program the best machine with four programs uses at which kind of word."""
    trained = evidence.machine("babi", "babi", MODELS[4])
    if trained is None:
        return []
    try:
        trained.run.experiment.task.tested.require()
    except UserError:
        return [Note("The table of programs by kind of word needs the data set: run `nsm data fetch babi`.")]
    runs = execute(trained.run.machine(), trained.run.experiment.task.tested, STORIES, memory=False, extremes=False)
    return [program_table(runs)]


def program_table(runs: Sequence[Execution]) -> Table:
    """The mean weight of every program of every head at the words of statements, of questions, and at answers."""
    phases, heads = usage(runs, kinds)
    told = {found.head: found for found in associations(phases, heads)}
    every = np.array([kind for sequence in phases for kind in sequence])
    rows = []
    for head, mixes in heads.items():
        weights = np.concatenate(mixes)
        for n, weight in enumerate(weights.T, start=1):
            means = [f"{weight[every == kind].mean():.2f}" for kind in KINDS]
            rows.append((head, f"program {n}", *means, f"{told[head].bits:.3f}", f"{told[head].chance:.3f}"))
    caption = (
        f"Mean weight of each program at the words of statements, of questions, and at answers, in {len(runs)} test "
        "stories. Bits: mutual information between the head's programs and the kind of word, at most "
        f"{next(iter(told.values())).possible:.2f}. Chance level: the 95th percentile for the strongest head when "
        "the kinds of words are shifted circularly by a random number of steps."
    )
    return Table(("head", "", *KINDS, "bits", "chance level"), rows, words=2, caption=caption)


KINDS = ("statement", "question", "answer")


def kinds(run: Execution) -> list[str]:
    """The kind of word at each step: part of a statement, of a question, or the blank of an answer."""
    shown = [run.words[index] for index in run.inputs.argmax(axis=1)]
    found, start = [""] * run.steps, 0
    for step, word in enumerate(shown):
        if run.counted[step]:
            found[step], start = "answer", step + 1
        elif word in (".", "?"):
            found[start : step + 1] = ["question" if word == "?" else "statement"] * (step + 1 - start)
            start = step + 1
    return found


# --- one by one -------------------------------------------------------------------------------------------------------


@of_experiment(
    "babi-tasks",
    "Not in the paper: bAbI tasks one by one",
    "The paper trains on all tasks jointly. Here a machine with four programs is trained on each task alone.",
    optional=True,
)
def tasks_alone(evidence: Evidence, settings: Settings, group: Group) -> Part:
    """Not in the paper: the tasks of bAbI one by one. Left out if it has not been run."""
    tested = {int(row.split("-")[1]): summary for (row, _), summary in group.items() if summary.figures}
    below = sum(fmean(summary.figures) < FAILED for summary in tested.values())
    rows = []
    for n, summary in tested.items():
        title, best, mean = published.PUBLISHED_BABI_TASKS[n - 1]
        steps = ", ".join(f"{outcome.steps:,}" for outcome in summary.finished)
        ours = spread(summary.figures, 1, 100)
        rows.append((f"{n}: {title}", number(best, 1), number(mean, 1), ours, steps, summary.count))
    columns = ("task", "paper, joint, best", "paper, joint, mean", "ours, alone", "iterations", "seeds")
    caption = "Test error in per cent of machines with four programs, each trained on one task."
    finding = f"{below} of {len(rows)} tasks reach an error below {100 * FAILED:g} % when trained alone."
    return Part(finding, [], [Table(columns, rows, caption=caption)])
