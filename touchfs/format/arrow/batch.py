"""The layout of a record batch: where each buffer of its columns is in the file, read from the header alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, lt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.format.arrow.compression import CODECS
from touchfs.format.arrow.file import IpcBatch, IpcDictionary, read_message
from touchfs.format.arrow.flatbuffers import I64, U8, FlatTable
from touchfs.format.arrow.metadata import (
    BATCH_BUFFERS,
    BATCH_COMPRESSION,
    BATCH_NODES,
    BATCH_ROWS,
    BATCH_VARIADIC_COUNTS,
    BUFFER,
    DICTIONARY_VALUES,
    MESSAGE_BATCH,
    NODE,
)
from touchfs.format.arrow.schema import IpcField, IpcSchema

# Some columns need no bytes, as those of nulls; but no small file may claim to have billions of rows. A batch, and all.
_FREE_ROWS, _FREE_ROWS_OF_FILE = 1 << 20, 1 << 26
# The largest schema has half a million; views have more.
_BUFFERS_MAX = 1 << 20


class BufferRange(NamedTuple):
    """The range of a buffer in the file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class BatchLayout:
    """The layout of a batch of `rows` rows. Each buffer is compressed alone if `codec` is not None.

    `numbers` has the number of values and of nulls of each field, and `ranges` the offset in the body and the length of
    each buffer, one after the other. `variadic_starts` has, for each field of views, how many buffers with values those
    before it have, and last how many all have.
    """

    schema: IpcSchema
    place: IpcBatch
    rows: int
    numbers: tuple[int, ...]
    ranges: tuple[int, ...]
    variadic_starts: tuple[int, ...]
    codec: str | None

    def count(self, field: IpcField) -> int:
        return self.numbers[2 * field.node]

    def nulls(self, field: IpcField) -> int:
        """Return the number of nulls of a field, where its parents' nulls do not count."""
        return self.numbers[2 * field.node + 1]

    def check_count(self, field: IpcField, each: int = 1) -> None:
        """Raise FormatError if a field has less than `each` values for each row."""
        if self.count(field) < each * self.rows:
            message = f"column {field.name!r} has {self.count(field)} values in {self.rows} rows of {each}"
            raise FormatError(message, offset=self.place.offset)

    def first_buffer(self, field: IpcField) -> int:
        """Return the number of the first buffer of a field, or of what follows if it has none."""
        return field.buffer + self.variadic_starts[field.view]

    def buffer(self, field: IpcField, number: int) -> BufferRange:
        """Return the range of a buffer of a field, which the type says to exist; 0 is the first."""
        number = 2 * (number + self.first_buffer(field))
        return BufferRange(self._body + self.ranges[number], self.ranges[number + 1])

    @property
    def buffers(self) -> NDArray[np.int64]:
        """The offset in the file and the length of each buffer, one row each."""
        table = np.array(self.ranges, np.int64).reshape(-1, 2)
        table[:, 0] += self._body
        return table

    def variadic_buffers(self, field: IpcField) -> list[BufferRange]:
        """Return the range of each buffer with the values of a field of views."""
        start, end = self.variadic_starts[field.view : field.view + 2]
        return [self.buffer(field, 2 + number) for number in range(end - start)]

    @property
    def _body(self) -> int:
        return self.place.offset + self.place.metadata_size


def batch_layout(schema: IpcSchema, batch: IpcBatch) -> Reads[BatchLayout]:
    """Read the layout of a batch: its header and nothing else. Raises FormatError."""
    message = yield from read_message(batch)
    if message.kind != MESSAGE_BATCH:
        raise FormatError("another Arrow message where a batch should be", offset=batch.offset)
    try:
        return _parse(schema, batch, message.header)
    except FormatError as error:
        error.offset = batch.offset
        raise


def count_rows(layouts: Iterable[BatchLayout]) -> NDArray[np.int64]:
    """Return the first row of each batch of a file, and last the number of rows. Raises FormatError for too many."""
    starts, free = [0], 0
    for layout in layouts:
        starts.append(starts[-1] + layout.rows)
        free += max(layout.rows - 8 * layout.place.body_size, 0)
        if free > _FREE_ROWS_OF_FILE:
            raise FormatError(
                f"an Arrow file of over {starts[-2]:,} rows, which have no bytes", offset=layout.place.offset
            )
    return np.array(starts, np.int64)


def dictionary_buffers(dictionary: IpcDictionary) -> Reads[tuple[list[BufferRange], str | None]]:
    """Read where the buffers of a dictionary's values are, and the codec that compressed each. Raises FormatError."""
    place = dictionary.place
    message = yield from read_message(place)
    try:
        header = message.header.table(DICTIONARY_VALUES)
        ranges = _integers(header.elements(BATCH_BUFFERS, BUFFER.size))
        _check_ranges(ranges, place)
        codec = _codec(header.table(BATCH_COMPRESSION)) if BATCH_COMPRESSION in header else None
    except FormatError as error:
        error.offset = place.offset
        raise
    body = place.offset + place.metadata_size
    return [BufferRange(body + start, size) for start, size in zip(ranges[::2], ranges[1::2], strict=True)], codec


def _check_ranges(ranges: Sequence[int], place: IpcBatch) -> None:
    if min(ranges, default=0) < 0 or max(map(add, ranges[::2], ranges[1::2]), default=0) > place.body_size:
        raise FormatError("a column is outside its Arrow batch")


def _parse(schema: IpcSchema, batch: IpcBatch, header: FlatTable) -> BatchLayout:
    rows = header.scalar(BATCH_ROWS, I64)
    if not 0 <= rows <= max(8 * batch.body_size, _FREE_ROWS):
        raise FormatError(f"an Arrow batch of {rows} rows in {batch.body_size} bytes")
    counts = _integers(header.elements(BATCH_VARIADIC_COUNTS, I64.size))
    if len(counts) != schema.views or min(counts, default=0) < 0:
        raise FormatError(f"an Arrow batch with {len(counts)} columns of views instead of {schema.views}")
    node_data, buffer_data = header.elements(BATCH_NODES, NODE.size), header.elements(BATCH_BUFFERS, BUFFER.size)
    nodes, buffers = len(node_data) // NODE.size, len(buffer_data) // BUFFER.size
    if nodes != schema.nodes or buffers != schema.buffers + sum(counts) or buffers > _BUFFERS_MAX:
        raise FormatError(f"an Arrow batch with {nodes} nodes and {buffers} buffers, not those of the schema")
    numbers, ranges = _integers(node_data), _integers(buffer_data)
    is_possible = min(numbers, default=0) >= 0 and not any(map(lt, numbers[::2], numbers[1::2]))
    if not is_possible or any(numbers[2 * each.node] != rows for each in schema.fields):
        raise FormatError(f"an Arrow batch of {rows} rows whose columns have other numbers of values or nulls")
    _check_ranges(ranges, batch)
    codec = _codec(header.table(BATCH_COMPRESSION)) if BATCH_COMPRESSION in header else None
    return BatchLayout(schema, batch, rows, numbers, ranges, tuple(accumulate(counts, initial=0)), codec)


def _integers(data: memoryview) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // I64.size}q", data)


def _codec(compression: FlatTable) -> str:
    number, method = compression.scalar(0, U8), compression.scalar(1, U8)
    if method or number >= len(CODECS):
        raise FormatError(f"an Arrow batch is compressed by an unknown codec, number {number}")
    return CODECS[number]
