"""Read the schema of an Arrow IPC file, and the places of its batches: from the footer, or the messages of a stream.

The *file* format ends with a footer that has the place of each batch. The *stream* format, which Hugging Face's
`datasets` writes, has none: its messages are found one after the other, by their headers. No body is read.

A stream may end without its marker, so a stream cut exactly between two messages cannot be told from a whole one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads
from touchfs.format.arrow import flatbuffers
from touchfs.format.arrow.flatbuffers import I64, U8, Embedded
from touchfs.format.arrow.messages import IpcMessage, build_schema_message, footer_range, parse_message, parse_prefix
from touchfs.format.arrow.metadata import (
    BLOCK,
    CONTINUATION,
    DICTIONARY_ID,
    DICTIONARY_IS_DELTA,
    FOOTER_BATCHES,
    FOOTER_DICTIONARIES,
    FOOTER_SCHEMA,
    HEAD,
    MAGIC,
    MESSAGE_BATCH,
    MESSAGE_DICTIONARY,
    MESSAGE_SCHEMA,
    PREFIX,
    TAIL,
    VERSION5,
)
from touchfs.format.arrow.schema import IpcSchema, parse_schema

# Metadata is read as a whole. The footer of 2.7 million batches has this size.
METADATA_MAX = 1 << 26
# The first guess at the size of a message's metadata; then it is that of the message before.
_USUAL_METADATA_SIZE = 512

# The end of a stream before Arrow 0.15
_OLD_END = bytes(4)

_BLOCKS = np.dtype([("offset", "<i8"), ("metadata_size", "<i4"), ("", "<i4"), ("body_size", "<i8")])


class IpcBatch(NamedTuple):
    """The place of a record batch: the offset of its message, the size of the metadata with its prefix, of the body."""

    offset: int
    metadata_size: int
    body_size: int


class IpcDictionary(NamedTuple):
    """A message with values of a dictionary: its number, whether they follow or replace those before, and its place."""

    number: int
    is_delta: bool
    place: IpcBatch


class Blocks(Sequence[IpcBatch]):
    """Places of batches, 24 bytes each: `table` has a row of offset, metadata size and body size for each."""

    __slots__ = ("table",)

    def __init__(self, table: NDArray[np.int64]) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, number: int) -> IpcBatch: ...

    @overload
    def __getitem__(self, number: slice) -> Blocks: ...

    def __getitem__(self, number: int | slice) -> IpcBatch | Blocks:
        if isinstance(number, slice):
            return Blocks(self.table[number])
        return IpcBatch(*self.table[number].tolist())


@dataclass(frozen=True, slots=True, eq=False)
class IpcFile:
    """The schema of a file, and the places of its record batches and dictionaries. `is_stream` tells the format.

    `schema_message` has the schema as the first message of a stream.
    """

    schema: IpcSchema
    schema_message: bytes
    batches: Blocks
    dictionaries: tuple[IpcDictionary, ...]
    is_stream: bool


def parse_arrow(size: int) -> Reads[IpcFile]:
    """Parse an Arrow IPC file or stream of `size` bytes. Reads metadata only. Raises FormatError."""
    head = bytes((yield 0, min(size, len(HEAD))))
    if head[: len(MAGIC)] == MAGIC:
        return (yield from _parse_file(size))
    if len(head) < PREFIX.size or (PREFIX.unpack(head)[0] != CONTINUATION and not 0 < PREFIX.unpack(head)[0] < size):
        raise FormatError("not an Arrow IPC file or stream", offset=0)
    return (yield from _parse_stream(size))


def _parse_file(size: int) -> Reads[IpcFile]:
    if size < len(HEAD) + TAIL.size:
        raise FormatError("the Arrow file ends before its footer", offset=size)
    start, footer_size = footer_range((yield size - TAIL.size, TAIL.size), size)
    if footer_size > METADATA_MAX:
        raise FormatError(f"an Arrow footer of {footer_size:,} bytes, the most is {METADATA_MAX:,}", offset=start)
    data = memoryview((yield start, footer_size))
    try:
        footer = flatbuffers.root(data, 0, footer_size)
        batches = _parse_blocks(footer.elements(FOOTER_BATCHES, BLOCK.size), start)
        blocks = _parse_blocks(footer.elements(FOOTER_DICTIONARIES, BLOCK.size), start)
        stored = footer.table(FOOTER_SCHEMA)
    except FormatError as error:
        raise _moved(error, start) from None
    version = VERSION5
    dictionaries: list[IpcDictionary] = []
    for place in (*blocks, *batches[:1]):
        message = yield from read_message(place)
        version = message.version  # the footers of some writers have none
        if len(dictionaries) < len(blocks):
            dictionaries.append(_parse_dictionary(message, place))
    try:
        schema = parse_schema(stored, version, 0)
    except FormatError as error:
        raise _moved(error, start) from None
    # Not the first message: some writers have none there, or a damaged one, and all readers take this one.
    message_data = build_schema_message(version, Embedded(bytes(data), stored.position))
    return _complete(schema, message_data, batches, dictionaries, is_stream=False)


def _parse_blocks(data: Buffer, end: int) -> Blocks:
    """Parse the blocks of a footer, which must be in order, without overlaps, and before `end`."""
    blocks = np.frombuffer(data, _BLOCKS)
    offsets, metadata_sizes, body_sizes = (blocks[name].astype(np.int64) for name in IpcBatch._fields)
    # All writers put batches in order without overlaps; otherwise a footer could name one big batch many times.
    # Each number is checked first, so that no sum overflows.
    fits = (
        (offsets >= len(HEAD))
        & (offsets <= end)
        & (metadata_sizes >= PREFIX.size)
        & (metadata_sizes <= METADATA_MAX)
        & (body_sizes >= 0)
        & (body_sizes <= end)
    )
    fits &= offsets + metadata_sizes + body_sizes <= np.append(offsets[1:], end)
    if not fits.all():
        raise FormatError(f"an Arrow batch cannot be at byte {offsets[fits.argmin()]}", offset=0)
    return Blocks(np.stack((offsets, metadata_sizes, body_sizes), axis=1))


def _parse_stream(size: int) -> Reads[IpcFile]:
    schema: IpcSchema | None = None
    schema_message = b""
    places = array("q")
    dictionaries: list[IpcDictionary] = []
    position, usual = 0, _USUAL_METADATA_SIZE
    while position < size:
        data: Buffer = yield position, min(usual, size - position)
        if data == _OLD_END:
            break
        if len(data) < PREFIX.size:
            raise _cut(position)
        prefix, length = parse_prefix(data)
        if length == 0:
            break
        metadata_size = prefix + length
        if position + metadata_size > size:
            raise _cut(position)
        if length > METADATA_MAX:
            raise FormatError(f"an Arrow message has {length:,} bytes of metadata", offset=position)
        if metadata_size > len(data):
            data = yield position, metadata_size
        usual = metadata_size
        try:
            message = parse_message(memoryview(data), 0, metadata_size)
            if message.kind == MESSAGE_SCHEMA and schema is None:
                schema = parse_schema(message.header, message.version, 0)
                schema_message = bytes(data[:metadata_size])
        except FormatError as error:
            raise _moved(error, position) from None
        if message.body_size < 0 or position + metadata_size + message.body_size > size:
            raise _cut(position)
        place = IpcBatch(position, metadata_size, message.body_size)
        if schema is None or (message.kind == MESSAGE_SCHEMA and position):
            raise FormatError("an Arrow stream has its schema first, and only there", offset=position)
        if message.kind == MESSAGE_BATCH:
            places.extend(place)
        elif position:
            dictionaries.append(_parse_dictionary(message, place))
        position += metadata_size + message.body_size
    if schema is None:
        raise FormatError("not an Arrow IPC file or stream", offset=0)
    table = np.frombuffer(places, np.int64).reshape(-1, 3)
    return _complete(schema, schema_message, Blocks(table), dictionaries, is_stream=True)


def read_message(place: IpcBatch) -> Reads[IpcMessage]:
    """Read and parse the message at a place. Raises FormatError."""
    data = memoryview((yield place.offset, place.metadata_size))
    try:
        return parse_message(data, 0, place.metadata_size)
    except FormatError as error:
        raise _moved(error, place.offset) from None


def _parse_dictionary(message: IpcMessage, place: IpcBatch) -> IpcDictionary:
    if message.kind != MESSAGE_DICTIONARY:
        raise FormatError("another Arrow message where a batch should be", offset=place.offset)
    is_delta = bool(message.header.scalar(DICTIONARY_IS_DELTA, U8))
    return IpcDictionary(message.header.scalar(DICTIONARY_ID, I64), is_delta, place)


def _complete(
    schema: IpcSchema, message: bytes, batches: Blocks, dictionaries: list[IpcDictionary], *, is_stream: bool
) -> IpcFile:
    missing = schema.dictionaries.difference(each.number for each in dictionaries)
    if missing and batches:
        raise FormatError(f"the Arrow file lacks dictionary {min(missing)}, which its columns refer to", offset=0)
    return IpcFile(schema, message, batches, tuple(dictionaries), is_stream)


def _moved(error: FormatError, start: int) -> FormatError:
    """An error whose offset counts from `start`."""
    error.offset = start + (error.offset or 0)
    return error


def _cut(offset: int) -> FormatError:
    return FormatError("the Arrow stream ends within a message: it was not finished, or cut short", offset=offset)
