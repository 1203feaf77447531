"""Streams of one batch of an Arrow file, in which only the columns that are asked for are filled.

pyarrow reads whole batches of a stream. So it gets a batch in anonymous memory instead, where only the buffers of these
columns are filled; the pages of others are never touched. A file that is cut while it is read is an error of its
source, not the SIGBUS of a mapped file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.format.arrow.batch import BatchLayout, dictionary_buffers
from touchfs.format.arrow.compression import SIZE, parse_size
from touchfs.format.arrow.file import IpcBatch, IpcFile
from touchfs.limits import Limits, too_large
from touchfs.tables.values.field_paths import Path, in_batch

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile

# Ranges with smaller gaps are read at once.
_GAP = 1 << 14
# Memory that is not touched is not reserved. Python 3.11 has no name for this flag of Linux.
_UNRESERVED = 0x4000


class BatchStreams:
    """Makes the streams of the batches of an open Arrow file. Raises FormatError, and the errors of the source."""

    def __init__(self, source: StoredFile, ipc: IpcFile, limits: Limits) -> None:
        self._source = source
        self._ipc = ipc
        self._limits = limits

    def assemble(self, layout: BatchLayout, columns: Sequence[int], left_out: frozenset[Path]) -> mmap.mmap:
        """A stream of the schema, the dictionaries and a batch, in which only some buffers are filled."""
        place, schema = layout.place, self._ipc.schema_message
        before: list[tuple[int, int]] = []
        for dictionary in self._ipc.dictionaries:
            offset, metadata_size, body_size = dictionary.place
            if not self._ipc.is_stream or offset < place.offset:
                before.append((offset, metadata_size + body_size))
        start = len(schema) + sum(size for _, size in before)
        shift = start - place.offset
        ranges, holes = self._ranges(layout, columns, left_out)
        needed = start + place.metadata_size + sum(length for _, length in ranges)
        if needed > self._limits.decoded:
            raise self.too_large(place)
        memory = mmap.mmap(
            -1,
            start + place.metadata_size + place.body_size,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED,
        )
        with memoryview(memory) as view:
            position = len(schema)
            view[:position] = schema
            for offset, size in [*before, (place.offset, place.metadata_size)]:
                self._source.read_into(offset, view[position : position + size])
                position += size
            for offset, length in _joined(ranges):
                self._source.read_into(offset, view[offset + shift : offset + shift + length])
            self._check_sizes(place, view, shift, ranges if layout.codec is not None else [])
            if layout.codec is not None:
                for offset, length in holes:  # say that they are not compressed, or pyarrow decompresses zeros
                    if length >= SIZE.size:
                        SIZE.pack_into(view, offset + shift, -1)
        return memory

    def _ranges(
        self, layout: BatchLayout, columns: Sequence[int], left_out: frozenset[Path]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The offsets and lengths of the buffers of columns, and of those that are left out."""
        wanted: list[tuple[int, int]] = []
        holes: list[tuple[int, int]] = []
        fields = list(in_batch(self._ipc.schema))
        first = [layout.first_buffer(field) for _, field in fields]
        buffers = layout.buffers
        for (path, _), start, end in zip(fields, first, [*first[1:], len(buffers)], strict=True):
            if path[0] in columns:
                is_out = any(path[:depth] in left_out for depth in range(1, len(path) + 1))
                (holes if is_out else wanted).extend(map(tuple, buffers[start:end].tolist()))
        return wanted, holes

    def too_large(self, place: IpcBatch) -> FormatError:
        """The error about the batch at a place, which does not fit in memory."""
        message = f"rows of this batch are not read: {too_large(self._limits.decoded)}"
        return FormatError(message, offset=place.offset)

    def _check_sizes(self, place: IpcBatch, view: memoryview, shift: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Raise FormatError if compressed buffers, and those of dictionaries, do not fit in memory."""
        total = 0
        for offset, length in ranges:
            head = view[offset + shift : offset + shift + min(length, SIZE.size)]
            total += parse_size(head, length, self._limits.decoded)[0]
        if total + self._dictionaries_size > self._limits.decoded:
            raise self.too_large(place)

    @cached_property
    def _dictionaries_size(self) -> int:
        """The bytes that the compressed buffers of all dictionaries decompress to."""
        total = 0
        for dictionary in self._ipc.dictionaries:
            buffers, codec = drive(dictionary_buffers(dictionary), self._source)
            for offset, length in buffers if codec is not None else ():
                head = self._source.read(offset, min(length, SIZE.size))
                total += parse_size(head, length, self._limits.decoded)[0]
        return total


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges in order, those that are close together as one."""
    start = end = -1
    for offset, length in sorted(each for each in ranges if each[1]):
        if end >= 0 and offset <= end + _GAP:
            end = max(end, offset + length)
            continue
        if end >= 0:
            yield start, end - start
        start, end = offset, offset + length
    if end >= 0:
        yield start, end - start
