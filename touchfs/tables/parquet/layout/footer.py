"""The footer of a Parquet file: its schema, and where the column chunks of each row group are.

Row groups are found when the footer is parsed, and parsed when they are asked for: it may have millions of chunks.

Source: github.com/apache/parquet-format, `parquet.thrift`
"""

from __future__ import annotations

import re
import struct
from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.tables.parquet.layout.row_group import RowGroup, parse_row_group, skim_row_group
from touchfs.tables.parquet.layout.schema import ParquetSchema, parse_schema
from touchfs.tables.parquet.layout.thrift import STRUCT, CompactReader

MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
# Footers are read as a whole: that of 300,000 column chunks has this size.
FOOTER_MAX = 1 << 26
# pyarrow reads no more rows in a row group.
GROUP_ROWS_MAX = (1 << 31) - 1
# version, schema, key_value_metadata, created_by, column_orders
REPEATED = (1, 2, 5, 6, 7)
_TAIL = struct.Struct("<I4s")
_MR_VERSION = re.compile(rb"parquet-mr(?: version (\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?)?")
_DICTIONARY_HEADER_MAX = 100


@dataclass(frozen=True, slots=True, eq=False)
class ParquetFooter:
    """The schema of a file, and its row groups. `starts` has the first row of each row group, and the number of rows.

    `repeated` are the fields of the footer that excerpts repeat: the number, type and value of each. `omitted` is how
    many bytes a chunk may have over the size that the footer says.
    """

    schema: ParquetSchema
    starts: NDArray[np.int64]
    repeated: tuple[tuple[int, int, bytes], ...]
    omitted: int
    _data: bytes
    _start: int
    _places: array[int]

    @property
    def groups(self) -> int:
        """The number of row groups."""
        return len(self._places)

    def group(self, group: int) -> RowGroup:
        """Parse a row group. Raises FormatError."""
        reader = CompactReader(self._data, self._start, self._places[group])
        return parse_row_group(reader, len(self.schema.leaves), self._start, self.omitted)


def parse_parquet(size: int) -> Reads[ParquetFooter]:
    """Parse the footer of a Parquet file of `size` bytes. Raises FormatError, also for an encrypted file."""
    if size < len(MAGIC) + _TAIL.size:
        raise FormatError("not a Parquet file: it is too short", offset=0)
    head = bytes((yield 0, len(MAGIC)))
    length, tail = _TAIL.unpack((yield size - _TAIL.size, _TAIL.size))
    if ENCRYPTED_MAGIC in (head, tail):
        raise _encrypted()
    if head != MAGIC:
        raise FormatError("not a Parquet file", offset=0)
    if tail != MAGIC:
        raise FormatError("a Parquet file ends with PAR1: it was not finished, or cut short", offset=size)
    start = size - _TAIL.size - length
    if length > FOOTER_MAX or start < len(MAGIC):
        raise FormatError(f"a Parquet footer of {length:,} bytes, the most is {FOOTER_MAX:,}", offset=size)
    return _parse_footer(bytes((yield start, length)), start)


def build_tail(metadata: bytes) -> bytes:
    """The end of a file with this footer."""
    return metadata + _TAIL.pack(len(metadata), MAGIC)


def _parse_footer(data: bytes, start: int) -> ParquetFooter:
    reader = CompactReader(data, start)
    schema: ParquetSchema | None = None
    repeated: list[tuple[int, int, bytes]] = []
    places, rows, total, omitted = array("q"), array("q", [0]), -1, 0
    for number, kind in reader.fields():
        begin = reader.position
        match number:
            case 2:  # schema
                schema = parse_schema(reader, kind)
            case 3:  # num_rows
                total = reader.number(kind)
            case 4:  # row_groups
                for _ in range(reader.elements(kind, STRUCT)):
                    places.append(reader.position)
                    rows.append(_checked_rows(reader, skim_row_group(reader)))
            case 6:  # created_by
                omitted = _omitted_bytes(reader.binary(kind))
            case 8 | 9:  # encryption_algorithm, footer_signing_key_metadata
                raise _encrypted()
            case _:
                reader.skip(kind)
        if number in REPEATED:
            repeated.append((number, kind, data[begin : reader.position]))
    if schema is None:
        raise reader.error("no schema")
    starts = np.cumsum(np.frombuffer(rows, np.int64))
    if total not in (starts[-1], 0):  # parquet-rs wrote 0 before 1.0
        raise reader.error(f"{total:,} rows, and row groups of {starts[-1]:,}")
    return ParquetFooter(schema, starts, tuple(repeated), omitted, data, start, places)


def _omitted_bytes(writer: bytes) -> int:
    """How many bytes the chunks of a writer may have over the size that it says.

    Before 1.2.9, parquet-mr did not count the header of the dictionary page (PARQUET-816). Its first versions did not
    name themselves.
    """
    found = _MR_VERSION.match(writer)
    return _DICTIONARY_HEADER_MAX if found is not None and tuple(map(int, found.groups("0"))) < (1, 2, 9) else 0


def _checked_rows(reader: CompactReader, rows: int) -> int:
    if rows > GROUP_ROWS_MAX:
        raise reader.error(f"a row group of {rows:,} rows")
    return rows


def _encrypted() -> FormatError:
    return FormatError("an encrypted Parquet file: decrypt it first", offset=0)
