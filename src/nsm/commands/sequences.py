"""Which sequences a command takes."""

from __future__ import annotations

from nsm.checks import choose
from nsm.commands.ranges import LIKE, Ranges
from nsm.tasks import Sequencing, Task, with_ranges
from nsm.training.config import RunConfig
from nsm.training.loop import task_pair


def sequences(config: RunConfig, like: str = "test", ranges: Ranges | None = None) -> Task:
    """The task that a run's machine is put to: its test, or new sequences like those it was trained on."""
    pair = task_pair(config)
    task = pair.test if choose("like", like, LIKE) == "test" else pair.train.held_out()
    return with_ranges(task, **(ranges or {}))


def settings_of(task: Task) -> Ranges:
    """A task's ranges as they are; of a task made of several, under the name of each."""
    singles = task.singles()
    prefixes = [f"{name}." for name in task.subtask_names] if isinstance(task, Sequencing) else [""]
    return {
        f"{prefix}{field}": getattr(single, field)
        for prefix, single in zip(prefixes, singles, strict=True)
        for field in single.ranges
    }
