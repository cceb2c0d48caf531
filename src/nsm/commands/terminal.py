"""What commands share in talking to a person: a console, and the progress of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from nsm.checks import printable

if TYPE_CHECKING:
    from nsm.training.loop import Progress as RunProgress
    from nsm.training.loop import Report

REFRESH = 0.2
"""Seconds between two looks at a bar."""


class Screen(Console):
    """A console that shows all text as text, and leaves it to the command line what happens when nobody reads it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as it is, but for what is no text: names from files are among it."""
        return super().render_str(printable(text), **options)


def console(stderr: bool = False) -> Console:
    """A console that prints what it is given; away from a terminal wide enough that a table is not broken."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Screen(stderr=stderr, width=None if terminal else 170, markup=False, highlight=False, soft_wrap=True)


def option(metavar: str, default: str) -> Any:
    """How `--help` shows an option that may be left out: what it takes, and what it is then."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def figures(line: dict[str, Any]) -> str:
    """The figures of a line of metrics, in words."""
    parts = []
    if "loss" in line:
        parts.append(f"loss {line['loss']:.4f}")
    if "held_out" in line:
        held_out = line["held_out"]
        bits = "bit_errors" in held_out
        wrong = f"bit errors {held_out['bit_errors']:.2f}" if bits else f"error {held_out['error']:.1%}"
        parts.append(wrong + (f" at {line['evaluated']:,}" if "evaluated" in line else ""))
    if "rewinds" in line:
        parts.append(f"taken back to the best {line['rewinds']} ×")
    if "accuracies" in line:
        parts += [f"{task} {accuracy:.0%}" for task, accuracy in line["accuracies"].items()]
    return ", ".join(parts)


def by_presentation(figures: dict[str, float]) -> str:
    """Few-shot learning: how much is right at each presentation of a class; nothing for other tasks."""
    names = [name for name in figures if name.startswith("accuracy/") and f"{name} ±" in figures]
    shown = [f"{name.removeprefix('accuracy/')}: {figures[name]:.1%} ± {figures[name + ' ±']:.1%}" for name in names]
    return "; right by presentation " + ", ".join(shown) if shown else ""


def by_task(figures: dict[str, float]) -> str:
    """Question answering: the tasks' errors; nothing for other tasks, or if there is only one."""
    names = [name for name in figures if name.startswith("word_error/")]
    if len(names) < 2:
        return ""
    shown = ", ".join(f"{name.removeprefix('word_error/')} {figures[name]:.1%}" for name in names)
    return f" on average over tasks ({figures['failed_tasks']:.0f} of {len(names)} above 5 %): {shown}"


class Pace:
    """How fast this process goes and when it will be done; what others did before it says nothing about that."""

    def __init__(self, total: int) -> None:
        self.total, self.begun = total, False

    def begin(self, step: int) -> None:
        """Take time from this step on."""
        self.begun, self._first, self._began = True, step, time.monotonic()

    def at(self, step: int) -> tuple[str, str]:
        """Iterations per second and the time left, in words."""
        if not self.begun:
            self.begin(step)
        done, seconds = step - self._first, time.monotonic() - self._began
        if done <= 0 or seconds <= 0:
            return "–", "–"
        rate = done / seconds
        left = timedelta(seconds=round((self.total - step) / rate))
        return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}", str(left)


@contextmanager
def progress_of(label: str, iterations: int, quiet: bool = False) -> Iterator[Report]:
    """A report for `train`: a bar on a terminal, a plain line per evaluation elsewhere, both on standard error."""
    pace = Pace(iterations)
    if quiet:
        yield lambda *_: None
        return
    if not sys.stderr.isatty():

        def plain(progress: RunProgress, line: dict[str, Any]) -> None:
            if "held_out" in line:
                rate, left = pace.at(progress.step)
                words = f"{progress.step:,}/{iterations:,} iterations, {figures(line)}, {rate}/s, {left} left"
                print(printable(f"{label}: {words}"), file=sys.stderr, flush=True)
            elif not pace.begun:
                pace.begin(progress.step)

        yield plain
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[figures]}"),
        TextColumn("{task.fields[rate]}/s"),
        TextColumn("{task.fields[left]} left"),
    )
    with Progress(*columns, console=console(stderr=True), expand=True) as bar:
        task = bar.add_task(label, total=iterations, figures="", rate="–", left="–")
        known: dict[str, Any] = {}
        due = 0.0

        def live(progress: RunProgress, line: dict[str, Any]) -> None:
            nonlocal due
            known.update(line, **({"evaluated": progress.step} if "held_out" in line else {}))
            now = time.monotonic()
            if now >= due or progress.step == iterations:
                due = now + REFRESH
                rate, left = pace.at(progress.step)
                bar.update(task, completed=progress.step, figures=figures(known), rate=rate, left=left)

        yield live
