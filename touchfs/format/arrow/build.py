"""Write Arrow IPC files that can be mapped and used in place (`touchfs.format.arrow.mapped_file`).

Any Arrow library reads them. Besides columns of integers and `binary`, those of `utf8` and of floats of 64 bits can be
written. A file can also be written in parts: `build_head`, any number of `build_batch`, and `build_end`.

Source: arrow.apache.org/docs/format/Columnar.html, and format/{File,Message,Schema}.fbs beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.flatbuffers import I16, I32, I64, U8, Fields, Scalar, Structs
from touchfs.format.arrow.mapped_columns import INTEGERS, OFFSET, BinaryColumn, ColumnType, WrittenColumn
from touchfs.format.arrow.metadata import (
    BATCH_BUFFERS,
    BATCH_NODES,
    BATCH_ROWS,
    BLOCK,
    BUFFER,
    CONTINUATION,
    FIELD_CHILDREN,
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
    SCHEMA_FIELDS,
    SCHEMA_METADATA,
    TAIL,
    VERSION5,
    Kind,
)

_END_OF_STREAM = PREFIX.pack(CONTINUATION, 0)
# Arrow requires 8; 64 is a cache line and the widest vector register, and costs nothing here.
_ALIGNMENT = 64
_FLOAT, _DOUBLE = np.dtype("<f8"), 2


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
    if kind in ("binary", "utf8"):
        return None
    dtype = np.dtype(kind)
    if dtype not in INTEGERS.values() and dtype != _FLOAT:
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
            buffers += (_bytes_of(offsets, OFFSET), column.data)
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
