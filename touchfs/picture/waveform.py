"""Waveforms: the outline of the extremes of each column, as a path of SVG."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A line for silence: half of the thinnest outline.
_THIN = 0.006


def wave_path(low: NDArray[np.float32], high: NDArray[np.float32], height: int) -> str:
    """The path of a waveform, a unit wide for each column and `height` high. Extremes are within -1 and 1."""
    tops = _places(np.maximum(high, low + _THIN), height)
    bottoms = _places(np.minimum(low, high - _THIN), height)
    columns = [f"{column},{place:g}" for column, place in enumerate(tops)]
    back = [f"{column},{place:g}" for column, place in reversed([*enumerate(bottoms)])]
    return f"M{'L'.join(columns + back)}Z" if columns else ""


def _places(values: NDArray[np.float32], height: int) -> list[float]:
    return [round(each, 1) for each in ((1 - np.clip(values, -1, 1)) * (height / 2)).tolist()]
