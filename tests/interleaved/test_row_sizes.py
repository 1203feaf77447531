"""Sizes of rows: together they are those of the buffers."""

from decimal import Decimal

import pyarrow as pa
import pytest

from touchfs.interleaved.items.sizes import row_bytes


def test_rows_differ_as_their_values_do():
    table = pa.table({"bytes": pa.array([b"x" * 1000, None, b""], pa.large_binary()), "number": [1, 2, None]})
    assert row_bytes(table).tolist() == [1016, 16, 16]


@pytest.mark.parametrize(
    ("values", "kind", "sizes"),
    [
        ([[1, 2], None, []], pa.list_(pa.int16()), [12, 8, 8]),
        ([["ab", None], [], None], pa.large_list(pa.large_string()), [8 + 18, 8, 8]),
        ([{"a": 1, "b": b"xyz"}, None], pa.struct([("a", pa.int32()), ("b", pa.large_binary())]), [15, 12]),
        ([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2), [16, 16]),
        ([[("k", 1)], None], pa.map_(pa.large_string(), pa.int64()), [8 + 9 + 8, 8]),
        ([Decimal("1.5"), None], pa.decimal128(10, 2), [16, 16]),
        ([None, None], pa.null(), [0, 0]),
        ([True, None], pa.bool_(), [1, 1]),
        (["abc", None], pa.string_view(), [11, 8]),
    ],
)
def test_values_of_every_kind(values, kind, sizes):
    table = pa.table({"column": pa.chunked_array([pa.array(values[:1], kind), pa.array(values[1:], kind)])})
    assert row_bytes(table).tolist() == sizes


def test_slices_are_measured_alone():
    array = pa.array(["a", "bb", "ccc", "dddd"], pa.large_string())
    nested = pa.array([["a"], ["bb", "ccc"], None, ["dddd"]], pa.list_(pa.large_string()))
    table = pa.table({"text": array, "texts": nested})
    assert row_bytes(table.slice(1, 2)).tolist() == row_bytes(table).tolist()[1:3] == [10 + 8 + 10 + 11, 11 + 8]
