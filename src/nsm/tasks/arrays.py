"""Names for the kinds of array that tasks use."""

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]
Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
