"""The packets of an MP4 or QuickTime file without reading them, in the child process: libav's index, and the tables.

libav makes its index of the tables when it opens a file, and applies edit lists there. It has all of a packet but the
time at which that is shown, which the table `ctts` has. The first packets are read, and must be what the index says;
else, and for a file with fragments, there is no index, and all packets are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, drive
from touchfs.media.coding.mp4_samples import ShownSamples, read_samples
from touchfs.media.coding.packet_table import HIDDEN, KEY, PACKETS_MAX
from touchfs.media.decoder.request_content import RequestContent

_BLOCK = 1 << 14


class IndexedPacket(NamedTuple):
    """A packet of libav that is not read. `is_discard` says that it is decoded and not played."""

    pos: int
    size: int
    is_discard: bool

    @property
    def is_corrupt(self) -> bool:
        """False: as libav's packets, of which it tells after a read."""
        return False


class Packets(NamedTuple):
    """The packets of a stream, as the columns of a `PacketTable`."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.uint32]
    times: NDArray[np.int64]
    durations: NDArray[np.uint32]
    flags: NDArray[np.uint8]

    def begin_with(self, first: Packets) -> bool:
        """True if these are the first packets. Where the last one of all ends is in no table."""
        columns: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(self, first, strict=True)
        known = min(len(first.offsets), len(self.offsets) - 1)
        return len(first.offsets) <= len(self.offsets) and all(
            np.array_equal(mine[:known], theirs[:known]) for mine, theirs in columns
        )

    def has(self, packets: list[Any], first: int) -> bool:
        """True if packets of libav are those from the number `first` on."""
        mine = self.between(first, first + len(packets))
        return list(mine) == [(packet.pos, packet.size, packet.is_discard) for packet in packets]

    def between(self, first: int, end: int) -> Iterator[IndexedPacket]:
        """The packets with the numbers `[first, end)`."""
        for begin in range(first, end, _BLOCK):  # as lists all would take ten times the memory
            block = slice(begin, min(begin + _BLOCK, end))
            columns = self.offsets[block], self.sizes[block], self.flags[block] & HIDDEN != 0
            yield from map(IndexedPacket, *(column.tolist() for column in columns))


def read_index(streams: list[Any], content: RequestContent) -> list[Packets] | None:
    """The packets of streams of libav, with times from any origin. None if libav and the tables do not know them."""
    with suppress(FormatError):
        tables = drive(read_samples(content.size), ExactReads(content))
        if tables is not None and all(0 < len(stream.index_entries) <= PACKETS_MAX for stream in streams):
            return [_packets(stream, tables.get(stream.id)) for stream in streams]
    return None


def _packets(stream: Any, samples: ShownSamples | None) -> Packets:
    # Not as tuples: those of a day would not fit in the memory of a child.
    own = array("q"), array("I"), array("q"), array("B")
    for entry in stream.index_entries:
        flags = KEY * entry.is_keyframe + HIDDEN * entry.is_discard
        for column, value in zip(own, (entry.pos, max(entry.size, 0), entry.timestamp, flags), strict=True):
            column.append(value)
    offsets, sizes, decoded, marks = (np.frombuffer(column, column.typecode) for column in own)
    times = decoded if samples is None else decoded + _shifts(samples, offsets)
    durations = np.append(np.diff(decoded), 0)
    left = max((stream.duration or 0) - int(decoded[-1]), 0)  # the last packet of sound is often shorter
    durations[-1] = min(left, durations[-2]) if left and len(decoded) > 1 else max(left, *durations[-2:])
    durations = np.clip(durations, 0, 0xFFFFFFFF)
    return Packets(offsets, sizes, times, durations.astype(np.uint32), marks)


def _shifts(samples: ShownSamples, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The shifts of the samples at these offsets. Raises FormatError for one that the tables do not have."""
    order = np.argsort(samples.offsets, kind="stable")
    places = np.searchsorted(samples.offsets, offsets, sorter=order)
    found = order[np.minimum(places, len(order) - 1)] if len(order) else places
    if not len(order) or (samples.offsets[found] != offsets).any():
        raise FormatError("its tables do not agree")
    return samples.shifts[found]


class ExactReads:
    """The content as a source, whose reads are exact."""

    def __init__(self, content: RequestContent) -> None:
        self._content = content

    def read(self, offset: int, length: int) -> Buffer:
        data = self._content.read(offset, length)
        if len(data) != length:
            raise FormatError("is cut short")
        return data

    def read_nowait(self, offset: int, length: int) -> None:
        return None
