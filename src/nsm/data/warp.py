"""Rotated and shifted images, from the points that nsm.data.omniglot caches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import grid_sample

from nsm.data.omniglot import SMALL_SIDE

_HALF = SMALL_SIDE / 2
_PLACES = (np.arange(SMALL_SIDE) - (SMALL_SIDE - 1) / 2) / _HALF
"""Pixel centres in the coordinates of grid_sample: −1 is a drawing's first point, 1 its last."""
_PARTS = 256
"""Grey levels are rounded to this fraction: coordinates are only accurate to a millionth, and the value of a point that
is hit must be exact."""


def turn_and_move(
    points: npt.NDArray[np.uint8],
    cosine: npt.NDArray[np.float64],
    sine: npt.NDArray[np.float64],
    down: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
) -> npt.NDArray[np.float32]:
    """The points (N, 41, 41) of N drawings → images (N, 20, 20), values 0 to 1.

    All others (N,): the angle of the counterclockwise rotation, and the shift in units of the 20 pixels. Outside the
    drawing an image is blank. Rotations by multiples of 90° without a shift need no interpolation.
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
