"""Images turned and moved, from the points that nsm.data.omniglot keeps of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsm.data.omniglot import FINE_SIDE, SMALL_SIDE
from nsm.fused.cache import compiled

_MIDDLE = 0.5 * (SMALL_SIDE - 1)
_CENTRE = FINE_SIDE // 2
_ONE = 1 << 16
"""Places are counted in whole 65,536ths of the distance of two points: more than twice as fast as floats here."""
_INK = np.float32(1 / (255 * _ONE))
_LAST, _NEXT, _BELOW = np.uint64(FINE_SIDE - 1), np.uint64(1), np.uint64(FINE_SIDE)
"""Unsigned, because Numba asks of every other index whether it counts from the end."""


@compiled
def turn_and_move(
    images: Any, characters: Any, drawings: Any, cosine: Any, sine: Any, down: Any, right: Any, out: Any
) -> None:
    """Write 20 × 20 images, values 0 to 1, into the first 400 channels of `out` (T, B, I).

    images (characters, drawings, 41 · 41); all others (B, T): which drawing, by which angle it is turned, counter-
    clockwise, and by how many of the 20 pixels it is moved. What comes from outside the drawing is blank. Turned by a
    multiple of 90° and not moved, an image consists of kept points: nothing is interpolated.
    """
    batch, steps = characters.shape
    for t in range(steps):
        for b in range(batch):
            image = images[characters[b, t], drawings[b, t]]
            c, s = 2 * _ONE * cosine[b, t], 2 * _ONE * sine[b, t]  # points lie half a pixel apart
            y, x = -_MIDDLE - down[b, t], -_MIDDLE - right[b, t]
            first_y, first_x = _CENTRE * _ONE + round(c * y + s * x), _CENTRE * _ONE + round(c * x - s * y)
            step_c, step_s = round(c), round(s)
            for i in range(SMALL_SIDE):
                at_y, at_x = first_y + i * step_c, first_x - i * step_s
                for j in range(SMALL_SIDE):
                    top, left = np.uint64(at_y >> 16), np.uint64(at_x >> 16)  # below zero is beyond any edge
                    ink = 0
                    if top < _LAST and left < _LAST:
                        k = top * _BELOW + left
                        v, u = (at_y >> 8) & 255, (at_x >> 8) & 255
                        above = image[k] * (256 - u) + image[k + _NEXT] * u
                        below = image[k + _BELOW] * (256 - u) + image[k + _BELOW + _NEXT] * u
                        ink = above * (256 - v) + below * v
                    out[t, b, i * SMALL_SIDE + j] = np.float32(ink) * _INK
                    at_y += step_s
                    at_x += step_c
