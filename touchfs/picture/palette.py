"""Two ramps of 256 colours for levels from 0 to 255: on paper ink gets darker, at night light gets brighter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# Levels and their colours, between which they are mixed.
_PAPER = ((0, "ffffff"), (40, "e2f1ef"), (96, "8fc1c0"), (152, "3f8390"), (208, "274472"), (255, "160f3c"))
_NIGHT = (
    (0, "101114"),
    (40, "211440"),
    (96, "5d2668"),
    (144, "a83a63"),
    (192, "ee7f41"),
    (228, "f7b85c"),
    (255, "fdf0b0"),
)


def _ramp(stops: Sequence[tuple[int, str]]) -> NDArray[np.uint8]:
    ramp = np.empty((256, 3), np.uint8)
    for (first, dark), (last, light) in pairwise(stops):
        share = np.arange(last - first + 1)[:, None] / (last - first)
        begin, end = (np.frombuffer(bytes.fromhex(each), np.uint8).astype(np.float64) for each in (dark, light))
        ramp[first : last + 1] = np.rint(begin + (end - begin) * share)
    return ramp


PAPER = _ramp(_PAPER)
NIGHT = _ramp(_NIGHT)
