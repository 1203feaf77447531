"""Excerpts of Parquet files: a file of some pages of one leaf, so that any reader of Parquet decodes just these.

The schema has only the column that the leaf is in, and one row group has the pages. The chunks of other leaves of the
column are not there: a reader that is asked for this leaf only does not look for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from touchfs.tables.parquet.layout.footer import MAGIC, ParquetFooter, build_tail
from touchfs.tables.parquet.layout.pages import ParquetPage
from touchfs.tables.parquet.layout.schema import INT96_SIZE, ParquetLeaf, PhysicalType
from touchfs.tables.parquet.layout.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    CompactReader,
    build_binary,
    build_integer,
    build_list,
    build_struct,
)

# ColumnChunk with a file_offset of 0 only
_ABSENT = build_struct([(2, I64, build_integer(0))])
# version, created_by
_OF_WRITER = (1, 6)


def build_excerpt(
    footer: ParquetFooter,
    leaf: ParquetLeaf,
    codec: int,
    rows: int,
    pages: Sequence[tuple[ParquetPage, bytes]],
    metadata: Mapping[bytes, bytes],
) -> bytes:
    """The file of these pages of a leaf, a dictionary page first if there is one; each with its header and bytes.

    `codec` is that of the chunk, and `rows` is the number of rows that the data pages have. `metadata` are those of the
    file. Int96 timestamps are bytes, if the leaf is of `FIXED_LEN_BYTE_ARRAY`: they are stored alike.
    """
    leaves = footer.schema.columns[leaf.column].leaves
    chunks = [_ABSENT] * len(leaves)
    chunks[leaf.number - leaves.start] = _build_chunk(leaf, codec, pages)
    group = build_struct(
        [
            (1, LIST, build_list(STRUCT, chunks)),
            (2, I64, build_integer(sum(page.size for page, _ in pages))),
            (3, I64, build_integer(rows)),
        ]
    )
    count, elements = footer.schema.elements[leaf.column]
    if leaf.type == PhysicalType.FIXED_LEN_BYTE_ARRAY and footer.schema.leaves[leaf.number].type == PhysicalType.INT96:
        elements = _with_bytes(elements, count)
    root = build_struct([(4, BINARY, build_binary(b"schema")), (5, I32, build_integer(1))])
    pairs = [
        build_struct([(1, BINARY, build_binary(key)), (2, BINARY, build_binary(value))])
        for key, value in metadata.items()
    ]
    fields = [
        *(field for field in footer.repeated if field[0] in _OF_WRITER),
        (2, LIST, build_list(STRUCT, [root, elements], 1 + count)),
        (3, I64, build_integer(rows)),
        (4, LIST, build_list(STRUCT, [group])),
        (5, LIST, build_list(STRUCT, pairs)),
    ]
    return b"".join([MAGIC, *(data for _, data in pages), build_tail(build_struct(sorted(fields)))])


def build_schema_file(footer: ParquetFooter) -> bytes:
    """A file with the schema and metadata of another one, and no rows."""
    fields = [*footer.repeated, (3, I64, build_integer(0)), (4, LIST, build_list(STRUCT, []))]
    return MAGIC + build_tail(build_struct(sorted(fields)))


def _with_bytes(elements: bytes, count: int) -> bytes:
    """Elements of a schema with bytes in place of Int96 timestamps."""
    reader, made = CompactReader(elements), []
    for _ in range(count):
        fields = {}
        for number, kind in reader.fields():
            begin = reader.position
            reader.skip(kind)
            fields[number] = number, kind, reader.between(begin, reader.position)
        if fields.get(1) == (1, I32, build_integer(PhysicalType.INT96)):  # type, type_length, without converted types
            fields[1] = 1, I32, build_integer(PhysicalType.FIXED_LEN_BYTE_ARRAY)
            fields[2] = 2, I32, build_integer(INT96_SIZE)
            fields = {number: field for number, field in fields.items() if number not in (6, 10)}
        made.append(build_struct(sorted(fields.values())))
    return b"".join(made)


def _build_chunk(leaf: ParquetLeaf, codec: int, pages: Sequence[tuple[ParquetPage, bytes]]) -> bytes:
    sizes = [len(data) for _, data in pages]
    has_dictionary = not pages[0][0].is_data
    data_start = len(MAGIC) + (sizes[0] if has_dictionary else 0)
    encodings = sorted({page.encoding for page, _ in pages})
    fields = [
        (1, I32, build_integer(leaf.type)),
        (2, LIST, build_list(I32, [build_integer(encoding) for encoding in encodings])),
        (3, LIST, build_list(BINARY, [build_binary(name.encode()) for name in leaf.names])),
        (4, I32, build_integer(codec)),
        (5, I64, build_integer(sum(page.values for page, _ in pages if page.is_data))),
        (6, I64, build_integer(sum(page.header_size + page.size for page, _ in pages))),
        (7, I64, build_integer(sum(sizes))),
        (9, I64, build_integer(data_start)),
    ]
    if has_dictionary:
        fields.append((11, I64, build_integer(len(MAGIC))))
    return build_struct([(2, I64, build_integer(0)), (3, STRUCT, build_struct(fields))])
