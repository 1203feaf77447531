"""Indices of rows, checked: every backend refuses the same ones."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from touchfs.caches.backends.protocol import Indices


def check_index(index: SupportsIndex, count: int) -> int:
    """Return an index of one of `count` rows. Raises IndexError, also for a negative one; TypeError for no integer."""
    index = operator.index(index)
    if not 0 <= index < count:
        raise IndexError(f"row {index} of {count}")
    return index


def check_indices(indices: Indices, count: int) -> NDArray[np.int64]:
    """Return indices of `count` rows as an array of shape (n,). Raises as `check_index`."""
    array: NDArray[Any] = np.asarray(indices)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iuO"):
        raise TypeError(f"indices of rows are integers of shape (n,), not {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "O":  # an integer of more than 64 bits, or no integer
        array = np.array([check_index(index, count) for index in array], np.int64)
    if len(array) and not 0 <= array.min() <= array.max() < count:
        wrong = array[(array < 0) | (array >= count)][0]
        raise IndexError(f"row {wrong} of {count}")
    return array.astype(np.int64, copy=False)


def check_shards(shards: list[int] | None, count: int) -> list[int]:
    """Return the shards to read, all of `count` by default. Raises IndexError for one that does not exist."""
    chosen = list(range(count)) if shards is None else list(map(operator.index, shards))
    for shard in chosen:
        if not 0 <= shard < count:
            raise IndexError(f"shard {shard} of {count}")
    return chosen


def shuffled(shards: list[int], seed: int | None) -> list[int]:
    """Return shards in the order of a seed, or of one that is drawn."""
    return [shards[i] for i in np.random.default_rng(seed).permutation(len(shards))]
