"""Arrow IPC files that can be mapped and used in place, as catalogs are.

A file has a magic, a stream of messages (the schema, then batches of rows, each a metadata flatbuffer and a body of
buffers), and a footer that repeats the schema and has the position of each batch. Columns are integers or `binary`,
uncompressed and without nulls. Any Arrow library reads the files written here, and files of others within these limits
are read here. Columns of `utf8` and of floats of 64 bits are only written.

A file can also be written in parts: `build_head`, any number of `build_batch`, and `build_end`.

Parsing validates everything but reads no body: it costs the same for a hundred rows and a hundred million, and every
column is a view into the file. So only the first and last offset of a binary column are checked, and the offsets of
each value when it is read.

Source: arrow.apache.org/docs/format/Columnar.html, and format/{File,Message,Schema}.fbs beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.flatbuffers import I16, I32, I64, U8, Fields, FlatTable, Scalar, Structs
from touchfs.format.arrow.messages import footer_range, parse_message
from touchfs.format.arrow.metadata import (
    BATCH_BUFFERS,
    BATCH_COMPRESSION,
    BATCH_NODES,
    BATCH_ROWS,
    BLOCK,
    BUFFER,
    CONTINUATION,
    FIELD_CHILDREN,
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
    MAGIC,
    MESSAGE_BATCH,
    MESSAGE_BODY_SIZE,
    MESSAGE_HEADER,
    MESSAGE_KIND,
    MESSAGE_SCHEMA,
    MESSAGE_VERSION,
    NODE,
    PAIR_KEY,
    PAIR_VALUE,
    PREFIX,
    SCHEMA_ENDIANNESS,
    SCHEMA_FIELDS,
    SCHEMA_METADATA,
    TAIL,
    VERSION5,
    Kind,
    check_version,
)

Integers = NDArray[np.integer[Any]]

_END_OF_STREAM = PREFIX.pack(CONTINUATION, 0)
# Arrow requires 8; 64 is a cache line and the widest vector register, and costs nothing here.
_ALIGNMENT = 64
_TYPE_NAMES = {kind.value: kind.name.lower() for kind in Kind}
_DTYPES = {(8 * width, sign == "i"): np.dtype(f"<{sign}{width}") for sign in "iu" for width in (1, 2, 4, 8)}
_OFFSET = np.dtype("<i4")
_FLOAT, _DOUBLE = np.dtype("<f8"), 2


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
        return cls(offsets.astype(_OFFSET), data)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        if i < 0:
            raise IndexError(i)
        start, end = self.offsets.item(i), self.offsets.item(i + 1)
        if not 0 <= start <= end <= len(self.data):
            place = self.place + i * _OFFSET.itemsize
            raise FormatError(f"value {i} is at bytes {start} to {end} of {len(self.data)}", offset=place)
        return bytes(self.data[start:end])


Column = Integers | BinaryColumn
# Floats are only written.
WrittenColumn = Column | NDArray[np.float64]
# "binary", or an integer dtype or its name; for writing also "utf8" and "float64"
ColumnType = str | np.dtype[Any]


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
        if (bits, signed) in _DTYPES:
            return _DTYPES[bits, signed]
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
        """Return the next buffer's offset in the file and its length."""
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
            offsets = np.zeros(1, _OFFSET)  # the format allows an empty column to omit its only offset
        elif length < (count + 1) * _OFFSET.itemsize:
            raise FormatError(f"a binary column of {count} values has only {length} bytes of offsets", offset=offset)
        else:
            offsets = np.frombuffer(self.view, _OFFSET, count + 1, offset)
        start, size = self.next()
        if offsets[0] < 0 or offsets[-1] > size:
            raise FormatError(f"a binary column of {size} bytes whose offsets are out of range", offset=offset)
        return BinaryColumn(offsets, self.view[start : start + size], offset)


def build_file(
    columns: Mapping[str, ColumnType], batches: Iterable[Mapping[str, WrittenColumn]], metadata: Mapping[str, str]
) -> Iterator[Buffer]:
    """Yield the bytes of a file in pieces. Each batch is released once it is written.

    Raises FormatError if a batch does not have these columns.
    """
    head = build_head(columns, metadata)
    yield head
    blocks = []
    for batch in batches:
        message, buffers = build_batch(columns, batch)
        body = sum(padded_size(len(buffer)) for buffer in buffers)
        blocks.append((len(message), body))
        yield message
        for buffer in buffers:
            yield buffer
            yield bytes(padded_size(len(buffer)) - len(buffer))
    yield build_end(columns, metadata, blocks)


def build_head(columns: Mapping[str, ColumnType], metadata: Mapping[str, str]) -> bytes:
    """Return what is before the batches of a file."""
    return HEAD + _build_message(MESSAGE_SCHEMA, _build_schema(columns, metadata), 0, len(HEAD))


def build_batch(columns: Mapping[str, ColumnType], batch: Mapping[str, WrittenColumn]) -> tuple[bytes, list[Buffer]]:
    """Return the message of a batch, and its buffers, each of which is padded to `padded_size`.

    Raises FormatError if it does not have these columns.
    """
    rows, buffers = _flatten(batch, {name: _dtype(name, kind) for name, kind in columns.items()})
    return build_batch_message(len(columns), rows, [len(buffer) for buffer in buffers]), buffers


def build_batch_message(columns: int, rows: int, sizes: Sequence[int]) -> bytes:
    """Return the message of a batch whose buffers have these sizes. All such messages of a file are equally long."""
    offsets = list(accumulate(map(padded_size, sizes), initial=0))
    header: Fields = {
        BATCH_ROWS: Scalar(I64, rows),
        BATCH_NODES: Structs(NODE, [(rows, 0)] * columns),
        BATCH_BUFFERS: Structs(BUFFER, list(zip(offsets, sizes, strict=False))),
    }
    return _build_message(MESSAGE_BATCH, header, offsets[-1], 0)


def build_end(
    columns: Mapping[str, ColumnType], metadata: Mapping[str, str], blocks: Iterable[tuple[int, int]]
) -> bytes:
    """Return what is after the batches of a file, where `blocks` has the size of each one's message and body."""
    position, places = len(build_head(columns, metadata)), []
    for message, body in blocks:
        places.append((position, message, body))
        position += message + body
    footer = flatbuffers.build(
        {
            FOOTER_VERSION: Scalar(I16, VERSION5),
            FOOTER_SCHEMA: _build_schema(columns, metadata),
            FOOTER_DICTIONARIES: [],
            FOOTER_BATCHES: Structs(BLOCK, places),
        }
    )
    return _END_OF_STREAM + footer + TAIL.pack(len(footer), MAGIC)


def _build_schema(columns: Mapping[str, ColumnType], metadata: Mapping[str, str]) -> Fields:
    return {
        SCHEMA_FIELDS: [_build_field(name, kind) for name, kind in columns.items()],
        SCHEMA_METADATA: [{PAIR_KEY: key, PAIR_VALUE: value} for key, value in metadata.items()],
    }


def _dtype(name: str, kind: ColumnType) -> np.dtype[Any] | None:
    """None for binary and utf8."""
    if kind in ("binary", "utf8"):
        return None
    dtype = np.dtype(kind)
    if dtype not in _DTYPES.values() and dtype != _FLOAT:
        raise FormatError(f"column {name!r} would be of {dtype.str}, which is not written", offset=0)
    return dtype


def _build_field(name: str, kind: ColumnType) -> Fields:
    dtype = _dtype(name, kind)
    described: Fields = {FIELD_NAME: name, FIELD_CHILDREN: []}
    if dtype is None:
        text = Kind.UTF8 if kind == "utf8" else Kind.BINARY
        return {**described, FIELD_KIND: Scalar(U8, text), FIELD_TYPE: {}}
    if dtype == _FLOAT:
        return {**described, FIELD_KIND: Scalar(U8, Kind.FLOAT), FIELD_TYPE: {0: Scalar(I16, _DOUBLE)}}
    integer = {INT_BITS: Scalar(I32, 8 * dtype.itemsize), INT_SIGNED: Scalar(U8, dtype.kind == "i")}
    return {**described, FIELD_KIND: Scalar(U8, Kind.INT), FIELD_TYPE: integer}


def _build_message(kind: int, header: Fields, body_size: int, position: int) -> bytes:
    """Return a message with its prefix, padded so that the body after it is aligned in the file."""
    metadata = flatbuffers.build(
        {
            MESSAGE_VERSION: Scalar(I16, VERSION5),
            MESSAGE_KIND: Scalar(U8, kind),
            MESSAGE_HEADER: header,
            MESSAGE_BODY_SIZE: Scalar(I64, body_size),
        }
    )
    start = position + PREFIX.size
    length = padded_size(start + len(metadata)) - start
    return PREFIX.pack(CONTINUATION, length) + metadata.ljust(length, b"\0")


def _flatten(
    batch: Mapping[str, WrittenColumn], dtypes: Mapping[str, np.dtype[Any] | None]
) -> tuple[int, list[Buffer]]:
    """Return the number of rows of a batch, and its buffers in the format's order."""
    if batch.keys() != dtypes.keys() or len({len(column) for column in batch.values()}) > 1:
        sizes = ", ".join(f"{name} ({len(column)})" for name, column in batch.items())
        raise FormatError(f"a batch does not have the columns {', '.join(dtypes)}, or not as long: {sizes}", offset=0)
    rows = 0
    buffers: list[Buffer] = []
    for name, dtype in dtypes.items():
        column = batch[name]
        rows = len(column)
        buffers.append(b"")  # no validity: no nulls
        if isinstance(column, BinaryColumn) and dtype is None:
            offsets = column.offsets
            if offsets[0] < 0 or offsets[-1] > len(column.data) or (offsets[1:] < offsets[:-1]).any():
                raise FormatError(f"the offsets of column {name!r} are not in order", offset=0)
            buffers += (_bytes_of(offsets, _OFFSET), column.data)
        elif not isinstance(column, BinaryColumn) and dtype is not None and np.can_cast(column.dtype, dtype):
            buffers.append(_bytes_of(column, dtype))
        else:
            raise FormatError(f"column {name!r} does not fit {dtype or 'binary'}", offset=0)
    return rows, buffers


def _bytes_of(array: NDArray[Any], dtype: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(array, dtype).view(np.uint8).data


def padded_size(size: int) -> int:
    """Return the size of a buffer in a file with the zeros after it."""
    return size + -size % _ALIGNMENT
