"""What commands share in talking to a person: a console, and the progress of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nsm.training.loop import Progress as RunProgress
from nsm.training.loop import Report


def console() -> Console:
    """Standard output; away from a terminal wide enough that a table is not broken."""
    return Console() if sys.stdout.isatty() else Console(width=170)


def figures(line: dict[str, Any]) -> str:
    """The figures of a line of metrics, in words."""
    parts = []
    if "loss" in line:
        parts.append(f"loss {line['loss']:.4f}")
    if "held_out" in line:
        parts.append(f"bit errors {line['held_out']['bit_errors']:.2f}")
    if "accuracies" in line:
        parts += [f"{task} {accuracy:.0%}" for task, accuracy in line["accuracies"].items()]
    return ", ".join(parts)


@contextmanager
def progress_of(label: str, iterations: int, quiet: bool = False) -> Iterator[Report]:
    """A report for `train`: a bar on a terminal, a plain line per evaluation elsewhere, both on standard error."""
    if quiet:
        yield lambda *_: None
        return
    if not sys.stderr.isatty():

        def plain(progress: RunProgress, line: dict[str, Any]) -> None:
            if "held_out" in line:
                rate = progress.step / max(progress.seconds, 1e-9)
                print(
                    f"{label}: {progress.step:,}/{iterations:,} iterations, {figures(line)}, {rate:,.0f} iterations/s",
                    file=sys.stderr,
                    flush=True,
                )

        yield plain
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[figures]}"),
        TextColumn("{task.fields[rate]} iterations/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=iterations, figures="", rate="–")
        known: dict[str, Any] = {}

        def live(progress: RunProgress, line: dict[str, Any]) -> None:
            known.update(line)
            rate = progress.step / max(progress.seconds, 1e-9)
            bar.update(task, completed=progress.step, figures=figures(known), rate=f"{rate:,.0f}")

        yield live
