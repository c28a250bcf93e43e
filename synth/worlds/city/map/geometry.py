"""Where things are: the map's plane, its coordinates, and how both are written.

The city is a plane of WIDTH_M x HEIGHT_M metres; x runs east, y north. A coordinate is a string "lat,lon" with five decimals (about
one metre). Conversions are linear, which over 16 km is off by less than a tenth of a percent; nothing here wants more.
"""

from __future__ import annotations

from math import cos, radians

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 32, 36
SPACING_M = 450.0
WIDTH_M, HEIGHT_M = (COLUMNS - 1) * SPACING_M, (ROWS - 1) * SPACING_M
MARGIN_M = 800.0
"""A coordinate this far outside the outermost roads still counts as in the city."""

LAT_0, LON_0 = 30.2, 120.1
M_PER_LAT = 111_195.0
M_PER_LON = M_PER_LAT * cos(radians(LAT_0 + 0.06))

Floats = NDArray[np.float64]


def to_text(x: float, y: float) -> str:
    return f"{LAT_0 + y / M_PER_LAT:.5f},{LON_0 + x / M_PER_LON:.5f}"


def to_grid(xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    """The same points moved by less than a metre, so that writing and reading them changes nothing."""
    lats, lons = np.round(LAT_0 + ys / M_PER_LAT, 5), np.round(LON_0 + xs / M_PER_LON, 5)
    return (lons - LON_0) * M_PER_LON, (lats - LAT_0) * M_PER_LAT


def from_text(text: str) -> tuple[float, float]:
    """(x, y) of a coordinate.

    Raises:
        ValueError: not "lat,lon", or outside the city; the message says which and what is allowed.
    """
    parts = text.split(",")
    if len(parts) != 2:
        raise ValueError('must be "lat,lon", e.g. "30.25000,120.20000"')
    try:
        lat, lon = float(parts[0]), float(parts[1])
    except ValueError:
        raise ValueError('must be "lat,lon", e.g. "30.25000,120.20000"') from None
    x, y = (lon - LON_0) * M_PER_LON, (lat - LAT_0) * M_PER_LAT
    if not (-MARGIN_M <= x <= WIDTH_M + MARGIN_M and -MARGIN_M <= y <= HEIGHT_M + MARGIN_M):
        low, high = to_text(-MARGIN_M, -MARGIN_M), to_text(WIDTH_M + MARGIN_M, HEIGHT_M + MARGIN_M)
        raise ValueError(f"lies outside the city ({low} to {high})")
    return x, y
