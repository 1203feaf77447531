"""Arrays as pictures: two dimensions as a heat map, one as a line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.picture.shrink import bounds, shrink

# Outliers would make the rest of a heat map one colour.
_LOWEST, _HIGHEST = 1, 99


def heat_map(values: NDArray[Any], rows: int, columns: int) -> NDArray[np.uint8]:
    """Levels from 0 to 255 of an array of two dimensions, shape (rows, columns). NaN is 0."""
    small = shrink(values, min(rows, values.shape[0]), min(columns, values.shape[1]))
    numbers = small[np.isfinite(small)]
    if not numbers.size:
        return np.zeros(small.shape, np.uint8)
    low, high = np.percentile(numbers, [_LOWEST, _HIGHEST])
    share = (np.nan_to_num(small, nan=low) - low) / (high - low if high > low else 1)
    found: NDArray[np.uint8] = np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)
    return found


def extremes(values: NDArray[Any], columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The smallest and the largest value of each column of a line, scaled to -1 and 1."""
    numbers = np.nan_to_num(values.astype(np.float64)) / 2  # so that differences are finite
    low, high = float(numbers.min()), float(numbers.max())
    scaled = (2 * ((numbers - low) / (high - low if high > low else 1)) - 1).astype(np.float32)
    starts = bounds(len(scaled), min(columns, len(scaled)))[:-1]
    return np.minimum.reduceat(scaled, starts), np.maximum.reduceat(scaled, starts)
