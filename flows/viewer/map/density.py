"""Where on a map one set of points is denser than another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

SMOOTHING_CELLS = 2.0
"""Standard deviation of the Gaussian."""
_STRONGEST = 0.995
"""Share of the cells with points that are below full strength."""

Grid = NDArray[np.float32]


def density_difference(first: NDArray[np.int64], second: NDArray[np.int64]) -> Grid:
    """Density of the first set minus that of the second, -1 to 1, of the same shape. Each set counts as 1, whatever its size.

    first, second: number of points in each cell; each set has some.
    """
    densities = [gaussian_filter(cells / cells.sum(), SMOOTHING_CELLS, mode="constant") for cells in (first, second)]
    difference = densities[0] - densities[1]
    strongest = np.quantile(np.abs(difference[(first + second) > 0]), _STRONGEST)
    return np.asarray(np.clip(difference / max(strongest, 1e-12), -1, 1), dtype=np.float32)
