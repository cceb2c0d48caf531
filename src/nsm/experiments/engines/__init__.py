"""Engines train the runs of a campaign: on this machine (`local`) or on a Ray cluster (`cluster`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from nsm.experiments.paper import Cell
from nsm.training.experiment import Experiment


class Job(NamedTuple):
    """A cell with a seed, and the directory of its run."""

    cell: Cell
    seed: int
    directory: Path

    @property
    def experiment(self) -> Experiment:
        return replace(self.cell.experiment, seed=self.seed)

    @property
    def name(self) -> str:
        return f"{self.cell.name} seed {self.seed}"


class Status(NamedTuple):
    """How a job ended: done, failed or interrupted, and why."""

    word: str
    reason: str = ""


class Engine(ABC):
    """Trains a few runs at a time; their directories on this machine stay up to date, wherever they are trained."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Runs at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def begin(self, job: Job) -> None:
        """Start or resume a run; no more than `capacity` are under way."""

    @abstractmethod
    def ended(self, seconds: float) -> dict[Job, Status]:
        """Wait up to this long for runs to end; returns those that have, each once."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all runs, also those started from now on, to save and stop. A signal may call this at any moment."""

    @abstractmethod
    def close(self) -> None:
        """End everything at once."""
