"""Footers of Parquet files: schema, row groups and chunks as pyarrow has them; all else is a FormatError."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from parquet_files import PAGES, ParquetSource, nested_table, opened, written

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.tables.parquet.layout.footer import FOOTER_MAX, ParquetFooter, build_tail, parse_parquet
from touchfs.tables.parquet.layout.schema import PhysicalType
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

Field = tuple[int, int, bytes]


def parse(data: bytes) -> ParquetFooter:
    return drive(parse_parquet(len(data)), ParquetSource(data))


@pytest.mark.parametrize("pages", PAGES)
def test_leaves_and_chunks_are_those_of_pyarrow(pages: tuple[str, bool, bool]) -> None:
    data = written(nested_table(), pages, "zstd")
    footer, expected = parse(data), pq.ParquetFile(io.BytesIO(data)).metadata
    assert footer.groups == expected.num_row_groups == 3 and footer.starts.tolist() == [0, 40, 80, 100]
    for leaf in footer.schema.leaves:
        column = expected.schema.column(leaf.number)
        assert ".".join(leaf.names) == column.path and leaf.type.name == column.physical_type
        assert (leaf.max_definition, leaf.max_repetition) == (
            column.max_definition_level,
            column.max_repetition_level,
        )
        if leaf.type == PhysicalType.FIXED_LEN_BYTE_ARRAY:
            assert leaf.width == column.length
    for number in range(footer.groups):
        for leaf in footer.schema.leaves:
            chunk, theirs = footer.group(number).chunks[leaf.number], expected.row_group(number).column(leaf.number)
            assert chunk.values == theirs.num_values and chunk.size == theirs.total_compressed_size
            assert chunk.start == (theirs.dictionary_page_offset or theirs.data_page_offset)
            assert (chunk.index is not None) == theirs.has_offset_index == pages[1]
            assert chunk.nulls == theirs.statistics.null_count


def test_paths_lead_to_leaves() -> None:
    schema = parse(written(nested_table())).schema
    assert schema.leaf_at((4, 1)).names == ("image", "path") and len(schema.leaves_at((5,))) == 2
    for path in ((99,), (4, 2), (0, 0), (5, 0), (6, 0), (-1,)):
        with pytest.raises(FormatError):
            schema.leaf_at(path)
    with pytest.raises(FormatError, match="2 leaves, not one"):
        schema.leaf_at((4,))


def test_a_file_cut_anywhere() -> None:
    data = written(pa.table({"a": [1, 2], "b": ["x", None]}))
    for size in range(len(data)):
        with pytest.raises(FormatError):
            parse(data[:size])


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\0\0\0\0PAR1", b"x" * 100, b"PAR1" + bytes(50)])
def test_what_is_no_parquet_file(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse(data)


class _Kms(pe.KmsClient):  # type: ignore[misc]
    """A key management service that keeps nothing secret."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, master: str) -> bytes:
        return key.hex().encode()

    def unwrap_key(self, key: bytes, master: str) -> bytes:
        return bytes.fromhex(bytes(key).decode())


@pytest.mark.parametrize("has_plain_footer", [False, True])
def test_an_encrypted_file_is_refused(has_plain_footer: bool) -> None:
    config = pe.EncryptionConfiguration("k", column_keys={"k": ["a"]}, plaintext_footer=has_plain_footer)
    properties = pe.CryptoFactory(_Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)
    made = io.BytesIO()
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    with pq.ParquetWriter(made, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(FormatError, match="encrypted Parquet file: decrypt it first"):
        parse(made.getvalue())


# Footers built by hand


def element(name: str, type_: int | None = None, children: int = 0, *more: Field) -> bytes:
    fields = [(4, BINARY, build_binary(name.encode())), *more]
    fields += [(1, I32, build_integer(type_))] if type_ is not None else []
    fields += [(5, I32, build_integer(children))] if children else []
    return build_struct(sorted(fields))


def chunk(size: int = 10, offset: int = 4, values: int = 1, *more: Field) -> bytes:
    fields = [(4, I32, build_integer(0)), (5, I64, build_integer(values)), (7, I64, build_integer(size))]
    fields += [(9, I64, build_integer(offset))]
    return build_struct(sorted([(2, I64, build_integer(0)), (3, STRUCT, build_struct(fields)), *more]))


def group(rows: int, *chunks: bytes) -> bytes:
    return build_struct([(1, LIST, build_list(STRUCT, list(chunks))), (3, I64, build_integer(rows))])


def footer(elements: list[bytes], rows: int, groups: list[bytes], *more: Field) -> bytes:
    fields = [
        (2, LIST, build_list(STRUCT, elements)),
        (3, I64, build_integer(rows)),
        (4, LIST, build_list(STRUCT, groups)),
    ]
    return b"PAR1" + bytes(100) + build_tail(build_struct(sorted([*fields, *more])))


ROOT, LEAF = element("schema", children=1), element("a", 1)


def test_a_footer_built_by_hand() -> None:
    found = parse(footer([ROOT, LEAF], 1, [group(1, chunk())]))
    assert found.starts.tolist() == [0, 1] and found.group(0).chunks[0].start == 4


def test_a_footer_of_0_rows() -> None:
    """As parquet-rs wrote it: row groups have the numbers."""
    assert parse(footer([ROOT, LEAF], 0, [group(1, chunk()), group(2, chunk())])).starts.tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("writer", "size"),
    [
        ("parquet-mr", 110),
        ("parquet-mr version 1.2.8 (build abc)", 110),
        ("parquet-mr version 1.2.9 (build abc)", 10),
        ("parquet-mr version 1.10.0", 10),
        ("parquet-cpp version 1.0.0", 10),
    ],
)
def test_chunks_of_writers_that_did_not_count_a_header(writer: str, size: int) -> None:
    created_by = (6, BINARY, build_binary(writer.encode()))
    row_group = group(1, chunk())
    data = footer([ROOT, LEAF], 1, [row_group], created_by)
    assert parse(data).group(0).chunks[0].size == min(size, len(b"PAR1") + 100 - 4)


def test_a_dictionary_whose_header_was_not_counted() -> None:
    """The values are those of the file, with one column and with a chunk after it."""
    table = pa.table({"a": ["x", "y", "x"] * 20, "b": ["z", "z", "u"] * 20})
    data = written(table, ("1.0", False, True))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    fields, reader = [], CompactReader(data[start:-8])
    for number, kind in reader.fields():
        begin = reader.position
        reader.skip(kind)
        fields.append((number, kind, reader.between(begin, reader.position)))
    sizes = {chunk.size for group in range(2) for chunk in parse(data).group(group).chunks}
    old = []
    for number, kind, value in fields:
        for size in sizes if number == 4 else ():
            assert value.count(build_integer(size))
            value = value.replace(build_integer(size), build_integer(size - 14))
        old.append((number, kind, build_binary(b"parquet-mr") if number == 6 else value))
    assert [
        json.loads(row) for row in opened(data[:start] + build_tail(build_struct(old))).json_rows(0, 60)
    ] == table.to_pylist()


@pytest.mark.parametrize(
    ("elements", "problem"),
    [
        ([], "0 elements"),
        ([ROOT], "lack fields"),
        ([ROOT, LEAF, LEAF], "more fields"),
        ([element("schema", children=-1), LEAF], "-1 fields"),
        ([ROOT, *[element("g", children=1)] * 70, LEAF], "nested over"),
        ([ROOT, element("a", 99)], "unknown type 99"),
        ([ROOT, element("a", 7, 0, (2, I32, build_integer(-3)))], "-3 bytes"),
        ([ROOT, element("a", 1, 0, (3, I32, build_integer(3)))], "unknown repetition"),
    ],
)
def test_hostile_schemas(elements: list[bytes], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse(footer(elements, 0, []))


@pytest.mark.parametrize(
    ("rows", "row_group", "problem"),
    [
        (2, group(1, chunk()), "2 rows, and row groups of 1"),
        (-1, group(-1, chunk()), "-1 rows"),
        (2**40, group(2**40, chunk()), "row group of 1,099,511,627,776 rows"),
        (1, group(1, chunk(size=1000)), "not in the file"),
        (1, group(1, chunk(size=-1)), "not in the file"),
        (1, group(1, chunk(offset=0)), "not in the file"),
        (1, group(1, chunk(offset=2**62)), "not in the file"),
        (1, group(1, chunk(values=-1)), "-1 values"),
        (1, group(1), "0 columns in a schema of 1"),
        (1, group(1, chunk(), chunk()), "2 columns in a schema of 1"),
        (1, group(1, chunk(10, 4, 1, (4, I64, build_integer(-5)), (5, I32, build_integer(3)))), "not in the file"),
        (1, group(1, chunk(10, 4, 1, (1, BINARY, build_binary(b"/etc/passwd")))), "other files"),
        (1, group(1, chunk(10, 4, 1, (8, STRUCT, b"\0"))), "encrypted"),
    ],
)
def test_hostile_row_groups(rows: int, row_group: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse(footer([ROOT, LEAF], rows, [row_group])).group(0)


def test_a_footer_larger_than_any() -> None:
    class Huge(ParquetSource):
        def read(self, offset: int, length: int) -> bytes:
            assert length <= 8
            return b"PAR1" if offset == 0 else (FOOTER_MAX + 1).to_bytes(4, "little") + b"PAR1"

    with pytest.raises(FormatError, match="footer of"):
        drive(parse_parquet(1 << 40), Huge(b""))
