"""Figures as files."""

from pathlib import Path

from matplotlib.figure import Figure

from nsm.plots import style
from nsm.reports.output import write


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of its suffix: .svg, .pdf or .png."""
    write(path, style.rendered(figure, path.suffix[1:]))
    return path
