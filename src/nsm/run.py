"""A run in Python: its configuration, its metrics, and tests and pages of its machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from nsm.checks import UserError, at_least, choose, fits
from nsm.machine import Machine, MachineConfig
from nsm.reports.execution import POOL, Execution, execute
from nsm.reports.viewer import Page, page
from nsm.sizes import least_memory
from nsm.tasks import Task, with_ranges
from nsm.tasks.task import EXAMINED
from nsm.training.callbacks import scalars
from nsm.training.evaluation import evaluate
from nsm.training.learner import memory_state
from nsm.training.result import Result, ranges_of, shown_range
from nsm.training.run import RunDirectory

WHICH = ("best", "last")
LIKE = ("test", "training")


class Table(Protocol):
    """Columns by name: a `dict` of arrays, or a `pandas.DataFrame` where pandas is installed."""

    def __getitem__(self, column: str, /) -> npt.ArrayLike: ...
    def __len__(self) -> int: ...


class Sequences(TypedDict, total=False):
    """The sequences that a machine is tested on."""

    like: str
    """test, or training: new sequences from the distribution it was trained on"""
    seed: int | None
    slots: int | None
    """slots of the tape, by default the machine's own"""
    length: int | tuple[int, int]
    repeats: int | tuple[int, int]
    items: int | tuple[int, int]
    item_length: int | tuple[int, int]
    sorted_items: int | tuple[int, int]


class Run(RunDirectory):
    """A run's directory: `nsm.train` returns one, `nsm.open` opens one."""

    def __repr__(self) -> str:
        outcome = self.outcome()
        return f"Run({str(self.path)!r}: {self.experiment.name}, {'unfinished' if outcome is None else 'finished'})"

    @property
    def metrics(self) -> Table:
        """The metrics of training, a row per line of metrics.jsonl: step, loss, validation/bit_errors, …

        Missing values are NaN. A DataFrame if pandas is installed, else a dict of arrays.
        """
        lines = [{"step": float(line["step"]), **scalars(line)} for line in self.lines()]
        names = dict.fromkeys(name for line in lines for name in line)
        columns = {name: np.array([line.get(name, np.nan) for line in lines]) for name in names}
        if find_spec("pandas") is None:
            return columns
        import pandas

        frame: Table = pandas.DataFrame(columns)
        return frame

    @property
    def result(self) -> Result | None:
        """The test of the best machine at the end of training; None before that."""
        outcome, experiment = self.outcome(), self.experiment
        if outcome is None or outcome.best is None:
            return None
        slots = experiment.machine.memory.slots if experiment.machine.memory is not None else 0
        settings = {"which": "best", "step": outcome.best.step, "seed": experiment.seed, "slots": slots}
        return Result(experiment.task.tested, outcome.best.figures, settings)

    def test(
        self,
        which: str = "best",
        sequences: int | None = None,
        persistent: bool | None = None,
        backend: str = "auto",
        **chosen: Unpack[Sequences],
    ) -> Result:
        """Test the run's machine: `run.test(length=240, slots=512)`.

        Args:
            which: "best", the checkpoint with the lowest validation loss, or "last".
            sequences: number of sequences; by default as in the run's own test.
            persistent: whether memory is kept from batch to batch; by default as in training.
            backend: "auto", "reference" or "fused".
            chosen: which sequences: `like`, `seed`, `slots`, and the task's ranges such as `length`.
        """
        results = self.tests(which, sequences, persistent, backend, **chosen)
        if len(results) > 1:
            raise UserError(f"{self.path} was trained on {', '.join(results)}: test each of them with run.tests()")
        return next(iter(results.values()))

    def tests(
        self,
        which: str = "best",
        sequences: int | None = None,
        persistent: bool | None = None,
        backend: str = "auto",
        **chosen: Unpack[Sequences],
    ) -> dict[str, Result]:
        """`test` for every task of a mixture, by name; for any other task, one result."""
        choose("which", which, WHICH)
        experiment = self.experiment
        task, seed, slots = self.sequences(**chosen)
        persistent = experiment.schedule.persistent if persistent is None else persistent
        asked = experiment.schedule.test_sequences if sequences is None else at_least("sequences", sequences, 1)
        machine = self.machine(which, backend)
        check_room(experiment.machine, task, min(asked, EXAMINED), slots)
        found = self.checkpoint(which)
        # The memory content left by training fits its own tape only: on a tape of another size memory starts empty.
        memory = memory_state(machine, found.memory) if persistent and not slots else None
        settings = {
            "which": which,
            "step": found.step,
            "like": chosen.get("like", "test"),
            "seed": seed,
            "slots": slots or machine.memory.slots,
            "persistent": persistent,
        }
        results = {}
        for name, part in task.parts.items():
            sums = evaluate(machine, part, asked, seed, slots=slots, persistent=persistent, memory=memory)
            results[name] = Result(part, sums.averages(), settings)
        return results

    def view(
        self,
        out: str | Path | None = None,
        which: str = "best",
        samples: int = 3,
        beside: str | Path | None = None,
        **chosen: Unpack[Sequences],
    ) -> Page:
        """Watch the run's machine compute: a page, written to `out` (default RUN/view.html) and shown by a notebook.

        Args:
            out: file to write the page to.
            which: "best", the checkpoint with the lowest validation loss, or "last".
            samples: number of test sequences, in addition to the best and the worst.
            beside: another run to compare with on the same input, for example an NTM with a NUTM.
            chosen: which sequences: `like`, `seed`, `slots`, and the task's ranges such as `length`.
        """
        _, text = self.watch(which, samples, beside, **chosen)
        return Page(text, self.path / "view.html" if out is None else Path(out))

    def watch(
        self,
        which: str = "best",
        samples: int = 3,
        beside: str | Path | None = None,
        title: str = "",
        **chosen: Unpack[Sequences],
    ) -> tuple[list[Execution], str]:
        """Executions of the run's machine, and the page that shows them, by default titled with the task's name."""
        choose("which", which, WHICH)
        experiment = self.experiment
        task, seed, slots = self.sequences(**chosen)
        machine, step = self.machine(which), self.checkpoint(which).step
        check_room(experiment.machine, task, max(POOL, samples), slots, samples)
        executions = execute(machine, task, samples, seed, slots)
        programs, controller = experiment.machine.programs, experiment.machine.controller
        ranges = {name.replace("_", " "): shown_range(value) for name, value in ranges_of(task).items()}
        facts = [
            "no stored programs"
            if programs is None
            else f"{programs.count} stored program{'s' * (programs.count != 1)} per head, {programs.attention}",
            f"{controller.size} units ({controller.kind})",
            f"{machine.parameter_count:,} parameters",
            f"{which} checkpoint, iteration {step:,} of {experiment.schedule.iterations:,}",
            f"seed {experiment.seed}, sequences from seed {seed}",
            *(f"{name} {value}" for name, value in ranges.items() if len(task.parts) == 1),
        ]
        name = experiment.machine.model.upper()
        machines = {name: machine}
        names = name
        if beside is not None:
            other = Run(beside)
            machines = _both(machines, other, which)
            names = f"{name} beside {other.experiment.machine.model.upper()}"
        title = title or f"{experiment.task.name}, {names}"
        return executions, page(executions, title, facts, machines, slots)

    def sequences(
        self, like: str = "test", seed: int | None = None, slots: int | None = None, **ranges: int | tuple[int, int]
    ) -> tuple[Task, int, int | None]:
        """The task with its ranges, the seed of its sequences, and the tape size if different from the machine's."""
        experiment = self.experiment
        experiment.task.require()
        task = experiment.task.tested if choose("like", like, LIKE) == "test" else experiment.task.like_training()
        seed = experiment.seed if seed is None else at_least("seed", seed, 0)
        if slots is not None:
            at_least("slots", slots, 1)
        return with_ranges(task, **ranges), seed, slots


def _both(machines: dict[str, Machine], beside: Run, which: str) -> dict[str, Machine]:
    """The machine and that of another run, by name, if they have the same input and output size."""
    ((name, machine),) = machines.items()
    other = beside.machine(which)
    sizes = [(each.config.input_size, each.config.output_size) for each in (machine, other)]
    if sizes[0] != sizes[1]:
        raise UserError(
            f"{beside.path} can't be shown beside this run: the input and output size of its machine are "
            f"{sizes[1][0]} and {sizes[1][1]}, those of this one {sizes[0][0]} and {sizes[0][1]}"
        )
    known = beside.experiment.machine.model.upper()
    return {name: machine, known if known != name else f"{beside.path.name}, {known}": other}


def check_room(machine: MachineConfig, task: Task, sequences: int, slots: int | None, traced: int = 0) -> None:
    """Raise a UserError if the sequences or the tape need more memory than is free, before allocating any.

    `sequences` run at a time; for `traced` of them the state of every step is kept.
    """
    size, steps = least_memory(machine, sequences, slots), task.max_length
    shown = 4 * steps * sequences * (task.input_size + 2 * task.output_size)
    states = steps * size.state * traced // sequences
    count = f"{sequences} sequence{'s' * (sequences != 1)}"
    fits(f"{count} of {steps:,} steps at a time", size.weights + size.state + shown + states)
