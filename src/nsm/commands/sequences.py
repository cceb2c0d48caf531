"""Which sequences a command takes."""

from __future__ import annotations

from nsm.checks import choose, fits
from nsm.commands.ranges import LIKE, Ranges
from nsm.machine import MachineConfig, least_memory
from nsm.tasks import Sequencing, Task, with_ranges
from nsm.training.config import RunConfig
from nsm.training.loop import task_pair


def sequences(config: RunConfig, like: str = "test", ranges: Ranges | None = None) -> Task:
    """The task that a run's machine is put to: its test, or new sequences like those it was trained on."""
    pair = task_pair(config)
    task = pair.test if choose("like", like, LIKE) == "test" else pair.train.held_out()
    return with_ranges(task, **(ranges or {}))


def check_room(machine: MachineConfig, task: Task, sequences: int, slots: int | None, traced: int = 0) -> None:
    """Refuse sequences or a tape that no memory holds, before any of it is taken.

    `sequences` go through the machine at a time; of `traced` ones the state of every step is kept.
    """
    size, steps = least_memory(machine, sequences, slots), task.max_length
    shown = 4 * steps * sequences * (task.input_size + 2 * task.output_size)
    kept = steps * size.state * traced // sequences
    fits(f"{sequences} sequences of {steps:,} steps at a time", size.weights + size.state + shown + kept)


def settings_of(task: Task) -> Ranges:
    """A task's ranges as they are; of a task made of several, under the name of each."""
    singles = task.singles()
    prefixes = [f"{name}." for name in task.subtask_names] if isinstance(task, Sequencing) else [""]
    return {
        f"{prefix}{field}": getattr(single, field)
        for prefix, single in zip(prefixes, singles, strict=True)
        for field in single.ranges
    }
