"""A shard of a cache: an Arrow IPC file, whose payloads may stay uncompressed where all else is compressed.

pyarrow compresses all buffers of a batch or none. The format allows each buffer to say that it is stored as it is, and
all of Arrow's readers know that. So `MixedShard` lays out the messages itself: buffers of binary and large_binary
columns (images, arrays, videos) stay as they are, so that a cell is a range of the file, and the others are compressed.
The schema and the footer are pyarrow's.

Source: arrow.apache.org/docs/format/Columnar.html, and format/Message.fbs beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from touchfs.core.errors import ArgumentValueError, UsageError
from touchfs.core.extras import load_pyarrow
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.compression import CODECS, SIZE
from touchfs.format.arrow.flatbuffers import I16, I64, U8, Scalar, Structs
from touchfs.format.arrow.messages import footer_range, parse_message, parse_prefix
from touchfs.format.arrow.metadata import (
    BATCH_BUFFERS,
    BATCH_COMPRESSION,
    BATCH_NODES,
    BATCH_ROWS,
    BLOCK,
    BUFFER,
    CONTINUATION,
    FOOTER_BATCHES,
    HEAD,
    MESSAGE_BATCH,
    MESSAGE_BODY_SIZE,
    MESSAGE_HEADER,
    MESSAGE_KIND,
    MESSAGE_VERSION,
    NODE,
    PREFIX,
    TAIL,
    VERSION5,
)

if TYPE_CHECKING:
    import pyarrow

PAYLOADS = ("compressed", "uncompressed")

_ALIGNMENT = 8
_STORED = SIZE.pack(-1)


class ShardFile(Protocol):
    """A file that is being written."""

    def write_batch(self, batch: pyarrow.RecordBatch) -> None:
        """Append a batch."""
        ...

    def close(self) -> None:
        """Write the footer, and close the file."""
        ...


def check_options(compression: str | None, payload: str) -> None:
    """Raise ArgumentValueError unless `create_shard` takes these."""
    if compression is not None and compression not in CODECS:
        raise ArgumentValueError(f"compression must be None, 'zstd' or 'lz4', got {compression!r}")
    if payload not in PAYLOADS:
        raise ArgumentValueError(f"payload must be 'compressed' or 'uncompressed', got {payload!r}")


def create_shard(path: Path, schema: pyarrow.Schema, compression: str | None, payload: str) -> ShardFile:
    """Create a shard. `compression` is None, "zstd" or "lz4"; `payload` is "uncompressed", or "compressed" as the rest.

    Raises OSError, and MissingExtraError without pyarrow.
    """
    if compression is not None and payload == "uncompressed":
        return MixedShard(path, schema, compression)
    return _PlainShard(path, schema, compression)


class _PlainShard:
    """A shard file that pyarrow writes."""

    def __init__(self, path: Path, schema: pyarrow.Schema, compression: str | None) -> None:
        pa = load_pyarrow()
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema, options=pa.ipc.IpcWriteOptions(compression=compression))

    def write_batch(self, batch: pyarrow.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._file.close()


class MixedShard:
    """A shard whose binary columns are stored as they are, and whose other columns are compressed."""

    def __init__(self, path: Path, schema: pyarrow.Schema, compression: str) -> None:
        self._pa = load_pyarrow()
        self._schema = schema
        self._codec = self._pa.Codec(compression)
        self._codec_number = CODECS.index(compression)
        self._is_payload = [is_payload for field in schema for is_payload in _buffers(self._pa, field.type)]
        self._blocks: list[tuple[int, int, int]] = []
        self._file = path.open("xb")
        self._file.write(HEAD)
        self._file.write(schema.serialize())

    def write_batch(self, batch: pyarrow.RecordBatch) -> None:
        plain = memoryview(batch.serialize())
        body_offset = sum(parse_prefix(plain))
        header = parse_message(plain, 0, body_offset).header
        body: list[bytes | memoryview] = []
        ranges, size = [], 0
        for is_payload, (offset, length) in zip(self._is_payload, header.structs(BATCH_BUFFERS, BUFFER), strict=True):
            data = plain[body_offset + offset : body_offset + offset + length]
            pieces = self._stored(data, is_payload) if length else ()
            stored = sum(map(len, pieces))
            ranges.append((size, stored))
            body += (*pieces, bytes(-stored % _ALIGNMENT))
            size += stored + -stored % _ALIGNMENT
        metadata = self._metadata(batch.num_rows, header.structs(BATCH_NODES, NODE), ranges, size)
        self._blocks.append((self._file.tell(), len(metadata), size))
        self._file.writelines((metadata, *body))

    def close(self) -> None:
        with self._file:
            self._file.write(PREFIX.pack(CONTINUATION, 0) + self._footer())

    def _stored(self, data: memoryview, is_payload: bool) -> tuple[bytes | memoryview, ...]:
        # pyarrow's own buffer would show more bytes than were written.
        compressed = b"" if is_payload else self._codec.compress(data, asbytes=True)
        if is_payload or len(compressed) >= len(data):
            return _STORED, data
        return SIZE.pack(len(data)), compressed

    def _metadata(
        self, rows: int, nodes: list[tuple[int, ...]], ranges: list[tuple[int, int]], body_size: int
    ) -> bytes:
        message = flatbuffers.build(
            {
                MESSAGE_VERSION: Scalar(I16, VERSION5),
                MESSAGE_KIND: Scalar(U8, MESSAGE_BATCH),
                MESSAGE_HEADER: {
                    BATCH_ROWS: Scalar(I64, rows),
                    BATCH_NODES: Structs(NODE, nodes),
                    BATCH_BUFFERS: Structs(BUFFER, ranges),
                    BATCH_COMPRESSION: {0: Scalar(U8, self._codec_number)},
                },
                MESSAGE_BODY_SIZE: Scalar(I64, body_size),
            }
        )
        size = len(message) + -(PREFIX.size + len(message)) % _ALIGNMENT
        return PREFIX.pack(CONTINUATION, size) + message.ljust(size, b"\0")

    def _footer(self) -> bytes:
        """Return pyarrow's footer of a file with as many batches, all empty, with the places of ours."""
        sink = self._pa.BufferOutputStream()
        empty = self._pa.RecordBatch.from_arrays(
            [self._pa.nulls(0, field.type) for field in self._schema], schema=self._schema
        )
        with self._pa.ipc.new_file(sink, self._schema) as writer:
            for _ in self._blocks:
                writer.write_batch(empty)
        data = memoryview(sink.getvalue())
        start, size = footer_range(data[-TAIL.size :], len(data))
        footer = bytearray(data[start:])
        places = flatbuffers.root(memoryview(footer), 0, size).elements(FOOTER_BATCHES, BLOCK.size)
        for number, block in enumerate(self._blocks):
            BLOCK.pack_into(places, number * BLOCK.size, *block)
        return bytes(footer)


def _buffers(pa: Any, kind: pyarrow.DataType) -> Iterator[bool]:
    """Yield for each buffer of a column of a type, in order, True if it belongs to a payload. Raises UsageError."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        yield from _buffers(pa, kind.storage_type)
    elif types.is_null(kind):
        return
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        yield False
        for number in range(kind.num_fields):
            yield from _buffers(pa, kind.field(number).type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        yield from (False, False)
        yield from _buffers(pa, kind.field(0).type)
    elif types.is_binary(kind) or types.is_large_binary(kind):
        yield from (True, True, True)
    elif types.is_string(kind) or types.is_large_string(kind):
        yield from (False, False, False)
    elif types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        yield from (False, False)
    else:
        raise UsageError(f"a column of the type {kind} cannot stay uncompressed beside others: leave out --compression")
