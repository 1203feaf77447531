"""Columns of Arrow files that are mapped and used in place: integers, and values of bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError

Integers = NDArray[np.integer[Any]]

# The types of columns of integers by their bits and whether they are signed.
INTEGERS = {(8 * width, sign == "i"): np.dtype(f"<{sign}{width}") for sign in "iu" for width in (1, 2, 4, 8)}
OFFSET = np.dtype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class BinaryColumn:
    """A column of bytes. Value i is `data[offsets[i]:offsets[i + 1]]`; FormatError if these offsets are invalid."""

    offsets: NDArray[np.signedinteger[Any]]
    data: memoryview
    place: int = 0  # position of the offsets in the file, for errors

    @classmethod
    def of(cls, values: Iterable[bytes]) -> BinaryColumn:
        """Return a column of these values. Raises FormatError for 2 GiB or more."""
        values = list(values)
        offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
        return cls.at(offsets, memoryview(b"".join(values)))

    @classmethod
    def at(cls, offsets: NDArray[np.int64], data: memoryview) -> BinaryColumn:
        """Return the column of the values at these offsets in `data`. Raises FormatError for 2 GiB or more."""
        if offsets[-1] >= 2**31:
            raise FormatError(f"a binary column of {offsets[-1]} bytes in one batch, the most is 2 GiB", offset=0)
        return cls(offsets.astype(OFFSET), data)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        if i < 0:
            raise IndexError(i)
        start, end = self.offsets.item(i), self.offsets.item(i + 1)
        if not 0 <= start <= end <= len(self.data):
            place = self.place + i * OFFSET.itemsize
            raise FormatError(f"value {i} is at bytes {start} to {end} of {len(self.data)}", offset=place)
        return bytes(self.data[start:end])


Column = Integers | BinaryColumn
# Floats are only written.
WrittenColumn = Column | NDArray[np.float64]
# "binary", or an integer dtype or its name; for writing also "utf8" and "float64"
ColumnType = str | np.dtype[Any]
