"""Figures: each a function from executions or results to a matplotlib figure; none reads files or keeps state."""

from nsm.reports.figures.executions import caption, execution, perseveration
from nsm.reports.figures.style import save

__all__ = ["caption", "execution", "perseveration", "save"]
