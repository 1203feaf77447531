"""Shrink arrays to the size of a picture: each pixel is the mean of what it covers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def bounds(size: int, parts: int) -> NDArray[np.int64]:
    """Where each of `parts` nearly equal parts of `size` things begins, and where the last one ends."""
    return np.arange(parts + 1, dtype=np.int64) * size // parts


def shrink(values: NDArray[Any], rows: int, columns: int) -> NDArray[np.float32]:
    """Return an array of shape (height, width) or (height, width, channels) with this height and width.

    Where it is smaller, values are repeated. NaN does not count, except where nothing else is.
    """
    with np.errstate(over="ignore"):  # an infinite value does not count either
        found = values.astype(np.float32)
    for axis, parts in enumerate((rows, columns)):
        found = _means(found, parts, axis)
    return found


def _means(values: NDArray[np.float32], parts: int, axis: int) -> NDArray[np.float32]:
    size = values.shape[axis]
    if size <= parts:
        repeated: NDArray[np.float32] = values.take(np.arange(parts) * size // parts, axis)
        return repeated
    starts = bounds(size, parts)[:-1]
    is_number = np.isfinite(values)
    totals = np.add.reduceat(np.where(is_number, values, 0), starts, axis, dtype=np.float64)
    counts = np.add.reduceat(is_number, starts, axis, dtype=np.int64)
    means: NDArray[np.float32] = np.asarray(np.where(counts, totals / np.maximum(counts, 1), np.nan), np.float32)
    return means


def loudest(levels: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Levels of this many rows and columns, of which a row is the highest of those that it covers: lines stay seen."""
    if len(levels) > rows:
        levels = np.maximum.reduceat(levels, bounds(len(levels), rows)[:-1], 0)
    return shrink(levels, rows, columns).astype(np.uint8)


def fit(width: int, height: int, most_width: int, most_height: int) -> tuple[int, int]:
    """The largest width and height in these proportions that fit and are not enlarged; at least 1."""
    scale = min(1.0, most_width / max(width, 1), most_height / max(height, 1))
    return max(round(width * scale), 1), max(round(height * scale), 1)
