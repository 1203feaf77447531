"""Row groups of Parquet files: the chunk of each leaf, which has a dictionary page or none, and data pages."""

from __future__ import annotations

from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.tables.parquet.layout.thrift import STRUCT, CompactReader

# The number of the codec of chunks that are not compressed
UNCOMPRESSED = 0
# The first bytes of a file are its magic.
_DATA_START = 4
# Of a chunk in memory
_CHUNK_SIZE = 300


@dataclass(frozen=True, slots=True)
class ParquetChunk:
    """The chunk of a leaf in a row group: `size` bytes of pages from `start` on, with `values` values and nulls.

    `index` is the offset and size of its offset index, None if it has none. `nulls` is the number of nulls by its
    statistics, None if they do not say. Offsets and sizes are within the file; `values` is only what the footer says.
    """

    codec: int
    values: int
    start: int
    size: int
    index: tuple[int, int] | None
    nulls: int | None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: the chunk of each leaf."""

    chunks: tuple[ParquetChunk, ...]

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self.chunks) * _CHUNK_SIZE


def skim_row_group(reader: CompactReader) -> int:
    """Skip a row group, and return its number of rows. Raises FormatError."""
    rows = -1
    for number, kind in reader.fields():
        if number == 3:  # num_rows
            rows = reader.number(kind)
        else:
            reader.skip(kind)
    if rows < 0:
        raise reader.error(f"a row group of {rows} rows")
    return rows


def parse_row_group(reader: CompactReader, leaves: int, end: int, omitted: int) -> RowGroup:
    """Parse the chunks of a row group of a file whose pages end before `end`. Raises FormatError.

    Chunks may have `omitted` bytes over the size that they say.
    """
    chunks: tuple[ParquetChunk, ...] = ()
    for number, kind in reader.fields():
        if number == 1:  # columns
            count = reader.elements(kind, STRUCT)
            if count != leaves:
                raise reader.error(f"a row group of {count} columns in a schema of {leaves}")
            chunks = tuple(_parse_chunk(reader, end, omitted) for _ in range(count))
        else:
            reader.skip(kind)
    if len(chunks) != leaves:
        raise reader.error("a row group without columns")
    return RowGroup(chunks)


@dataclass(slots=True)
class _ChunkFields:
    """The fields of a ColumnChunk and its ColumnMetaData that are used."""

    codec: int = -1
    values: int = -1
    size: int = -1
    data: int = -1
    dictionary: int = 0
    nulls: int | None = None
    index_offset: int = 0
    index_size: int = 0


def _parse_chunk(reader: CompactReader, end: int, omitted: int) -> ParquetChunk:
    found = _ChunkFields()
    for number, kind in reader.fields():
        match number:
            case 1:  # file_path
                raise reader.error("its columns are in other files, which are not opened")
            case 3:  # meta_data
                _parse_column_metadata(reader, kind, found)
            case 4:  # offset_index_offset
                found.index_offset = reader.number(kind)
            case 5:  # offset_index_length
                found.index_size = reader.number(kind)
            case 8 | 9:  # crypto_metadata, encrypted_column_metadata
                raise FormatError("an encrypted Parquet file: decrypt it first")
            case _:
                reader.skip(kind)
    # Some old writers set the dictionary's offset to 0 if there is none, and pyarrow that of data if there are no rows.
    start = found.dictionary if found.dictionary > 0 and not 0 < found.data < found.dictionary else found.data
    if found.size == found.values == start == 0:
        start = _DATA_START  # a chunk without pages: pyarrow writes such without a dictionary
    index = (found.index_offset, found.index_size) if found.index_size else None
    for offset, size in ((start, found.size), index or (_DATA_START, 0)):
        if not (_DATA_START <= offset <= end and 0 <= size <= end - offset):
            raise reader.error(f"{size:,} bytes of a column at byte {offset:,}, which is not in the file")
    if found.values < 0 or (found.nulls is not None and not 0 <= found.nulls <= found.values):
        nulls = "" if found.nulls is None else f", of which {found.nulls} are null"
        raise reader.error(f"a column of {found.values} values{nulls}")
    size = min(found.size + omitted, end - start)
    return ParquetChunk(found.codec, found.values, start, size, index, found.nulls)


def _parse_column_metadata(reader: CompactReader, kind: int, found: _ChunkFields) -> None:
    for number, inner in reader.struct(kind):
        match number:
            case 4:  # codec
                found.codec = reader.number(inner)
            case 5:  # num_values
                found.values = reader.number(inner)
            case 7:  # total_compressed_size
                found.size = reader.number(inner)
            case 9:  # data_page_offset
                found.data = reader.number(inner)
            case 11:  # dictionary_page_offset
                found.dictionary = reader.number(inner)
            case 12:  # statistics
                for statistic, value in reader.struct(inner):
                    if statistic == 3:  # null_count
                        found.nulls = reader.number(value)
                    else:
                        reader.skip(value)
            case _:
                reader.skip(inner)
