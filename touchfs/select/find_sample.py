"""Find the position in a selection of a sample of a shard."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from touchfs.select.selection import AnySamples, Selection, position_at


def position_of(samples: AnySamples, shard: int, ordinal: int) -> int | None:
    """The position of a sample of a shard, or of its first segment; None if `samples` do not have it."""
    chain = []
    while isinstance(samples, Selection):
        chain.append(samples)
        samples = samples.samples
    for position in range(position_at(samples, (shard, ordinal, 0)), position_at(samples, (shard, ordinal + 1, 0))):
        with suppress(ValueError):
            for selected in reversed(chain):
                position = _index(selected.positions, position)
            return position
    return None


def _index(positions: Any, position: int) -> int:
    """The index of a position in an array of positions, ascending or not. Raises ValueError if it is absent."""
    if isinstance(positions, range):
        return positions.index(position)
    place = int(np.searchsorted(positions, position))
    if place < len(positions) and positions[place] == position:
        return place
    found = np.flatnonzero(positions == position)
    if not len(found):
        raise ValueError(position)
    return int(found[0])
