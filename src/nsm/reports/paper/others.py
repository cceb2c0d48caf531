"""Few-shot learning and question answering. Their results are read by the names of their figures alone."""

from __future__ import annotations

from statistics import fmean, stdev

from nsm.experiments import paper as published
from nsm.experiments.summary import number
from nsm.reports import figures
from nsm.reports.document import Block, Heading, Note, Picture, Table, Verdict
from nsm.reports.paper.claims import MEASURED, Claim, claim_table, judge
from nsm.reports.paper.evidence import Evidence, Group, Seeds, Settings
from nsm.reports.paper.section import Section, sources

PRESENTATIONS = (2, 3, 5)
FEW_SHOT = {
    (f"{task}-persistent" if persistent else task, model): numbers
    for (task, model, persistent), numbers in published.PUBLISHED_FEW_SHOT.items()
}
"""By row and model."""
BABI = {1: "dnc", 2: "nutm-2", 4: "nutm-4"}
"""The models of the three numbers of programs."""
TASKS = [title for title, _, _ in published.PUBLISHED_BABI_TASKS]
FAILED = 5.0
"""A task with a larger error, in per cent, counts as failed."""
CLOSE = 2.0
"""Per cent points within which an accuracy counts as reached."""


def _spread(values: list[float], digits: int = 1) -> str:
    deviation = f" ± {number(stdev(values), digits)}" if len(values) > 1 else ""
    return f"{number(fmean(values), digits)}{deviation}"


def _percent(seeds: Seeds, name: str) -> list[float]:
    """A figure of every seed's best machine, in per cent."""
    return [100 * figures[name] for figures in seeds.scores if name in figures]


def few_shot(evidence: Evidence) -> Section:
    """Table 2 and the appendix's figures of test accuracy."""
    found = evidence.groups("fewshot")
    settings, group = found[0] if found else (None, {})
    paper = (
        "Table 2 has the accuracy at the second, third and fifth presentation of a character, for 5 and 10 "
        "characters an episode, with a memory that is wiped between episodes and with one that is not. NUTM is ahead "
        "of MANN (both on LRUA), most with 10 characters."
    )
    claims = _few_shot_claims(group)
    blocks = [claim_table(claims), *_few_shot_blocks(settings, group)]
    for other, more in found[1:]:
        blocks += [Heading(f"Few-shot learning, {other.words}", 3), Note(sources(other, more.values()))]
        blocks += _few_shot_blocks(other, more)
    return Section(
        "Table 2: few-shot learning",
        paper,
        judge(claims, settings),
        sources(settings, group.values()),
        blocks,
    )


def _few_shot_claims(group: Group) -> list[Claim]:
    claims = []
    for row in dict.fromkeys(row for row, _ in FEW_SHOT):
        best = {}
        for model in ("mann", "nutm"):
            seeds = group.get((row, model))
            values = _percent(seeds, "accuracy/2") if seeds is not None else []
            if values:
                best[model] = max(values)
        target = FEW_SHOT[row, "nutm"][0]
        reached = best["nutm"] >= target - CLOSE if "nutm" in best else None
        ahead = best["nutm"] > best["mann"] if len(best) == 2 else None
        claims.append(Claim(f"{row}: NUTM reaches {target} % at the second presentation", reached))
        claims.append(Claim(f"{row}: NUTM is ahead of MANN", ahead))
    return claims


def _few_shot_blocks(settings: Settings | None, group: Group) -> list[Block]:
    rows = []
    for (row, model), numbers in FEW_SHOT.items():
        seeds = group.get((row, model))
        cells = [row, model.upper()]
        for presentation, percent in zip(PRESENTATIONS, numbers, strict=True):
            values = _percent(seeds, f"accuracy/{presentation}") if seeds is not None else []
            cells += [number(percent, 1), _spread(values) if values else "–"]
        rows.append((*cells, str(len(seeds.finished)) if seeds is not None else "0"))
    columns = ["row", "model"]
    for name in ("2nd", "3rd", "5th"):
        columns += [f"{name}, paper", f"{name}, ours"]
    blocks: list[Block] = [
        Table((*columns, "seeds"), rows, words=2, caption="Per cent right; ours is the mean over seeds ± deviation.")
    ]
    panels: dict[str, dict[str, list[figures.Curve]]] = {}
    for (row, name), seeds in group.items():
        panels.setdefault(row, {})[name] = seeds.curves
    if settings is not None and panels:
        part = (
            "test"
            if any("test" in line for s in group.values() for curve in s.curves for line in curve)
            else "validation"
        )
        blocks.append(
            Picture(
                f"fewshot-{settings.directory}-accuracy",
                lambda: figures.learning_curves(
                    panels, f"{part}/accuracy/2", label="accuracy, 2nd presentation", top=1.0
                ),
                f"Accuracy at the second presentation of a class while training, {settings.words}, on unseen "
                "characters: mean over seeds, and one standard deviation to either side.",
            )
        )
    return blocks


def question_answering(evidence: Evidence) -> Section:
    """Table 3 and the appendix's table of all 20 tasks."""
    found = evidence.groups("babi")
    settings, group = found[0] if found else (None, {})
    means = {programs: _means(group, model) for programs, model in BABI.items()}
    claims = []
    for programs, mean in published.PUBLISHED_BABI.items():
        deviation = published.PUBLISHED_BABI_DEVIATION[programs]
        reached = fmean(means[programs]) <= mean + deviation if means[programs] else None
        claims.append(Claim(f"{_name(programs)}: mean error within a deviation of {mean} %", reached))
    four, one = means[4], means[1]
    claims.append(Claim("four programs are better than one", fmean(four) < fmean(one) if four and one else None))
    paper = (
        "Table 3 has the mean error over the 20 bAbI tasks, trained jointly: more programs help, and four give the "
        "best mean. The appendix has the error of every task; one with more than 5 % counts as failed."
    )
    rows = [(name, f"{mean} ± {sd}", "–", "–") for name, (mean, sd) in published.PUBLISHED_BABI_ELSEWHERE.items()]
    for programs, mean in published.PUBLISHED_BABI.items():
        ours, sd = means[programs], published.PUBLISHED_BABI_DEVIATION[programs]
        rows.append((_name(programs), f"{mean} ± {sd}", _spread(ours) if ours else "–", str(len(ours))))
    blocks: list[Block] = [
        claim_table(claims),
        Table(("model", "paper", "ours", "seeds"), rows, caption="Mean error over the 20 tasks, per cent."),
        _task_table(group),
    ]
    so_far = _so_far(group)
    if so_far is not None:
        blocks.append(so_far)
    name = f"babi-{settings.directory}-tasks" if settings is not None else "babi-tasks"
    blocks.append(
        Picture(
            name,
            lambda: _task_figure(group),
            "Error on each of the 20 tasks, per cent. Bars are ours, mean over seeds and one standard deviation; marks "
            "are the paper's with four programs. The dotted line is the 5 % above which a task counts as failed.",
        )
    )
    title = "Table 3: question answering"
    return Section(title, paper, judge(claims, settings), sources(settings, group.values()), blocks)


def _so_far(group: Group) -> Table | None:
    """Runs that are not over: the error of every task after their last epoch."""
    last: dict[str, dict[str, float]] = {}
    for (_, model), seeds in group.items():
        for record in seeds.records:
            if record.outcome is None and record.failure is None and record.evaluations:
                line = record.evaluations[-1]
                of = f"{line['step']:,} of {record.experiment.schedule.iterations:,} iterations"
                last[f"{model.upper()}, seed {record.experiment.seed}, {of}"] = line["validation"]
    if not last:
        return None
    rows = []
    for n, (title, _, _) in enumerate(published.PUBLISHED_BABI_TASKS):
        errors = [100 * found[f"word_error/qa{n + 1}"] for found in last.values()]
        rows.append((f"{n + 1}: {title}", *(number(error, 1) for error in errors)))
    rows.append(("mean", *(number(100 * found["error"], 1) for found in last.values())))
    caption = "Runs that are not over: error of every task in per cent after the last epoch, on validation stories."
    return Table(("task", *last), rows, caption=caption)


def tasks_alone(evidence: Evidence) -> Section | None:
    """Not in the paper: the tasks of bAbI one by one. Left out where it was not run."""
    found = evidence.groups("babi-tasks")
    if not found:
        return None
    settings, group = found[0]
    rows, below = [], 0
    for (task, _), seeds in group.items():
        errors = _percent(seeds, "error")
        if not errors:
            continue
        n = int(task.split("-")[1]) - 1
        title, best, mean = published.PUBLISHED_BABI_TASKS[n]
        below += fmean(errors) < FAILED
        steps = ", ".join(f"{outcome.steps:,}" for outcome in seeds.finished)
        rows.append((f"{n + 1}: {title}", number(best, 1), number(mean, 1), _spread(errors), steps, str(len(errors))))
    columns = ("task", "paper, joint, best", "paper, joint, mean", "ours, alone", "iterations", "seeds")
    caption = "Error in per cent on the test stories of a machine with four programs that was trained on one task."
    words = "The paper trains on all tasks at once. Here a machine with four programs learns one of them."
    title = "Not in the paper: questions of one kind"
    verdict = Verdict(MEASURED, f"{below} of {len(rows)} tasks are learned alone: less than {FAILED:g} % wrong.")
    return Section(title, words, verdict, sources(settings, group.values()), [Table(columns, rows, caption=caption)])


def _name(programs: int) -> str:
    return f"NUTM (DNC core), p = {programs}"


def _means(group: Group, model: str) -> list[float]:
    """The mean error over all tasks of every seed, per cent."""
    return [fmean(errors) for errors in _tasks_of(group, model)]


def _tasks_of(group: Group, model: str) -> list[list[float]]:
    """Errors on answer words in per cent, a list of all tasks for every seed that was tested on all."""
    seeds = group.get(("babi", model))
    tests = [] if seeds is None else seeds.scores
    names = [f"word_error/qa{n + 1}" for n in range(len(TASKS))]
    return [[100 * test[name] for name in names] for test in tests if all(name in test for name in names)]


def _task_table(group: Group) -> Table:
    ours = [_tasks_of(group, model) for model in BABI.values()]
    rows = []
    for n, (title, best, mean) in enumerate(published.PUBLISHED_BABI_TASKS):
        cells = [_spread([seed[n] for seed in seeds]) if seeds else "–" for seeds in ours]
        deviation = published.PUBLISHED_BABI_TASK_DEVIATIONS[n]
        rows.append((f"{n + 1}: {title}", number(best, 1), f"{mean} ± {deviation}", *cells))
    failed = [[float(sum(error > FAILED for error in seed)) for seed in seeds] for seeds in ours]
    best_failed, mean_failed = published.PUBLISHED_BABI_FAILED
    counts = [_spread(seeds) if seeds else "–" for seeds in failed]
    rows.append(("tasks failed", str(best_failed), str(mean_failed), *counts))
    columns = ("task", "paper, best", "paper, mean", *(f"ours, p = {programs}" for programs in BABI))
    return Table(columns, rows, caption="Error of every task, per cent; the paper's has four programs.")


def _task_figure(group: Group) -> figures.Figure:
    tasks = [f"{n + 1}: {title}" for n, title in enumerate(TASKS)]
    ours = {model: seeds for model in BABI.values() if (seeds := _tasks_of(group, model))}
    theirs = {
        "paper, best of 10": [best for _, best, _ in published.PUBLISHED_BABI_TASKS],
        "paper, mean of 10": [mean for _, _, mean in published.PUBLISHED_BABI_TASKS],
    }
    return figures.errors_by_task(tasks, ours, theirs)
