"""One run on one page: the training, its result, and executions of the machine."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsm.experiments.summary import number
from nsm.plots.style import named
from nsm.reports import figures
from nsm.reports.document import Block, Document, Heading, Note, Paragraph, Picture, Table
from nsm.reports.execution import Execution
from nsm.tasks import Task
from nsm.training.experiment import Experiment
from nsm.training.result import Outcome, solves
from nsm.training.run import RunDirectory
from nsm.tree import to_json


def run_report(run: RunDirectory, executions: list[Execution]) -> Document:
    """The report of one run with some executions of its machine."""
    experiment, outcome, lines = run.experiment, run.outcome(), run.lines()
    task, model = experiment.task, experiment.machine.model
    document = Document(f"{task.name}, {named(model)}, seed {experiment.seed}")
    add = document.blocks.extend
    add([Paragraph(_story(experiment, outcome))])
    add([Note(f"Commit {run.made_with.get('commit') or 'unknown'}; {_versions(run)}.")])
    if outcome is not None:
        add(_results(task, outcome))
    if lines:
        draw, words = partial(figures.learning_curves, {task.name: {model: [lines]}}), "Training loss over iterations."
        if task.chance is None:
            draw = partial(draw, label="training loss (nats per answer)")
        else:
            words += f" Chance level is {task.chance:.2f}."
        add([Heading("Learning"), Picture("learning", draw, words)])
    add([Heading("Executions")])
    for n, execution in enumerate(executions):
        add([Picture(f"execution-{n + 1}", partial(figures.execution, execution), figures.caption(execution))])
    add([Heading("Configuration"), Table(("option", "value"), _options(to_json(experiment)), words=2)])
    return document


def _story(experiment: Experiment, outcome: Outcome | None) -> str:
    if outcome is None:
        return f"This run has not finished: {experiment.schedule.iterations:,} iterations are planned."
    words = {
        True: f"; solved at iteration {outcome.solved_step or 0:,}",
        False: "; not solved",
        None: "",
    }
    return (
        f"Trained for {outcome.steps:,} iterations in {outcome.seconds:,.0f} seconds "
        f"({outcome.parameters:,} parameters){words[solves(experiment.task, outcome, None)]}."
    )


def _results(task: Task, outcome: Outcome) -> list[Block]:
    if outcome.best is None or outcome.last is None:
        names, phases = list(outcome.phases[0]), outcome.phases
        rows = [(after, *(number(phase[n], 3) for n in names)) for after, phase in zip(names, phases, strict=False)]
        return [
            Heading("Test"),
            Table(("after", *names), rows, caption="Bit accuracy on every task after each was learned."),
        ]
    best, last = outcome.best.figures, outcome.last.figures
    found = [measure for measure in task.measures if measure.name in best]
    rows = [(m.words, m.text(best[m.name], 3), m.text(last.get(m.name), 3)) for m in found]
    caption = f"On {best['sequences']:,.0f} test sequences: the checkpoint best in validation, and the last one."
    return [Heading("Test"), Table(("figure", "best", "last"), rows, caption=caption)]


def _versions(run: RunDirectory) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.made_with.items() if name != "commit" and version)


def _options(config: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A configuration as rows of a table."""
    rows = []
    for name, value in config.items():
        rows += _options(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", str(value))]
    return rows
