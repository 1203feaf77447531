"""Arrow IPC files that can be mapped and used in place, as catalogs are.

A file has a magic, a stream of messages (the schema, then batches of rows, each a metadata flatbuffer and a body of
buffers), and a footer that repeats the schema and has the position of each batch. Columns are integers or `binary`,
uncompressed and without nulls: `touchfs.format.arrow.build` writes such files, and those of others within these limits
are read, too.

Parsing validates everything but reads no body: it costs the same for a hundred rows and a hundred million, and every
column is a view into the file. So only the first and last offset of a binary column are checked, and the offsets of
each value when it is read.

Source: arrow.apache.org/docs/format/Columnar.html, and format/{File,Message,Schema}.fbs beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.flatbuffers import I16, I32, I64, U8, FlatTable
from touchfs.format.arrow.mapped_columns import INTEGERS, OFFSET, BinaryColumn, Column, ColumnType, Integers
from touchfs.format.arrow.messages import footer_range, parse_message
from touchfs.format.arrow.metadata import (
    BATCH_BUFFERS,
    BATCH_COMPRESSION,
    BATCH_NODES,
    BATCH_ROWS,
    BLOCK,
    BUFFER,
    FIELD_DICTIONARY,
    FIELD_KIND,
    FIELD_NAME,
    FIELD_TYPE,
    FOOTER_BATCHES,
    FOOTER_DICTIONARIES,
    FOOTER_SCHEMA,
    FOOTER_VERSION,
    HEAD,
    INT_BITS,
    INT_SIGNED,
    MESSAGE_BATCH,
    NODE,
    PAIR_KEY,
    PAIR_VALUE,
    PREFIX,
    SCHEMA_ENDIANNESS,
    SCHEMA_FIELDS,
    SCHEMA_METADATA,
    TAIL,
    Kind,
    check_version,
)

_TYPE_NAMES = {kind.value: kind.name.lower() for kind in Kind}


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A record batch: the number of rows, and columns by name."""

    rows: int
    columns: dict[str, Column]


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """A parsed file: column types by name, the schema's metadata, and the batches."""

    columns: dict[str, ColumnType]
    metadata: dict[str, str]
    batches: tuple[Batch, ...]


def parse_file(data: Buffer) -> MappedFile:
    """Parse a whole file; its columns are views into `data`. Raises FormatError."""
    view = memoryview(data)
    if view[: len(HEAD)] != HEAD:
        raise FormatError("not an Arrow IPC file: it does not begin with ARROW1", offset=0)
    tail = len(view) - TAIL.size
    if tail < len(HEAD):
        raise FormatError("the Arrow file ends before its footer", offset=len(view))
    start, footer_size = footer_range(view[tail:], len(view))
    footer = flatbuffers.root(view, start, footer_size)
    check_version(footer.scalar(FOOTER_VERSION, I16), start)
    if footer.count(FOOTER_DICTIONARIES):
        raise FormatError("the Arrow file has dictionaries", offset=start)
    schema = footer.table(FOOTER_SCHEMA)
    if schema.scalar(SCHEMA_ENDIANNESS, I16):
        raise FormatError("the Arrow file is big-endian", offset=start)
    columns: dict[str, ColumnType] = {}
    for field in schema.tables(SCHEMA_FIELDS):
        name = field.string(FIELD_NAME)
        if name in columns:
            raise FormatError(f"two columns are named {name!r}", offset=start)
        columns[name] = _parse_type(field, name, start)
    metadata = {pair.string(PAIR_KEY): pair.string(PAIR_VALUE) for pair in schema.tables(SCHEMA_METADATA)}

    batches = []
    end = len(HEAD)
    for offset, metadata_size, body_size in footer.structs(FOOTER_BATCHES, BLOCK):
        # All writers put batches in order without overlaps; otherwise a footer could name one big batch many times.
        if offset < end or metadata_size < PREFIX.size or body_size < 0 or offset + metadata_size + body_size > start:
            raise FormatError(f"an Arrow batch cannot be at byte {offset}", offset=start)
        batches.append(_parse_batch(view, offset, metadata_size, body_size, columns))
        end = offset + metadata_size + body_size
    return MappedFile(columns, metadata, tuple(batches))


def _parse_type(field: FlatTable, name: str, offset: int) -> ColumnType:
    kind = field.scalar(FIELD_KIND, U8)
    if FIELD_DICTIONARY in field:
        raise FormatError(f"column {name!r} is dictionary-encoded", offset=offset)
    if kind == Kind.BINARY:
        return "binary"
    if kind == Kind.INT:
        described = field.table(FIELD_TYPE)
        bits, signed = described.scalar(INT_BITS, I32), bool(described.scalar(INT_SIGNED, U8))
        if (bits, signed) in INTEGERS:
            return INTEGERS[bits, signed]
        raise FormatError(f"column {name!r} is of integers of {bits} bits", offset=offset)
    type_name = _TYPE_NAMES.get(kind, f"number {kind}")
    raise FormatError(f"column {name!r} is of type {type_name}, only integers and binary are read", offset=offset)


def _parse_batch(
    view: memoryview, offset: int, metadata_size: int, body_size: int, columns: Mapping[str, ColumnType]
) -> Batch:
    message = parse_message(view, offset, metadata_size)
    if message.kind != MESSAGE_BATCH:
        raise FormatError("another Arrow message where a batch should be", offset=offset)
    batch = message.header
    if BATCH_COMPRESSION in batch:
        raise FormatError("the Arrow file is compressed", offset=offset)
    rows = batch.scalar(BATCH_ROWS, I64)
    nodes = batch.structs(BATCH_NODES, NODE)
    if len(nodes) != len(columns) or any(count != rows for count, _ in nodes) or rows < 0 or (rows and not nodes):
        raise FormatError(f"an Arrow batch of {rows} rows and {len(nodes)} columns", offset=offset)

    body = _Body(view, offset + metadata_size, body_size, iter(batch.structs(BATCH_BUFFERS, BUFFER)))
    parsed: dict[str, Column] = {}
    for (name, kind), (_, nulls) in zip(columns.items(), nodes, strict=True):
        if nulls:
            raise FormatError(f"column {name!r} has nulls", offset=offset)
        body.next()  # the validity buffer, which is not needed without nulls
        parsed[name] = body.integers(rows, kind) if isinstance(kind, np.dtype) else body.binary(rows)
    return Batch(rows, parsed)


class _Body(NamedTuple):
    """The buffers of a batch, in order."""

    view: memoryview
    offset: int
    size: int
    buffers: Iterator[tuple[int, ...]]

    def next(self) -> tuple[int, int]:
        offset, length = next(self.buffers, (-1, -1))
        if offset < 0 or length < 0 or offset + length > self.size:
            raise FormatError("a column is outside its Arrow batch", offset=self.offset)
        return self.offset + offset, length

    def integers(self, count: int, dtype: np.dtype[Any]) -> Integers:
        offset, length = self.next()
        if length < count * dtype.itemsize:
            raise FormatError(f"a column of {count} values has only {length} bytes", offset=offset)
        return np.frombuffer(self.view, dtype, count, offset)

    def binary(self, count: int) -> BinaryColumn:
        offset, length = self.next()
        if count == length == 0:
            offsets = np.zeros(1, OFFSET)  # the format allows an empty column to omit its only offset
        elif length < (count + 1) * OFFSET.itemsize:
            raise FormatError(f"a binary column of {count} values has only {length} bytes of offsets", offset=offset)
        else:
            offsets = np.frombuffer(self.view, OFFSET, count + 1, offset)
        start, size = self.next()
        if offsets[0] < 0 or offsets[-1] > size:
            raise FormatError(f"a binary column of {size} bytes whose offsets are out of range", offset=offset)
        return BinaryColumn(offsets, self.view[start : start + size], offset)
