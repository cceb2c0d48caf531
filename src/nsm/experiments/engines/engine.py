"""What a campaign asks of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from nsm.experiments.paper import Cell
from nsm.training.experiment import Experiment


class Job(NamedTuple):
    """A cell with a seed, and where its run lies."""

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
    """Trains runs, a few at a time; their directories are on this machine and up to date, wherever they are trained."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """How many runs at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def begin(self, job: Job) -> None:
        """Begin a run, or go on with it; not more than `capacity` are under way."""

    @abstractmethod
    def ended(self, seconds: float) -> dict[Job, Status]:
        """Wait for up to this long for runs to end; those that have, each told once."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all runs under way, and those begun from now on, to save and stop. Called by a signal at any moment."""

    @abstractmethod
    def close(self) -> None:
        """End everything at once."""
