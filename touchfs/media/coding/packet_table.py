"""The packets of a video's pictures or sound, in the order in which they are decoded.

Neighbours are alike, so a table compresses well: 8 bytes a packet, 700 kB for an hour of pictures. In memory it has 25.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

Offsets = NDArray[np.int64]
Counts = NDArray[np.uint32]
Flags = NDArray[np.uint8]

# Flags: decoding can begin there; it is decoded and not shown, by an edit list or as the codec says
KEY, HIDDEN = 1, 2
# 24 hours of sound in packets of 5 ms
PACKETS_MAX = 1 << 24
COLUMNS = ("<i8", "<u4", "<i8", "<u4", "u1")
_TIME_MAX = 1 << 53
_DAMAGED = "the packet table is damaged"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PacketTable:
    """Columns: `offsets` and `sizes` in bytes; `times` at which they are shown, and `durations`, in ticks; `flags`."""

    offsets: Offsets
    sizes: Counts
    times: Offsets
    durations: Counts
    flags: Flags

    @classmethod
    def from_columns(cls, columns: Sequence[Buffer]) -> PacketTable:
        """Read the bytes of each column. Raises ValueError."""
        return cls(*(np.frombuffer(column, dtype) for column, dtype in zip(columns, COLUMNS, strict=True)))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """Its size in memory."""
        return sum(column.nbytes for column in (self.offsets, self.sizes, self.times, self.durations, self.flags))

    @property
    def end(self) -> int:
        """The time at which the last packet ends."""
        return int((self.times + self.durations).max(initial=0))

    def check(self, file_size: int) -> None:
        """Check against the size of the file in bytes. Raises FormatError."""
        if len(self) > PACKETS_MAX:
            raise FormatError(f"has over {PACKETS_MAX:,} packets")
        lengths = {len(column) for column in (self.offsets, self.sizes, self.times, self.durations, self.flags)}
        if not (
            len(lengths) == 1
            and (self.offsets >= 0).all()
            and (self.sizes > 0).all()
            and (self.offsets <= file_size).all()
            and (self.offsets + self.sizes <= file_size).all()
            and int(self.sizes.sum(dtype=np.int64)) <= file_size
            and (self.times > -_TIME_MAX).all()
            and (self.times < _TIME_MAX).all()
        ):
            raise FormatError("its packets do not fit in the file: it is damaged")

    def to_bytes(self) -> bytes:
        """The columns as bytes, compressed. The caller keeps the number of packets."""
        ends = self.offsets + self.sizes
        gaps = np.diff(self.offsets, prepend=0)
        gaps[1:] = self.offsets[1:] - ends[:-1]
        columns: tuple[NDArray[Any], ...] = (
            gaps,
            self.sizes,
            np.diff(self.times, prepend=0),
            self.durations,
            self.flags,
        )
        raw = (column.astype(dtype) for column, dtype in zip(columns, COLUMNS, strict=True))
        return zlib.compress(b"".join(_planes(column) for column in raw), 6)

    @classmethod
    def from_bytes(cls, data: Buffer, count: int) -> PacketTable:
        """Read what `to_bytes` returned for `count` packets. Raises FormatError. Then call `check`."""
        widths = [np.dtype(dtype).itemsize for dtype in COLUMNS]
        if not 0 <= count <= PACKETS_MAX:
            raise FormatError(_DAMAGED)
        try:
            raw = zlib.decompressobj().decompress(data, count * sum(widths) + 1)
        except zlib.error as error:
            raise FormatError(_DAMAGED) from error
        if len(raw) != count * sum(widths):
            raise FormatError(_DAMAGED)
        columns = []
        for dtype, width in zip(COLUMNS, widths, strict=True):
            size = width * count
            columns.append(np.frombuffer(raw[:size], np.uint8).reshape(width, count).T.copy().view(dtype)[:, 0])
            raw = raw[size:]
        gaps, sizes, times, durations, flags = columns
        ends = np.cumsum(gaps + sizes)  # of packets; those before are at their begin without the own size
        return cls(ends - sizes, sizes, np.cumsum(times), durations, flags)


def _planes(column: NDArray[np.generic]) -> bytes:
    """First the lowest byte of each value, then the next: equal bytes lie together, which compresses better."""
    return column.view(np.uint8).reshape(len(column), -1).T.tobytes()
