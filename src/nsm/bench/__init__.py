"""`nsm bench`: the speed of nsm and of other systems on the same computation, and a bound from arithmetic.

Unless stated otherwise, a time is that of a whole training iteration (forward pass, loss, backward pass, update)
divided by its time steps. Nothing is timed before its results have been checked.
"""

from nsm.bench.drawing import picture
from nsm.bench.measurement import facts, growth, loop, measure
from nsm.bench.peers import NAMES, chosen
from nsm.bench.work import Shape, Work, shapes
from nsm.reports.figures.saving import save

__all__ = ["NAMES", "Shape", "Work", "chosen", "facts", "growth", "loop", "measure", "picture", "save", "shapes"]
