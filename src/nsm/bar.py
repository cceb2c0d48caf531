"""The progress of a run on a terminal, in a notebook or as plain lines."""

from __future__ import annotations

import math
import time
from importlib.util import find_spec

from rich.progress import BarColumn, Progress, TextColumn

from nsm.screen import Pace, about, console, say
from nsm.tasks import Task
from nsm.training.callbacks import Callback
from nsm.training.progress import Progress as RunProgress
from nsm.training.run import Line, RunDirectory

REFRESH = 0.2
"""Seconds between two updates of a bar."""
FIRST = 3.0
"""Seconds after which the pace says how long the run will take."""


def figures(task: Task, line: Line | None, at: int | None = None) -> str:
    """A line of metrics in words; `at` is the iteration of its evaluation if that was earlier."""
    parts = []
    if line is None:
        return ""
    if "loss" in line:
        parts.append(f"loss {line['loss']:.4f}")
    if "validation" in line:
        measure = next(m for m in task.measures if m.name in line["validation"])
        when = "" if at is None else f" at {at:,}"
        parts.append(f"validation: {measure.text(line['validation'][measure.name])} {measure.words}{when}")
    if "rewinds" in line:
        parts.append(f"rewound {line['rewinds']} ×")
    if "accuracies" in line:
        parts += [f"{name} {accuracy:.0%}" for name, accuracy in line["accuracies"].items()]
    return ", ".join(parts)


def _live_screen() -> bool:
    """Whether output can be overwritten: on a terminal, and in a notebook with widgets."""
    screen = console(stderr=True)
    return find_spec("ipywidgets") is not None if screen.is_jupyter else screen.is_terminal


class ProgressBar(Callback):
    """Shows the progress of a run on standard error: a bar on a terminal, elsewhere a line per evaluation. A line after
    the first seconds estimates how long the run will take."""

    def __init__(self) -> None:
        self._live: Progress | None = None

    def on_start(self, run: RunDirectory, progress: RunProgress) -> None:
        experiment = run.experiment
        self._known: Line = {"step": progress.step}
        self._evaluated: int | None = None
        live = _live_screen()
        self._due = time.monotonic() + (0 if live else FIRST)
        self._task, self._label, self._total = experiment.task, experiment.name, experiment.schedule.iterations
        self._pace = Pace(self._total)
        self._pace.begin(progress.step)
        if live:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn("{task.fields[figures]}"),
                TextColumn("{task.fields[rate]}/s"),
                TextColumn("{task.fields[left]} left"),
            )
            self._live = Progress(*columns, console=console(stderr=True), expand=True)
            self._row = self._live.add_task(self._label, total=self._total, figures="", rate="–", left="–")
            self._live.start()

    def on_stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on_step(self, progress: RunProgress, line: Line | None) -> None:
        now = time.monotonic()
        if self._live is None:
            remaining, pace = self._total - progress.step, self._pace.rate(progress.step)
            if now >= self._due and remaining and pace is not None:
                self._due = math.inf
                say(f"{self._label}: {remaining:,} iterations to go, {about(remaining / pace)}")
            return
        self._known |= line or {}
        if line is not None and "validation" in line:
            self._evaluated = progress.step
        if now >= self._due or progress.step == self._total:
            self._due = now + REFRESH
            rate, left = self._pace.at(progress.step)
            words = figures(self._task, self._known, self._evaluated)
            self._live.update(self._row, completed=progress.step, figures=words, rate=rate, left=left)

    def on_evaluation(self, progress: RunProgress, line: Line) -> None:
        if self._live is None:
            rate, left = self._pace.at(progress.step)
            done = f"{progress.step:,}/{self._total:,} iterations"
            say(f"{self._label}: {done}, {figures(self._task, line)}, {rate}/s, {left} left")
