"""Figures: each a function from executions or results to a matplotlib figure; none reads files or keeps state."""

from matplotlib.figure import Figure

from nsm.reports.figures.bars import continual, errors_by_task
from nsm.reports.figures.curves import MEDIAN, Curve, learning_curves
from nsm.reports.figures.executions import caption, execution, perseveration
from nsm.reports.figures.saving import save
from nsm.reports.figures.states import states
from nsm.reports.figures.strips import seeds

__all__ = [
    "MEDIAN",
    "Curve",
    "Figure",
    "caption",
    "continual",
    "errors_by_task",
    "execution",
    "learning_curves",
    "perseveration",
    "save",
    "seeds",
    "states",
]
