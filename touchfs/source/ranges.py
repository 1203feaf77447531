"""Many ranges of a source, read with few calls: small ones that are close together are one read, and cut out of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Source

# Reading, or copying, 8 KiB takes as long as another call: about a microsecond. So larger ranges are read alone.
SMALL = 8 << 10
# Ranges that begin in two blocks of this size are two reads: from 128 KiB on, allocating memory is a call, too.
BLOCK = 96 << 10


def read_ranges(source: Source, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes of ranges of a source, in the given order. The arrays have the shape (n,); ranges may overlap.

    Raises what `source.read` raises.
    """
    in_order = np.argsort(offsets, kind="stable")
    starts, stops = offsets[in_order], (offsets + lengths)[in_order]
    firsts = np.flatnonzero(_is_alone(starts, stops))
    reads = zip(starts[firsts].tolist(), np.maximum.reduceat(stops, firsts).tolist(), strict=True)
    places, begins, ends = in_order.tolist(), starts.tolist(), stops.tolist()
    found = [b""] * len(places)
    for (first, last), (begin, end) in zip(pairwise([*firsts.tolist(), len(places)]), reads, strict=True):
        data = source.read(begin, end - begin)
        if last - first == 1:
            found[places[first]] = bytes(data)
        else:
            for i in range(first, last):
                found[places[i]] = bytes(data[begins[i] - begin : ends[i] - begin])
    return found


def _is_alone(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Find the ranges, in ascending order, that are not read together with the one before them: bool[ranges]."""
    is_large = ends - begins > SMALL
    if is_large.all():
        return is_large
    is_far = begins[1:] - np.maximum.accumulate(ends)[:-1] > SMALL
    blocks = begins // BLOCK
    return np.append(True, is_far | is_large[1:] | is_large[:-1] | (blocks[1:] != blocks[:-1]))
