"""One run on one page: what was trained, how it went, what the machine does."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsm.experiments.results import solves
from nsm.experiments.summary import number
from nsm.pretrained import to_json
from nsm.reports import figures
from nsm.reports.document import Block, Document, Heading, Note, Paragraph, Picture, Table
from nsm.reports.execution import Execution
from nsm.training.loop import model_name
from nsm.training.run import RunDirectory

FIGURES = {
    "bit_errors": "wrong bits per sequence",
    "l1_errors": "Σ|p−y| per sequence",
    "perfect": "share of sequences without an error",
    "bit_accuracy": "bit accuracy",
    "cross_entropy_bits": "cross-entropy per sequence (bits)",
    "optimum_bits": "the best possible cross-entropy",
    "error": "share of wrong answers",
}

SHARES = ("perfect", "bit_accuracy", "error")


def run_report(run: RunDirectory, executions: list[Execution]) -> Document:
    """The report of one run with some executions of its machine."""
    config, result, lines = run.config(), run.result(), run.metrics()
    model = model_name(config.machine)
    document = Document(f"{config.task}, {model.upper()}, seed {config.seed}")
    add = document.blocks.extend
    add([Paragraph(_story(run)), Note(f"Commit {run.made_with.get('commit') or 'not known'}; {_versions(run)}.")])
    if result is not None:
        add(_results(result))
    if lines:
        curves = {config.task: {model: [lines]}}
        draw, words = partial(figures.learning_curves, curves), "Training loss over iterations. Guessing costs 0.69."
        if config.task.startswith(("omniglot", "babi")):  # one of many, not a bit
            draw, words = partial(draw, label="training loss (nats per answer)"), "Training loss over iterations."
        add([Heading("Learning"), Picture("learning", draw, words)])
    add([Heading("What it does")])
    for n, execution in enumerate(executions):
        add([Picture(f"execution-{n + 1}", partial(figures.execution, execution), figures.caption(execution))])
    add([Heading("Configuration"), Table(("option", "value"), _options(to_json(config)), words=2)])
    return document


def _story(run: RunDirectory) -> str:
    config, result = run.config(), run.result()
    if result is None:
        return f"This run is not over: it was to take {config.iterations:,} iterations."
    words = {
        True: f"; it solved its training task at iteration {result['solved_step'] or 0:,}",
        False: "; it never solved its training task",
        None: "",
    }
    return (
        f"Trained for {result['steps']:,} iterations in {result['seconds']:,.0f} seconds "
        f"({result['parameters']:,} parameters){words[solves(result, None)]}."
    )


def _results(result: dict[str, Any]) -> list[Block]:
    if "phases" in result:
        tasks, phases = list(result["phases"][0]), result["phases"]
        rows = [(after, *(number(phase[t], 3) for t in tasks)) for after, phase in zip(tasks, phases, strict=False)]
        return [Heading("Test"), Table(("after", *tasks), rows, caption="Bit accuracy on every task after each.")]
    names = [name for name in result["best"] if name in FIGURES]
    rows = [(FIGURES[name], *(_figure(name, result[which].get(name)) for which in ("best", "last"))) for name in names]
    sequences = result["best"].get("sequences", 0)
    caption = f"On {sequences:,.0f} test sequences: the machine of the lowest held-out loss, and the last."
    return [Heading("Test"), Table(("figure", "best", "last"), rows, caption=caption)]


def _figure(name: str, value: float | None) -> str:
    return f"{value:.2%}" if name in SHARES and value is not None else number(value)


def _versions(run: RunDirectory) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.made_with.items() if name != "commit" and version)


def _options(config: dict[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """A configuration as lines of a table."""
    rows = []
    for name, value in config.items():
        rows += _options(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", str(value))]
    return rows
