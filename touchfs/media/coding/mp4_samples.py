"""The places of the samples of an MP4 or QuickTime file, and the times at which they are shown. ISO/IEC 14496-12.

A sample is a packet. libav knows all of it but one: by how much later than it is decoded a sample is shown (`ctts`).
That is what these tables are read for. They are at one place in the file, and its data are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.media.coding.mp4_boxes import boxes, places
from touchfs.media.coding.packet_table import PACKETS_MAX

# The limit for `moov`: a day of pictures and sound has 60 MB
_TABLES_MAX = 1 << 27
_COUNT = struct.Struct(">4xI")  # version and flags, number of entries
_SIZES = struct.Struct(">4xII")  # the size of all samples or 0, their number
_TRACK_ID = {0: 12, 1: 20}  # where it is in `tkhd`, by version


class ShownSamples(NamedTuple):
    """The samples of a track: `offsets` in the file, and `shifts` in ticks from decoding to showing. Both have N."""

    offsets: NDArray[np.int64]
    shifts: NDArray[np.int64]


def read_samples(size: int) -> Reads[dict[int, ShownSamples | None] | None]:
    """Read the tables of a file of `size` bytes: the samples of each track by its id, None if all are shown as decoded.

    Returns None for a file with fragments, whose tables are all over it. Raises FormatError.
    """
    data = yield from _find_tables(size)
    tracks: dict[int, ShownSamples | None] = {}
    for name, track in boxes(data):
        if name == b"mvex":
            return None
        if name == b"trak":
            found = dict(boxes(track))
            table = dict(boxes(_box(dict(boxes(_box(dict(boxes(_box(found, b"mdia"))), b"minf"))), b"stbl")))
            tracks[_id_of(_box(found, b"tkhd"))] = _samples(table) if b"ctts" in table else None
    return tracks


def _find_tables(size: int) -> Reads[memoryview]:
    """The contents of the box `moov`."""
    found = yield from places(0, size, last=b"moov")
    if not found or found[-1].name != b"moov":
        raise FormatError("has no tables, or is cut short", offset=found[-1].end if found else 0)
    _, start, end = found[-1]
    if end - start > _TABLES_MAX:
        raise FormatError(f"its tables have over {_TABLES_MAX:,} bytes", offset=start)
    data = yield start, end - start
    return memoryview(bytes(data))


def _box(found: Mapping[bytes, memoryview], name: bytes) -> memoryview:
    if name not in found:
        raise FormatError(f"has no box {name.decode('latin-1')}")
    return found[name]


def _id_of(header: memoryview) -> int:
    place = _TRACK_ID.get(header[0] if header else 0, 12)
    return int.from_bytes(header[place : place + 4], "big")


def _samples(table: Mapping[bytes, memoryview]) -> ShownSamples:
    sizes = _sizes(_box(table, b"stsz"))
    chunks = _column(table[b"co64"], ">u8", 1) if b"co64" in table else _column(_box(table, b"stco"), ">u4", 1)
    counts = _counts(_column(_box(table, b"stsc"), ">u4", 3), len(chunks))
    if counts.sum() != len(sizes):
        raise _damaged()
    before = np.cumsum(sizes) - sizes
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    offsets = np.repeat(chunks[counts > 0, 0] - before[firsts], counts[counts > 0]) + before
    runs = _column(_box(table, b"ctts"), ">i4", 2)
    if (runs[:, 0] < 0).any() or runs[:, 0].sum() != len(sizes):
        raise _damaged()
    return ShownSamples(offsets, np.repeat(runs[:, 1], runs[:, 0]))


def _sizes(box: memoryview) -> NDArray[np.int64]:
    if len(box) < _SIZES.size:
        raise _damaged()
    same, count = _SIZES.unpack_from(box)
    if count > PACKETS_MAX or (not same and count > (len(box) - _SIZES.size) // 4):
        raise _damaged()
    if same:
        return np.full(count, same, np.int64)
    return np.frombuffer(box, ">u4", count, _SIZES.size).astype(np.int64)


def _counts(runs: NDArray[np.int64], chunks: int) -> NDArray[np.int64]:
    """The number of samples of each chunk. A run is the number of its first chunk, from 1, and that of samples."""
    firsts = runs[:, 0] - 1
    if not len(runs):
        return np.zeros(chunks, np.int64)
    lengths = np.diff(firsts, append=chunks)
    if firsts[0] != 0 or (lengths < 0).any() or int((lengths * runs[:, 1]).max()) > PACKETS_MAX:
        raise _damaged()
    counts = np.repeat(runs[:, 1], lengths)
    if int(counts.sum()) > PACKETS_MAX:
        raise _damaged()
    return counts


def _column(box: memoryview, dtype: str, width: int) -> NDArray[np.int64]:
    """The entries of a table, shape (entries, width)."""
    if len(box) < _COUNT.size:
        raise _damaged()
    (count,) = _COUNT.unpack_from(box)
    if count > (len(box) - _COUNT.size) // (np.dtype(dtype).itemsize * width):
        raise _damaged()
    values = np.frombuffer(box, dtype, count * width, _COUNT.size)
    return values.astype(np.int64).reshape(-1, width)


def _damaged() -> FormatError:
    return FormatError("its tables of samples are damaged")
