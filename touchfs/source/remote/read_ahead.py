"""Read-ahead: find the readers that read a file in order, and how far to fetch ahead of each.

A file may have several readers, and a read does not say whose it is. So the ends of the last reads are remembered, and
a read that begins near one of them goes on there: the kernel asks a little out of order, and readers of samples skip
headers. After 1 MiB of reads in order, besides the largest read, twice as much as was read is fetched ahead, up
to 32 MiB: so a sample, or a page of a table, has nothing fetched behind it, and a reader of a whole shard has eight
requests of 4 MiB on their way.

All of this is a guess, so threads share it without a lock: at worst, a reader is taken for a new one.
"""

from __future__ import annotations

from collections import OrderedDict

AHEAD_MIN, AHEAD_MAX = 1 << 20, 32 << 20
# What is asked for ahead at once.
STEP = 4 << 20
# Readers of one file, and bytes between reads in order.
READERS_KEPT, GAP = 64, 256 << 10


class Reader:
    """A reader that reads in order.

    It has read `read` bytes, at most `largest` of them at once, up to `end`. Bytes up to `fetched` were asked for.
    """

    __slots__ = ("end", "fetched", "largest", "read")

    def __init__(self, end: int) -> None:
        self.end = end
        self.fetched = end
        self.read = self.largest = 0

    @property
    def is_in_order(self) -> bool:
        """True after 1 MiB in order, besides the largest read."""
        return self.read - self.largest >= AHEAD_MIN

    @property
    def until(self) -> int:
        """The offset up to which bytes should be fetched now; `fetched` if nothing is due."""
        window = min(2 * self.read, AHEAD_MAX)
        is_due = self.is_in_order and self.end + window - self.fetched >= min(window // 2, STEP)
        return self.end + window if is_due else self.fetched


class Readers:
    """The readers of one version of a file."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        # By the position where they are, in steps of GAP; the latest last.
        self._readers: OrderedDict[int, Reader] = OrderedDict()

    def follow(self, start: int, stop: int) -> Reader:
        """The reader of these bytes."""
        near = start // GAP
        for place in (near, near - 1, near + 1):
            reader = self._readers.get(place)
            if reader is not None and -GAP <= start - reader.end <= GAP:
                self._readers.pop(place, None)
                break
        else:
            reader = Reader(start)
        new = max(stop - max(start, reader.end), 0)  # several may read the same bytes
        reader.read += new
        reader.largest = max(reader.largest, new)
        reader.end = max(reader.end, stop)
        self._readers[reader.end // GAP] = reader
        if len(self._readers) > READERS_KEPT:
            self._readers.popitem(last=False)
        return reader
