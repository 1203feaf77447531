"""Open Parquet files: rows, columns and cells are those of pyarrow, whatever wrote the file, and few pages are read."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import CODECS, PAGES, ParquetSource, nested_table, opened, written
from test_arrow_file import EXPECTED, every_type

from touchfs.core.errors import FormatError
from touchfs.core.names import distinct
from touchfs.limits import LIMITS, Limits
from touchfs.source.data import DATA
from touchfs.tables.parquet.open_file import OpenParquet, open_parquet

TABLE = nested_table()
OF_PYARROW = ("interval",)  # it writes no such columns


def check(data: bytes, *, label: object = None) -> None:
    """Any rows of any columns are those that pyarrow reads."""
    file, expected = opened(data), pq.read_table(pa.BufferReader(data))
    assert file.schema == expected.schema and file.rows == len(expected)
    for group in range(file.batches):
        start, stop = (int(row) for row in file.starts[group : group + 2])
        for first, count in ((start, stop - start), (start + (stop - start) // 3, 5), (stop - 1, 9)):
            found = file.read(first, count)
            rows = min(count, stop - first)
            assert len(found) == rows
            for name in expected.schema.names:
                theirs = expected.column(name).slice(first, rows).combine_chunks()
                assert found.column(name).type == theirs.type, (label, name)
                assert found.column(name).equals(theirs), (label, name, first, count)


@pytest.mark.parametrize(
    ("pages", "codec"),
    [
        pytest.param(pages, codec, marks=() if turn == place % len(CODECS) else pytest.mark.variant)
        for place, pages in enumerate(PAGES)
        for turn, codec in enumerate(CODECS)
    ],
)
def test_rows_are_those_of_pyarrow(pages: tuple[str, bool, bool], codec: str) -> None:
    check(written(TABLE, pages, codec))


def test_other_encodings() -> None:
    names = ("name", "image.bytes", "images.list.element.path")
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        check(written(TABLE, column_encoding=dict.fromkeys(names, encoding)))
    check(written(TABLE, column_encoding={"id": "DELTA_BINARY_PACKED", "fixed": "BYTE_STREAM_SPLIT"}))
    check(written(TABLE, ("1.0", True, True), dictionary_pagesize_limit=50))  # falls back to plain pages


def test_files_of_other_settings() -> None:
    moments = pa.table({"t": pa.array([1, None, 10**18], pa.timestamp("ns"))})
    check(written(moments, use_deprecated_int96_timestamps=True))
    check(written(TABLE, store_schema=False, version="1.0"))
    check(written(TABLE, write_statistics=False, use_compliant_nested_type=False))
    check(written(TABLE, write_page_checksum=True))


def test_files_of_polars_and_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for codec in ("uncompressed", "snappy", "zstd"):
        for size in (500, None):
            polars.from_arrow(TABLE.drop_columns(["map"])).write_parquet(  # type: ignore[union-attr]
                path, compression=codec, data_page_size=size, row_group_size=40
            )
            check(path.read_bytes(), label=("polars", codec))
        for version in ("v1", "v2"):
            duckdb.from_arrow(TABLE).query("t", f"copy t to '{path}' (parquet_version {version}, compression {codec})")
            check(path.read_bytes(), label=("duckdb", version, codec))


def test_every_type(tmp_path: Path) -> None:
    table = every_type().drop_columns(OF_PYARROW)
    table = table.set_column(0, "word", table["word"]).drop_columns(["moment in Berlin"])
    data = written(table, row_group_size=3)
    file = opened(data)
    texts = file.json_rows(0, 10)
    assert [json.loads(text) for text in texts] == [
        {name: EXPECTED[name.removesuffix("~2")][i] for name in distinct(table.schema.names)} for i in range(4)
    ]
    assert file.json_rows(2, 1) == texts[2:3] and file.json_rows(4, 5) == []
    assert [value for part in file.json_column(0, 0) for value in part] == EXPECTED["word"][:3]


def test_values_of_extension_types() -> None:
    numbers = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
    table = pa.table(
        {
            "json": pa.array(['{"a": 1}', None], pa.json_()),
            "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2]), numbers),
            "uuid": pa.array([b"0" * 16, None], pa.uuid()),
        }
    )
    file = opened(written(table))
    assert json.loads(file.json_rows(0, 1)[0]) == {
        "json": '{"a": 1}',
        "tensor": [1, 2],
        "uuid": "MDAwMDAwMDAwMDAwMDAwMA==",
    }
    assert file.cells((0,), range(2)) == [b'{"a": 1}', None] and file.cells((2,), range(2)) == [b"0" * 16, None]


class _Pair(pa.ExtensionType):  # type: ignore[misc]
    """An extension type of two leaves."""

    def __init__(self) -> None:
        super().__init__(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), "touchfs.test.pair")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Pair:
        return cls()


def test_an_extension_type_of_several_leaves() -> None:
    pa.register_extension_type(_Pair())
    try:
        stored = pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}], _Pair().storage_type)
        pairs = pa.ExtensionArray.from_storage(_Pair(), stored)
        in_list = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), pairs)
        table = pa.table({"pair": pairs, "list": in_list, "pairs": pa.StructArray.from_arrays([pairs], ["p"])})
        file = opened(written(table))
        found = file.read(0, 3)
        assert found.column("pair").equals(pairs) and found.column("pairs").to_pylist()[1] == {"p": None}
        assert found.column("list").to_pylist() == [stored.to_pylist()[:2], [], stored.to_pylist()[2:]]
        assert json.loads(file.json_rows(0, 1)[0])["pair"] == {"x": 1, "y": ["a"]}
    finally:
        pa.unregister_extension_type("touchfs.test.pair")


@pytest.mark.parametrize("pages", PAGES)
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_cells_and_which_are_null(pages: tuple[str, bool, bool], codec: str) -> None:
    file = opened(written(TABLE, pages, codec))
    images = TABLE["image"].to_pylist()
    expected = [(image or {}).get("bytes") for image in images]
    assert file.cells((4, 0), range(100)) == expected and file.cells((4, 0), range(39, 42)) == expected[39:42]
    assert file.cells((4, 0), range(5, 5)) == []
    for group, (start, stop) in enumerate(zip(file.starts[:-1].tolist(), file.starts[1:].tolist(), strict=True)):
        valid = file.validity((4, 0), group, full=True)
        assert valid.tolist() == [value is not None for value in expected[start:stop]]
        assert file.validity((4, 0), group) is None  # the footer only counts them
        known = file.validity((2,), group)
        assert known is not None and known.all() and len(known) == stop - start
        assert file.nulls((4, 0), group) == (~valid).sum()
    with pytest.raises(FormatError, match="in a list"):
        file.validity((8,), 0)


@pytest.mark.parametrize("pages", PAGES)
def test_rows_of_a_page(pages: tuple[str, bool, bool]) -> None:
    file = opened(written(TABLE, pages, "zstd"))
    row = 0
    while row < file.rows:
        rows = file.page_rows((4, 0), row)
        assert rows.start == row and all(file.page_rows((4, 0), each) == rows for each in rows)
        row = rows.stop
    assert file.page_rows((4, 0), 99).stop == 100 and file.page_rows((4, 0), 40).start == 40
    with pytest.raises(IndexError):
        file.page_rows((4, 0), 100)


def test_only_the_pages_of_a_row_are_read() -> None:
    table = pa.table(
        {
            "images": [[{"bytes": bytes([i]) * 50_000, "path": f"{i}-{j}"} for j in range(2)] for i in range(40)],
            "other": [bytes(50_000)] * 40,
        }
    )
    for has_index in (False, True):
        data = written(table, ("1.0", has_index, False), "none", data_page_size=100_000, write_batch_size=1)
        file, source = opened(data), ParquetSource(data)
        file._values._source = file._pages._source = source  # type: ignore[assignment]
        file.page_rows((1,), 0)  # finds the pages of a column
        before = source.read_bytes
        assert len(file.read(17, 1, [(0,)]).column(0)[0].as_py()) == 50_000
        assert source.read_bytes - before < 250_000
        table_of_images = file._pages.table(file._footer.schema.leaves[0], 0)
        before = source.read_bytes
        (value,) = file.read(17, 1, [(1,)]).column(0).to_pylist()
        assert [image["path"] for image in value] == ["17-0", "17-1"] and len(table_of_images.rows) > 15
        assert source.read_bytes - before < 450_000


def test_rows_that_go_on_in_the_next_page(tmp_path: Path) -> None:
    long = pa.table({"a": [[f"{row}-{i}" for i in range(row * 7)] for row in range(40)]})
    for version in ("1.0", "2.0"):
        check(written(long, (version, False, False), data_page_size=20, write_batch_size=3))
    path = tmp_path / "x.parquet"
    polars.from_arrow(long).write_parquet(path, data_page_size=100)  # type: ignore[union-attr]
    check(path.read_bytes())


def test_columns_are_left_out() -> None:
    file = opened(written(TABLE))
    left_out = [(0,), (4, 0), (6,)]
    found = file.read(3, 4, left_out)
    assert found.schema.names == [name for name in TABLE.schema.names if name not in ("id", "map")]
    expected = [image and {"path": image["path"]} for image in TABLE["image"].to_pylist()[3:7]]
    assert found.column("image").to_pylist() == expected
    everything = [(number,) for number in range(TABLE.num_columns)]
    assert len(file.read(3, 4, everything)) == 4 and file.json_rows(98, 9, everything) == [b"{}\n"] * 2


def test_batches_values_and_integers() -> None:
    file = opened(written(TABLE))
    assert [file.locate(row) for row in (0, 39, 40, 99)] == [(0, 0), (0, 39), (1, 0), (2, 19)]
    some = file.read_batch(1, ["name", "image"])
    assert some.to_pylist() == TABLE.select(["name", "image"]).slice(40, 40).to_pylist()
    assert file.read_values(2, (1,)) == TABLE["name"].to_pylist()[80:]
    assert file.read_values(2, (4, 1)) == [(each or {}).get("path") for each in TABLE["image"].to_pylist()[80:]]
    assert file.integers(0).tolist() == list(range(100))
    assert opened(written(pa.table({"a": [5, None]}))).integers(0).tolist() == [5, -1]
    with pytest.raises(FormatError, match="no column 'x'"):
        file.read_batch(0, ["x"])
    for row in (-1, 100):
        with pytest.raises(IndexError):
            file.read(row, 1)


def test_tables_without_rows_or_columns() -> None:
    empty = opened(written(TABLE.slice(0, 0)))
    assert empty.rows == 0 and empty.json_rows(0, 5) == [] and empty.schema == TABLE.schema
    assert empty.integers(0).tolist() == []
    rows = opened(written(pa.table({"a": pa.nulls(5)})))
    assert rows.json_rows(3, 5) == [b'{"a": null}\n'] * 2


def test_names_that_are_ambiguous() -> None:
    names = ["a.b", "a", "a", "list"]
    arrays = [pa.array([1]), pa.array([{"b": 2, "c": 3}]), pa.array(["x"]), pa.array([[{"element": 5}]])]
    file = opened(written(pa.Table.from_arrays(arrays, names)))
    assert [column.to_pylist() for column in file.read(0, 1).columns] == [
        [1],
        [{"b": 2, "c": 3}],
        ["x"],
        [[{"element": 5}]],
    ]


def test_rows_that_do_not_fit_in_memory() -> None:
    data = written(pa.table({name: [bytes(100_000)] * 8 for name in "abcdef"}), row_group_size=8)
    for limits, first_works in ((Limits(decoded=10**5), False), (Limits(decoded=4 * 10**6), True)):
        file = opened(data, limits)
        with pytest.raises(FormatError, match="--max-decoded"):
            file.read_batch(0)
        if first_works:
            assert len(file.read(0, 1).column(0)[0].as_py()) == 100_000
        else:
            with pytest.raises(FormatError, match="--max-decoded"):
                file.read(0, 1)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_long_runs_of_a_value_of_the_dictionary(codec: str) -> None:
    """The indices are parsed if the page would not fit in memory with the largest value in all its rows."""
    limits, one_page = Limits(decoded=1 << 20), {"row_group_size": 5000, "write_batch_size": 5000}

    def open_cells(cells: list[bytes]) -> OpenParquet:
        return opened(written(pa.table({"cell": cells}), ("1.0", False, True), codec, **one_page), limits)

    cells = [b"large" * 20_000, *[b"small"] * 1000]
    assert open_cells(cells).cells((0,), range(1001)) == cells
    with pytest.raises(FormatError, match="--max-decoded"):
        open_cells(cells[:1] * 100).cells((0,), range(1))


def test_a_process_opens_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(written(TABLE))
    file = open_parquet(DATA.open(str(path)), LIMITS)
    assert isinstance(file, OpenParquet) and open_parquet(DATA.open(str(path)), LIMITS) is file
    assert open_parquet(DATA.open(str(path)), Limits(decoded=5)) is not file
    path.write_bytes(written(TABLE.slice(0, 3)))
    assert open_parquet(DATA.open(str(path)), LIMITS).rows == 3


def test_a_table_of_many_columns() -> None:
    file = opened(written(pa.table({f"c{i}": np.arange(3) for i in range(400)})))
    assert json.loads(file.json_rows(1, 1)[0]) == {f"c{i}": 1 for i in range(400)}


def test_dates_are_iso() -> None:
    moment = datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC)
    file = opened(written(pa.table({"t": [moment], "d": [moment.date()]})))
    assert json.loads(file.json_rows(0, 1)[0]) == {"t": "2024-02-29T01:02:03.000004Z", "d": "2024-02-29"}
