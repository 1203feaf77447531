"""Parse the frame of an Arrow file: its footer, and the metadata of its messages."""

from __future__ import annotations

import struct
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.flatbuffers import I16, I64, U8, Embedded, FlatTable, Scalar
from touchfs.format.arrow.metadata import (
    CONTINUATION,
    HEAD,
    MAGIC,
    MESSAGE_BODY_SIZE,
    MESSAGE_HEADER,
    MESSAGE_KIND,
    MESSAGE_SCHEMA,
    MESSAGE_VERSION,
    PREFIX,
    TAIL,
    check_version,
)

# Messages before Arrow 0.15 have no continuation marker.
_SIZE = struct.Struct("<I")


class IpcMessage(NamedTuple):
    """A message's version, its kind, its header, and the size of its body."""

    version: int
    kind: int
    header: FlatTable
    body_size: int


def footer_range(tail: Buffer, size: int) -> tuple[int, int]:
    """Return the offset and size of the footer of a file of `size` bytes that ends with `tail`. Raises FormatError."""
    footer_size, magic = TAIL.unpack(tail)
    end = size - TAIL.size
    if magic != MAGIC:
        raise FormatError("the Arrow file does not end with ARROW1: it was not finished, or cut short", offset=end)
    start = end - footer_size
    if footer_size < 0 or start < len(HEAD):
        raise FormatError(f"an Arrow footer of {footer_size} bytes", offset=end)
    return start, footer_size


def parse_prefix(data: Buffer, offset: int = 0) -> tuple[int, int]:
    """Return the size of the prefix at an offset, and of the metadata after it, which is 0 at the end of a stream.

    `data` has at least as many bytes as a prefix.
    """
    marker, size = PREFIX.unpack_from(data, offset)
    return (PREFIX.size, size) if marker == CONTINUATION else (_SIZE.size, marker)


def parse_message(data: memoryview, offset: int, metadata_size: int) -> IpcMessage:
    """Parse the message whose metadata and prefix are `metadata_size` bytes of `data`, at `offset`. Raises FormatError.

    The range must be inside the data, and at least as long as a prefix.
    """
    prefix, length = parse_prefix(data, offset)
    if not 0 < length <= metadata_size - prefix:
        raise FormatError("no Arrow message where one should be", offset=offset)
    table = flatbuffers.root(data, offset + prefix, length)
    version = table.scalar(MESSAGE_VERSION, I16)
    check_version(version, offset)
    body_size = table.scalar(MESSAGE_BODY_SIZE, I64)
    return IpcMessage(version, table.scalar(MESSAGE_KIND, U8), table.table(MESSAGE_HEADER), body_size)


def build_schema_message(version: int, schema: Embedded) -> bytes:
    """The message with a schema that begins a stream, with its prefix. `schema` is in another buffer."""
    data = flatbuffers.build(
        {
            MESSAGE_VERSION: Scalar(I16, version),
            MESSAGE_KIND: Scalar(U8, MESSAGE_SCHEMA),
            MESSAGE_HEADER: schema,
            MESSAGE_BODY_SIZE: Scalar(I64, 0),
        }
    )
    data += bytes(-len(data) % PREFIX.size)
    return PREFIX.pack(CONTINUATION, len(data)) + data
