"""Headers of the pages of a column chunk.

A page is a header of Thrift, and then bytes: in version 1 levels and values compressed together, in version 2 levels
that are never compressed, then values. A page of a dictionary comes before the data pages that refer to it.

Source: github.com/apache/parquet-format, `parquet.thrift` and README.md
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.tables.parquet.layout.thrift import CompactReader, TruncatedError

# Of headers. With statistics of long values they have more than the usual size.
_USUAL_SIZE, _SIZE_MAX = 256, 1 << 24


class PageType(IntEnum):
    """The types of pages."""

    DATA = 0
    INDEX = 1
    DICTIONARY = 2
    DATA_V2 = 3


class Encoding(IntEnum):
    """The encoding of the values, or of the levels, of a page."""

    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    BIT_PACKED = 4
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9


# Indices into the dictionary. The first is an old name of the second, and also that of the dictionary's own values.
DICTIONARY_ENCODINGS = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)


@dataclass(frozen=True, slots=True)
class ParquetPage:
    """A page: its header of `header_size` bytes at `offset`, then `stored` bytes, which are `size` decompressed.

    `values` counts nulls. Of version 2 only: `rows`, and the sizes of levels before the values. `is_compressed` is
    False where version 2 says so whatever the codec of the chunk. `crc` is the CRC-32 of the stored bytes, as a signed
    or an unsigned number, if the header has it.
    """

    offset: int
    header_size: int
    type: int
    stored: int
    size: int
    values: int = 0
    encoding: int = -1
    definition_encoding: int = Encoding.RLE
    repetition_encoding: int = Encoding.RLE
    rows: int | None = None
    definition_size: int = 0
    repetition_size: int = 0
    is_compressed: bool = True
    crc: int | None = None

    @property
    def is_data(self) -> bool:
        """True for data pages of both versions."""
        return self.type in (PageType.DATA, PageType.DATA_V2)

    @property
    def start(self) -> int:
        """The offset of its bytes in the file."""
        return self.offset + self.header_size

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + self.stored


def read_page(offset: int, end: int) -> Reads[ParquetPage]:
    """Read the header at `offset` of a page that ends at `end` or before. Raises FormatError."""
    size = _USUAL_SIZE
    while True:
        length = min(size, end - offset)
        if length <= 0:
            raise FormatError("a Parquet page is missing: its column chunk ends before", offset=offset)
        data = yield offset, length
        try:
            return _parse_page(CompactReader(data, offset), offset, end)
        except TruncatedError:
            if size >= min(end - offset, _SIZE_MAX):
                raise
            size *= 16


def _parse_page(reader: CompactReader, offset: int, end: int) -> ParquetPage:
    type_ = stored = size = -1
    found: dict[str, int] = {}
    for number, kind in reader.fields():
        match number:
            case 1:  # type
                type_ = reader.number(kind)
            case 2:  # uncompressed_page_size
                size = reader.number(kind)
            case 3:  # compressed_page_size
                stored = reader.number(kind)
            case 4:  # crc
                found["crc"] = reader.number(kind)
            case 5:  # data_page_header
                found |= _parse_numbers(reader, kind, _VERSION_1)
            case 7:  # dictionary_page_header
                found |= _parse_numbers(reader, kind, _DICTIONARY)
            case 8:  # data_page_header_v2
                found |= _parse_numbers(reader, kind, _VERSION_2)
            case _:
                reader.skip(kind)
    page = ParquetPage(offset, reader.position, type_, stored, size, **found)  # type: ignore[arg-type]
    levels = page.definition_size + page.repetition_size
    if min(size, stored, page.values, page.definition_size, page.repetition_size, page.rows or 0) < 0:
        raise reader.error("a Parquet page with a negative size or number")
    if levels > min(page.stored, page.size) or page.end > end:
        raise FormatError(f"a Parquet page of {stored:,} bytes is not in its column chunk", offset=offset)
    return page


# The fields of headers that are used, by their numbers
_VERSION_1 = {1: "values", 2: "encoding", 3: "definition_encoding", 4: "repetition_encoding"}
_DICTIONARY = {1: "values", 2: "encoding"}
_VERSION_2 = {1: "values", 3: "rows", 4: "encoding", 5: "definition_size", 6: "repetition_size", 7: "is_compressed"}


def _parse_numbers(reader: CompactReader, kind: int, names: dict[int, str]) -> dict[str, int]:
    found = {}
    for number, inner in reader.struct(kind):
        name = names.get(number)
        if name is None:
            reader.skip(inner)
        elif name == "is_compressed":
            found[name] = int(reader.flag(inner))
        else:
            found[name] = reader.number(inner)
    return found
