"""`nsm bench`: our speed, that of others who compute the same, and what arithmetic alone would take.

A time is that of a whole training iteration (forward, loss, backward, update) divided by its time steps, unless it says
otherwise. Nothing is timed before it was found to be equal.
"""

from nsm.bench.drawing import picture
from nsm.bench.measurement import facts, growth, loop, measure
from nsm.bench.peers import NAMES, chosen
from nsm.bench.work import Shape, Work, shapes
from nsm.reports.figures.saving import save

__all__ = ["NAMES", "Shape", "Work", "chosen", "facts", "growth", "loop", "measure", "picture", "save", "shapes"]
