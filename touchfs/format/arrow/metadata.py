"""The numbers of Arrow's metadata: magic, prefix, slots of the flatbuffer tables, layouts of structs, and types.

Source: arrow.apache.org/docs/format/Columnar.html, and format/{File,Message,Schema}.fbs beside it.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from touchfs.core.errors import FormatError

MAGIC = b"ARROW1"
HEAD = MAGIC + b"\0\0"
# size of the footer, magic
TAIL = struct.Struct("<i6s")
# continuation marker, size of the metadata with its padding
PREFIX = struct.Struct("<Ii")
CONTINUATION = 0xFFFFFFFF

# Slots of the tables, in order
FOOTER_VERSION, FOOTER_SCHEMA, FOOTER_DICTIONARIES, FOOTER_BATCHES = range(4)
MESSAGE_VERSION, MESSAGE_KIND, MESSAGE_HEADER, MESSAGE_BODY_SIZE = range(4)
SCHEMA_ENDIANNESS, SCHEMA_FIELDS, SCHEMA_METADATA = range(3)
FIELD_NAME, FIELD_NULLABLE, FIELD_KIND, FIELD_TYPE, FIELD_DICTIONARY, FIELD_CHILDREN, FIELD_METADATA = range(7)
INT_BITS, INT_SIGNED = range(2)
PAIR_KEY, PAIR_VALUE = range(2)
DICTIONARY_ID, DICTIONARY_VALUES, DICTIONARY_IS_DELTA = range(3)
BATCH_ROWS, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_VARIADIC_COUNTS = range(5)
# offset of the message, size of its metadata with prefix and padding, size of its body
BLOCK = struct.Struct("<qi4xq")
# rows, nulls: one per column
NODE = struct.Struct("<qq")
# offset in the body, length: validity and values for integers; validity, offsets and bytes for binary
BUFFER = struct.Struct("<qq")

# Version 4 differs only in unions and run-end-encoded columns, which have a validity bitmap there.
VERSION4, VERSION5 = 3, 4
MESSAGE_SCHEMA, MESSAGE_DICTIONARY, MESSAGE_BATCH = 1, 2, 3


class Kind(IntEnum):
    """The types of Arrow, with their numbers in a schema."""

    NULL = 1
    INT = 2
    FLOAT = 3
    BINARY = 4
    UTF8 = 5
    BOOL = 6
    DECIMAL = 7
    DATE = 8
    TIME = 9
    TIMESTAMP = 10
    INTERVAL = 11
    LIST = 12
    STRUCT = 13
    UNION = 14
    FIXED_SIZE_BINARY = 15
    FIXED_SIZE_LIST = 16
    MAP = 17
    DURATION = 18
    LARGE_BINARY = 19
    LARGE_UTF8 = 20
    LARGE_LIST = 21
    RUN_END_ENCODED = 22
    BINARY_VIEW = 23
    UTF8_VIEW = 24
    LIST_VIEW = 25
    LARGE_LIST_VIEW = 26


def check_version(version: int, offset: int) -> None:
    """Raise FormatError for a version of the metadata that is not read; `offset` is its place in the file."""
    if version not in (VERSION4, VERSION5):
        raise FormatError(f"Arrow metadata version V{version + 1}, only V4 and V5 are read", offset=offset)
