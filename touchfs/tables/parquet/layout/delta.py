"""Integers stored as differences: lengths of values of some encodings.

Source: github.com/apache/parquet-format, Encodings.md, "Delta Encoding"
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.tables.parquet.layout.levels import unpack_bits
from touchfs.tables.parquet.layout.thrift import CompactReader

_WIDTH_MAX = 32


def parse_delta(data: Buffer, most: int) -> NDArray[np.int64]:
    """Parse the lengths at the beginning of data: at most `most`, each below 2**31. Raises FormatError."""
    reader = CompactReader(data)  # its integers are the same varints
    block, minis, count = (reader.unsigned() for _ in range(3))
    first = reader.integer()
    if not 0 <= count <= most or not 0 < minis <= block or block % minis:
        raise FormatError(f"{count:,} Parquet lengths in blocks of {block:,}")
    each, parts, done = block // minis, [np.full(min(count, 1), first, np.int64)], 1
    while done < count:
        least = reader.integer()
        widths = reader.take(minis)
        for width in widths:
            if done >= count:
                break
            if width > _WIDTH_MAX or each % 8:
                raise FormatError(f"Parquet lengths of {width} bits in parts of {each}")
            numbers = unpack_bits(reader.take(each * width // 8), width, each)[: count - done] + np.int64(least)
            parts.append(numbers)
            done += len(numbers)
    lengths = np.cumsum(np.concatenate(parts))
    # Other readers compute with 32 bits: numbers beyond them would be other lengths there.
    if ((lengths < 0) | (lengths >> 31 > 0)).any():
        raise FormatError("Parquet lengths of 2 GiB or more")
    return lengths
