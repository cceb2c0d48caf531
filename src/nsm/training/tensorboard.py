"""TensorBoard events from a run's metrics: a view of them, made anew whenever it is asked for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nsm.checks import UserError
from nsm.files import directory_atomically
from nsm.training.run import RunDirectory

EVENTS = "tensorboard"


def require() -> None:
    """Raise a UserError if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise UserError("TensorBoard is not installed: pip install 'nsm[tensorboard]'")


def write_events(directory: str | Path) -> Path:
    """Write a run's metrics as events into `tensorboard/` in its directory, in place of those that are there."""
    require()
    from torch.utils.tensorboard import SummaryWriter

    run = RunDirectory(directory)
    run.config()
    events = run.path / EVENTS
    with directory_atomically(events) as temporary, SummaryWriter(str(temporary)) as writer:
        for line in run.metrics():
            for group, figures in line.items():
                if group in ("loss", "rewinds"):
                    writer.add_scalar(group, figures, line["step"])
                elif group != "step":
                    for name, value in figures.items():
                        writer.add_scalar(f"{group}/{name}", value, line["step"])
    return events
