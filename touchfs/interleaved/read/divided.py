"""Samples divided into tables of limited size. A sample is never divided.

A table takes samples as long as they fit, and a sample that alone is too large is a table of its own. Sizes are those
of the rows, measured. So the tables that follow a sample do not depend on what came before it, and reading can be
resumed behind any table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from touchfs.interleaved.items.sizes import row_bytes


class SamplePiece(NamedTuple):
    """Rows of samples, and for each sample the number of the row at which it ends and the place after it.

    `reencoded` counts frames of TIFF files that were encoded again; where it is not 0, there is one sample.
    """

    table: pa.Table
    ends: Sequence[int]
    places: Sequence[Any]
    reencoded: int = 0


class Divided(NamedTuple):
    """A table of samples, the place after each of them, and whether it is the last table."""

    table: pa.Table
    places: list[Any]
    is_last: bool
    reencoded: int


def divide(pieces: Iterable[SamplePiece], limit: int | None) -> Iterator[Divided]:
    """Yield tables of at most `limit` bytes, if no single sample is larger; None: all samples in one.

    Yields nothing if there are no samples.
    """
    tables: list[pa.Table] = []
    places: list[Any] = []
    size = reencoded = 0
    for piece in pieces:
        start = begin = 0  # rows: those before `start` are in earlier tables, and a sample begins at `begin`
        sizes = None if limit is None else np.concatenate(([0], np.cumsum(row_bytes(piece.table))))
        for end, place in zip(piece.ends, piece.places, strict=True):
            added = 0 if sizes is None else int(sizes[end] - sizes[begin])
            if limit is not None and places and size + added > limit:
                table = pa.concat_tables([*tables, piece.table.slice(start, begin - start)])
                yield Divided(table, places, False, reencoded)
                tables, places, size, reencoded, start = [], [], 0, 0, begin
            places.append(place)
            size += added
            begin = end
        tables.append(piece.table.slice(start))
        reencoded += piece.reencoded
    if places:
        yield Divided(pa.concat_tables(tables), places, True, reencoded)
