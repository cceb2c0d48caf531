"""Images turned and moved, from the points that nsm.data.omniglot keeps of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import grid_sample

from nsm.data.omniglot import SMALL_SIDE

_HALF = SMALL_SIDE / 2
_PLACES = (np.arange(SMALL_SIDE) - (SMALL_SIDE - 1) / 2) / _HALF
"""Where the middles of pixels lie, as grid_sample counts: −1 is a drawing's first point, 1 its last."""
_PARTS = 256
"""Grey levels are rounded to such a part: places are only good to a millionth, and a point that is hit has to come out
as it is kept."""


def turn_and_move(
    points: npt.NDArray[np.uint8],
    cosine: npt.NDArray[np.float64],
    sine: npt.NDArray[np.float64],
    down: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
) -> npt.NDArray[np.float32]:
    """The points (N, 41, 41) of N drawings → images (N, 20, 20), values 0 to 1.

    All others (N,): by which angle a drawing is turned, counterclockwise, and by how many of the 20 pixels it is moved.
    What comes from outside the drawing is blank. Turned by a multiple of 90° and not moved, an image consists of kept
    points: nothing is interpolated.
    """
    c, s = cosine[:, None], sine[:, None]
    y, x = _PLACES - down[:, None] / _HALF, _PLACES - right[:, None] / _HALF
    grid = np.empty((len(points), SMALL_SIDE, SMALL_SIDE, 2), dtype=np.float32)
    # Not by affine_grid, whose matrix product may round otherwise for another N.
    np.add(_row(-s * y), _column(c * x), out=grid[..., 0])
    np.add(_row(c * y), _column(s * x), out=grid[..., 1])
    drawings = torch.from_numpy(points.astype(np.float32)).unsqueeze(1)
    levels = grid_sample(drawings, torch.from_numpy(grid), align_corners=True).squeeze(1)
    images: npt.NDArray[np.float32] = levels.mul_(_PARTS).round_().mul_(1 / (255 * _PARTS)).numpy()
    return images


def _row(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """(N, 20, 1) of (N, 20): the same all along a row."""
    return values.astype(np.float32)[:, :, None]


def _column(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """(N, 1, 20) of (N, 20): the same all down a column."""
    return values.astype(np.float32)[:, None, :]
