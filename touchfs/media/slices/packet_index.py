"""The packets of a recording: where each is in the file, and how many samples it decodes to.

A packet is one piece of the file, or several (Ogg). Sizes and lengths repeat themselves, so an index compresses well:
an hour takes 4 kB of MP3 at a constant bit rate, 140 kB of Opus or AAC, 320 kB of Vorbis. In memory it has 36 bytes a
packet, 6 MB for an hour of Opus.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError

Offsets = NDArray[np.int64]
Counts = NDArray[np.uint32]

# No recording of a day has so many: 20 ms each.
PACKETS_MAX = 1 << 24
_DAMAGED = "the packet index is damaged"


@dataclass(frozen=True, slots=True, eq=False)
class PacketIndex:
    """Columns: `offsets` and `sizes` of pieces in bytes; `piece_counts` and `lengths` (samples) of packets.

    The recording begins `head` samples after the begin of the first packet.
    """

    offsets: Offsets
    sizes: Counts
    piece_counts: Counts
    lengths: Counts
    head: int
    # The first sample and the first piece of each packet, and their end
    starts: Offsets = field(init=False, repr=False)
    first_pieces: Offsets = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", _sums(self.lengths))
        object.__setattr__(self, "first_pieces", _sums(self.piece_counts))

    def __len__(self) -> int:
        return len(self.lengths)

    def check(self, size: int, frames: int) -> None:
        """Check against the size of the file in bytes, and the number of samples. Raises FormatError."""
        if len(self) > PACKETS_MAX:
            raise FormatError(f"has over {PACKETS_MAX:,} packets")
        if not (
            len(self.offsets) == len(self.sizes) == self.first_pieces[-1]
            and (self.piece_counts > 0).all()
            and (self.offsets >= 0).all()
            and (self.sizes > 0).all()
            and (self.offsets + self.sizes <= size).all()
            and int(self.sizes.sum(dtype=np.int64)) <= size
            and self.head >= 0
            and frames >= 0
            and self.head + frames <= self.starts[-1]
        ):
            raise FormatError("its packets do not fit in the file: it is damaged")

    def part(self, first: int, frames: int, before: int, size: int) -> PacketIndex:
        """The index of the samples `[first, first + frames)`, counted from the first packet, and of up to `before` more
        before them, in packets of up to `size` bytes together. A packet has one piece.
        """
        begin = max(int(np.searchsorted(self.starts, first - before, "right")) - 1, 0)
        end = int(np.searchsorted(self.starts, first + frames, "left"))
        sums = np.cumsum(self.sizes[begin:end][::-1], dtype=np.int64)  # an edit list may repeat what is before
        begin = max(begin, end - int(np.searchsorted(sums, size, "right")))
        pieces = slice(int(self.first_pieces[begin]), int(self.first_pieces[end]))
        head = first - int(self.starts[begin])
        lengths, piece_counts = self.lengths[begin:end].copy(), self.piece_counts[begin:end].copy()
        return PacketIndex(self.offsets[pieces].copy(), self.sizes[pieces].copy(), piece_counts, lengths, head)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        columns = (self.offsets, self.sizes, self.piece_counts, self.lengths, self.starts, self.first_pieces)
        return sum(column.nbytes for column in columns)

    def to_bytes(self) -> bytes:
        """The columns as bytes, compressed. The caller keeps their numbers of entries and `head`."""
        ends = self.offsets[:-1] + self.sizes[:-1]
        gaps = np.concatenate([self.offsets[:1], self.offsets[1:] - ends])  # nearly all are alike
        columns = (gaps.astype("<i8"), *(each.astype("<u4") for each in (self.sizes, self.piece_counts, self.lengths)))
        return zlib.compress(b"".join(_planes(column) for column in columns), 6)

    @classmethod
    def from_bytes(cls, data: bytes, file_size: int, packets: int, pieces: int, head: int) -> PacketIndex:
        """Read what `to_bytes` returned, for a file of `file_size` bytes. Raises FormatError. Then call `check`."""
        if not 0 <= packets <= PACKETS_MAX or not packets <= pieces <= file_size:
            raise FormatError(_DAMAGED)
        size = 12 * pieces + 8 * packets
        try:
            raw = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise FormatError(_DAMAGED) from error
        if len(raw) != size:
            raise FormatError(_DAMAGED)
        columns = []
        for dtype, count in (("<i8", pieces), ("<u4", pieces), ("<u4", packets), ("<u4", packets)):
            width = np.dtype(dtype).itemsize
            planes = np.frombuffer(raw[: width * count], np.uint8).reshape(width, count)
            columns.append(planes.T.copy().view(dtype)[:, 0])
            raw = raw[width * count :]
        gaps, sizes, piece_counts, lengths = columns
        offsets = np.cumsum(gaps + np.concatenate([np.zeros(1, np.int64), sizes])[:-1]) if pieces else gaps
        return cls(offsets.astype(np.int64), sizes, piece_counts, lengths, head)


def _sums(values: Counts) -> Offsets:
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def _planes(column: NDArray[np.generic]) -> bytes:
    """First the lowest byte of each value, then the next: equal bytes lie together, which compresses better."""
    return column.view(np.uint8).reshape(len(column), column.itemsize).T.tobytes()
