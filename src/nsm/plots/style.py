"""How figures look: colours that the colour-blind can tell apart, fixed scales, one size of type."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import cycle
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure

P = ParamSpec("P")
F = TypeVar("F", bound=Figure)

SERIES = ("#0072b2", "#e69f00", "#45c7f0", "#8f1d14", "#999999", "#444466")
"""Programs and curves, in this order: any two differ under every kind of colour blindness."""
WRONG, DECODING, INK, FAINT = "#c1121f", "#2e9e4f", "#1c2128", "#8a929e"
PLAIN, STORED = (SERIES[3], (0, (5, 1.5))), (SERIES[0], "-")
MODELS = {"ntm": PLAIN, "mann": PLAIN, "dnc": PLAIN, "nutm": STORED}
"""A plain machine and one with stored programs look the same in all figures: colour and dashes."""
OTHERS = ((SERIES[1], "-."), (SERIES[2], (0, (3, 1))), (SERIES[4], ":"), (SERIES[5], (0, (1, 1.5))))
BITS = LinearSegmentedColormap.from_list("bits", ["#ffffff", "#1c2128"])
SIGNED = LinearSegmentedColormap.from_list("signed", ["#8f1d14", "#ffffff", "#1c2128"])
READS = LinearSegmentedColormap.from_list("reads", ["#ffffff", "#57b8aa", "#00564d"])
WRITES = LinearSegmentedColormap.from_list("writes", ["#ffffff", "#d77aa6", "#7a0f42"])
MISTAKES = ListedColormap([WRONG]).with_extremes(bad=(0, 0, 0, 0))

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # The same figure gives the same file: no random identifiers and no date.
    "svg.hashsalt": "nsm",
    "svg.fonttype": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style, leaving matplotlib's own settings unchanged."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def figure(draw: Callable[P, F]) -> Callable[P, F]:
    """Decorate a function that draws to use the style."""

    @wraps(draw)
    def drawn(*arguments: P.args, **options: P.kwargs) -> F:
        with styled():
            return draw(*arguments, **options)

    return drawn


def colour(index: int) -> str:
    """The colour of a series; after the last colour they repeat."""
    return SERIES[index % len(SERIES)]


def named(model: str) -> str:
    """A model's name for people, its acronyms in capitals: NTM-2-heads, key-value."""
    return re.sub(r"\b(ntm|nutm|mann|dnc|lrua|ewc)\b", lambda found: found[0].upper(), model)


def looks(models: Iterable[str]) -> dict[str, tuple[str, Any]]:
    """The colour and the dashes of every model shown; those without their own share the rest, in order."""
    rest = cycle(OTHERS)
    return {model: MODELS[model] if model in MODELS else next(rest) for model in models}


def rendered(figure: Figure, suffix: str) -> bytes:
    """A figure as the bytes of a file, svg, pdf or png."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=suffix, dpi=144, metadata=undated)
    return drawn.getvalue()
