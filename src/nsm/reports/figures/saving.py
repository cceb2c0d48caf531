"""Figures as files."""

from pathlib import Path

from matplotlib.figure import Figure

from nsm.plots import style
from nsm.reports.output import write


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as what its suffix says: .svg and .pdf are drawings, .png is made of points."""
    write(path, style.rendered(figure, path.suffix[1:]))
    return path
