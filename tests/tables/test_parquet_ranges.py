"""Ranges of cells in Parquet files: they are the values, or there are none; hostile pages get a FormatError."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import CODECS, PAGES, ParquetSource, nested_table, opened, written

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.limits import Limits
from touchfs.tables.parquet.layout.excerpt import build_excerpt
from touchfs.tables.parquet.layout.footer import parse_parquet
from touchfs.tables.parquet.layout.pages import ParquetPage, read_page
from touchfs.tables.parquet.layout.thrift import I32, STRUCT, build_integer, build_struct

TABLE = nested_table()
# The paths of columns of bytes and text, and their values
CELLS = {
    (1,): [None if name is None else name.encode() for name in TABLE["name"].to_pylist()],
    (2,): TABLE["fixed"].to_pylist(),
    (4, 0): [(image or {}).get("bytes") for image in TABLE["image"].to_pylist()],
}


def in_ranges(data: bytes, path: tuple[int, ...]) -> list[bytes | None] | None:
    file, found = opened(data), []
    for group in range(file.batches):
        ranges = file.cell_ranges(path, group)
        if ranges is None:
            return None
        rows = zip(ranges.offsets.tolist(), ranges.lengths.tolist(), ranges.valid.tolist(), strict=True)
        found += [data[offset : offset + length] if is_valid else None for offset, length, is_valid in rows]
        assert not ranges.offsets[~ranges.valid].any() and not ranges.lengths[~ranges.valid].any()
    return found


@pytest.mark.parametrize("pages", PAGES)
def test_ranges_are_the_cells(pages: tuple[str, bool, bool]) -> None:
    data = written(TABLE, pages)
    for path, expected in CELLS.items():
        assert in_ranges(data, path) == expected
    numbers = in_ranges(data, (0,))
    assert numbers is not None
    assert [int.from_bytes(number or b"", "little") for number in numbers] == TABLE["id"].to_pylist()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_cells_are_no_ranges(codec: str) -> None:
    data = written(TABLE, codec=codec)
    assert in_ranges(data, (1,)) is None


def test_cells_of_other_encodings_are_no_ranges() -> None:
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        data = written(TABLE, column_encoding={"name": encoding})
        assert in_ranges(data, (1,)) is None and in_ranges(data, (2,)) is not None
    assert in_ranges(written(TABLE), (3,)) is None  # bits


@pytest.mark.parametrize("pages", PAGES)
def test_some_rows(pages: tuple[str, bool, bool]) -> None:
    file = opened(written(TABLE, pages))
    for group, first, count in ((0, 0, 0), (0, 3, 1), (1, 17, 20), (2, 19, 1), (2, 20, 0)):
        whole, some = file.cell_ranges((4, 0), group), file.cell_ranges((4, 0), group, first, count)
        assert whole is not None and some is not None and len(some) == count
        for name in ("offsets", "lengths", "valid"):
            assert np.array_equal(getattr(some, name), getattr(whole, name)[first : first + count])
    for first, count in ((-1, 1), (0, 41), (41, 0), (40, 1)):
        with pytest.raises(FormatError, match="has no rows"):
            file.cell_ranges((4, 0), 0, first, count)


def test_the_values_are_not_read() -> None:
    table = pa.table({"image": [bytes([i]) * 100_000 for i in range(20)]})
    data = written(table, ("1.0", True, False), data_page_size=500_000)
    source = ParquetSource(data)
    file = opened(data)
    file._pages._source = source  # type: ignore[assignment]
    found = file.cell_ranges((0,), 0, 7, 1)
    assert found is not None and data[int(found.offsets[0])] == 7
    assert source.read_bytes < 2000


# Hostile pages: a file of one leaf, whose pages are built by hand


def header(type_: int, size: int, stored: int, **page: Any) -> bytes:
    numbers = [(number, I32, build_integer(value)) for number, value in page["fields"]]
    field = {0: 5, 2: 7, 3: 8}[type_]
    return build_struct(
        [
            (1, I32, build_integer(type_)),
            (2, I32, build_integer(size)),
            (3, I32, build_integer(stored)),
            (field, STRUCT, build_struct(numbers)),
        ]
    )


def data_page(values: int, body: bytes, encoding: int = 0, size: int | None = None, stored: int | None = None) -> bytes:
    fields = [(1, values), (2, encoding), (3, 3), (4, 3)]
    sizes = len(body) if size is None else size, len(body) if stored is None else stored
    return header(0, *sizes, fields=fields) + body


def dictionary_page(values: int, body: bytes, size: int | None = None) -> bytes:
    return header(2, len(body) if size is None else size, len(body), fields=[(1, values), (2, 0)]) + body


def file_of(rows: int, *pages: bytes, codec: int = 0, nullable: bool = False) -> bytes:
    """A Parquet file of a column of bytes that has these pages."""
    made = io.BytesIO()
    schema = pa.schema([pa.field("a", pa.binary(), nullable=nullable)])
    pq.write_table(pa.table({"a": [b"x"]}, schema=schema), made)
    data = made.getvalue()
    footer = drive(parse_parquet(len(data)), ParquetSource(data))
    found: list[tuple[ParquetPage, bytes]] = []
    for page in pages:
        try:
            parsed = drive(read_page(0, len(page)), ParquetSource(page))
        except FormatError:  # what is wrong with it is to be found when the file is read
            parsed = ParquetPage(0, 0, 0, len(page), len(page), rows)
        found.append((parsed, page))
    return build_excerpt(footer, footer.schema.leaves[0], codec, rows, found, {})


def test_old_lz4() -> None:
    values, codec = b"\x01\0\0\0a\x02\0\0\0bc", pa.Codec("lz4_raw")
    block = codec.compress(values, asbytes=True)
    halves = [codec.compress(part, asbytes=True) for part in (values[:5], values[5:])]
    sizes = (5, 6)
    frames = b"".join(struct.pack(">II", size, len(half)) + half for size, half in zip(sizes, halves, strict=True))
    for body in (block, struct.pack(">II", 11, len(block)) + block, frames):
        data = file_of(2, data_page(2, body, size=len(values)), codec=5)
        assert opened(data).cells((0,), range(2)) == [b"a", b"bc"]
        indices = codec.compress(b"\x01" + bytes([2 << 1, 1]), asbytes=True)
        pages = [dictionary_page(2, body, size=11), data_page(2, indices, 8, size=3)]
        assert opened(file_of(2, *pages, codec=5)).cells((0,), range(2)) == [b"bc", b"bc"]


def test_an_unknown_codec() -> None:
    with pytest.raises(FormatError, match=r"cannot be read|codec 3"):
        opened(file_of(1, data_page(1, b"\x01\0\0\0a"), codec=3)).cells((0,), range(1))


def test_levels_of_an_old_encoding() -> None:
    body = b"\xff" + b"".join(b"\x01\0\0\0" + bytes([letter]) for letter in b"abcdefgh")
    page = header(0, len(body), len(body), fields=[(1, 8), (2, 0), (3, 4), (4, 3)]) + body
    file = opened(file_of(8, page, nullable=True))
    assert file.cells((0,), range(8)) == [bytes([letter]) for letter in b"abcdefgh"]
    assert file.cell_ranges((0,), 0) is None and file.validity((0,), 0, full=True).all()


def test_a_file_built_by_hand() -> None:
    values = b"\x01\0\0\0a\x02\0\0\0bc"
    assert in_ranges(file_of(2, data_page(2, values)), (0,)) == [b"a", b"bc"]
    indices = b"\x01" + bytes([3 << 1, 1])
    data = file_of(3, dictionary_page(2, values), data_page(3, indices, 8))
    assert in_ranges(data, (0,)) == [b"bc"] * 3 == opened(data).cells((0,), range(3))


HOSTILE = {
    "a value longer than its page": [data_page(1, b"\xff\0\0\0a")],
    "a value longer than 2 GiB": [data_page(1, b"\xff\xff\xff\xffa")],
    "more values than the page": [data_page(2, b"\x01\0\0\0a")],
    "a billion values": [data_page(2**31 - 1, b"\x01\0\0\0a")],
    "a page beyond the file": [data_page(2, b"\x01\0\0\0a", stored=10**6)],
    "a page of a negative size": [data_page(2, b"\x01\0\0\0a", stored=-10)],
    "a page that claims 2 GB": [data_page(2, b"\x01\0\0\0a", size=2**31 - 1)],
    "no dictionary": [data_page(2, b"\x01\x04\0", 8)],
    "an index beyond the dictionary": [dictionary_page(1, b"\x01\0\0\0a"), data_page(2, b"\x08\x04\x07", 8)],
    "indices cut off": [dictionary_page(1, b"\x01\0\0\0a"), data_page(2, b"", 8)],
    "indices of 77 bits": [dictionary_page(1, b"\x01\0\0\0a"), data_page(2, b"\x4d\x04\x07", 8)],
    "a dictionary beyond its page": [dictionary_page(9, b"\x01\0\0\0a"), data_page(2, b"\x08\x04\x00", 8)],
    "only a dictionary": [dictionary_page(2, b"\x01\0\0\0a\x01\0\0\0b")],
    "pages of unknown types": [b"\x15\x12\x15\x02\x15\x02\0x"],
    "no page": [b""],
    "a page of an index": [header(2, 1, 1, fields=[]).replace(b"\x15\x04", b"\x15\x02", 1) + b"x"],
}


@pytest.mark.parametrize("pages", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pages(pages: list[bytes]) -> None:
    data = file_of(2, *pages)
    file = opened(data)
    with pytest.raises(FormatError):
        file.cell_ranges((0,), 0)
    with pytest.raises(FormatError):
        file.cells((0,), range(2))
    with pytest.raises(FormatError):
        file.json_rows(0, 2)


def test_values_that_are_far_more_than_their_page() -> None:
    limits = Limits(decoded=10**6)
    value = (10_000).to_bytes(4, "little") + bytes(10_000)
    bomb = file_of(5_000, dictionary_page(1, value), data_page(5_000, b"\x01" + b"\x90\x4e\0", 8))
    for read in (lambda file: file.cells((0,), range(1)), lambda file: file.read(0, 1)):
        with pytest.raises(FormatError, match="--max-decoded"):
            read(opened(bomb, limits))
    assert len(opened(bomb).cells((0,), range(4_999, 5_000))[0] or b"") == 10_000  # 50 MB: allowed by default
    found = opened(bomb, limits).cell_ranges((0,), 0)
    assert found is not None and found.lengths.tolist() == [10_000] * 5_000

    long = pa.table({"a": ["x" * 10_000 + str(i % 10) for i in range(2_000)]})
    prefixes = written(long, column_encoding={"a": "DELTA_BYTE_ARRAY"}, row_group_size=2_000, data_page_size=10**7)
    assert len(prefixes) < 100_000
    with pytest.raises(FormatError, match="--max-decoded"):
        opened(prefixes, limits).cells((0,), range(1))
    assert opened(prefixes).cells((0,), range(1)) == [b"x" * 10_000 + b"0"]


def test_more_rows_than_places_fit_in_memory() -> None:
    file = opened(written(pa.table({"a": np.zeros(100_000)}), row_group_size=100_000), Limits(decoded=10**6))
    with pytest.raises(FormatError, match="--max-decoded"):
        file.cell_ranges((0,), 0)
    assert file.cell_ranges((0,), 0, 99_999, 1) is not None
