"""Columns of every type look the same in a Parquet file and in the Arrow file that pyarrow makes of it."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import JPG, PNG, write_arrow
from parquet_tables import write_parquet
from shown import files

from touchfs.catalog.catalog import Catalog
from touchfs.core.extent import Extent
from touchfs.indexing.catalogs import make_catalog
from touchfs.limits import LIMITS
from touchfs.registry.forms import parse_form
from touchfs.registry.open import open_shard, open_source
from touchfs.shard.options import DEFAULT
from touchfs.tables.rows.rows import TableRows

BYTES_OF = pa.struct([("bytes", pa.large_binary()), ("extension", pa.string())])
# For each type four values, some of them null: types that Parquet has, those that only the Arrow schema in it tells,
# and all kinds of nesting.
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, None, False, True]),
    (pa.uint64(), [2**64 - 1, None, 0, 1]),
    (pa.float16(), [np.float16(1.5), None, np.float16(2), np.float16(0)]),
    (pa.decimal256(60, 2), [Decimal("1.10"), None, Decimal("0.00"), Decimal("-9.99")]),
    (pa.date64(), [86400000, None, 0, 172800000]),
    (pa.time32("ms"), [1, None, 2, 3]),
    (pa.time64("us"), [1, None, 2, 3]),
    (pa.duration("ms"), [1, None, 2, 3]),
    (pa.timestamp("us", "UTC"), [1, None, 2, 3]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None, "a"]),
    (pa.binary(2), [b"ab", None, b"cd", b"ef"]),
    (pa.binary_view(), [b"x" * 40, None, b"y", b""]),
    (pa.string_view(), ["x" * 40, None, "y", ""]),
    (pa.large_binary(), [PNG, None, JPG, b""]),
    (BYTES_OF, [{"bytes": b"q", "extension": ".TXT"}, None, {"bytes": None}, {"bytes": b"1", "extension": None}]),
    (pa.large_list(pa.int8()), [[1], None, [], [1, None]]),
    (pa.list_(BYTES_OF), [[{"bytes": b"1", "extension": "x"}], None, [], [None, {"bytes": None}]]),
    (pa.list_(pa.int64(), 2), [[1, 2], [3, None], None, [5, 6]]),
    (pa.list_(pa.list_(pa.float32(), 2), 2), [[[1, 2], [3, 4]], None, [[1, 2], [3, 4]], [[0, 0], [0, 0]]]),
    (pa.list_(pa.bool_(), 2), [[True, False], None, [True, True], [False, True]]),
    (pa.list_(pa.binary(), 2), [[b"a", b"b"], None, [b"", b""], [b"1", None]]),
    (pa.list_(pa.list_(pa.int8(), 2)), [[[1, 2]], None, [], [[3, 4], [5, 6]]]),
    (pa.map_(pa.int32(), pa.string()), [[(1, "a")], None, [], [(2, None)]]),
    (pa.struct([("x", BYTES_OF)]), [{"x": {"bytes": b"q"}}, None, {"x": None}, {"x": {"bytes": None}}]),
    (pa.null(), [None] * 4),
]
WHOLE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True] * 4),
    (pa.uint8(), [1, 2, 3, 4]),
    (pa.float16(), [np.float16(1.5)] * 4),
    (pa.timestamp("ms"), [1, 2, 3, 4]),
    (pa.date32(), [1, 2, 3, 4]),
    (pa.duration("s"), [1, 2, 3, 4]),
    (pa.decimal128(5, 2), [Decimal("1.10")] * 4),
    (pa.list_(pa.float32(), 1), [[1], [2], [3], [4]]),
    (pa.list_(pa.int64(), 2), [[1, 2]] * 4),
]


def columns() -> dict[str, pa.Array]:
    """The types as columns of four rows, and extension types."""
    made = {f"c{i}": pa.array(values, kind) for i, (kind, values) in enumerate([*TYPES, *WHOLE])}
    ids = pa.array([uuid.UUID(int=i).bytes if i else None for i in range(4)], pa.binary(16))
    pairs = pa.array([[1, 2]] * 4, pa.list_(pa.int32(), 2))
    made["uuid"] = pa.ExtensionArray.from_storage(pa.uuid(), ids)
    made["tensor"] = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), (2,)), pairs)
    return made


def indexed(path: Path, *, full: bool) -> dict[str, bytes]:
    catalog = str(path.parent / f".{path.name}.catalog")
    assert not make_catalog(str(path), catalog, DEFAULT, full=full).report
    return files(Catalog(catalog), str(path))


def whole_columns(path: Path) -> dict[bytes, bytes]:
    shard = open_shard(str(path))
    assert isinstance(shard, TableRows)
    found = {}
    for column in shard.whole_columns():
        extent = Extent(open_source(str(path), column.source, shard.files), 0, 0)
        content = parse_form(str(column.form)).content(extent, b"", LIMITS)
        found[column.name] = bytes(content.read(0, content.size))
    return found


WAYS = ["snappy", "plain", "zstd", "no-statistics"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("types", ["a share", pytest.param("all", marks=pytest.mark.variant)])
def test_parquet_shows_what_arrow_shows(tmp_path: Path, way: str, types: str) -> None:
    """Each type in one of the ways, or in all of them."""
    found = list(columns().items())
    for name, column in found if types == "all" else found[WAYS.index(way) :: len(WAYS)]:
        table = pa.table({name: column, "n": range(4)})
        parquet = write_parquet(tmp_path / "parquet" / "x.parquet", table, way, 3)
        read = pq.read_table(parquet)
        if pa.types.is_dictionary(read.schema.field(0).type):
            read = read.unify_dictionaries()
        (tmp_path / "arrow").mkdir(exist_ok=True)
        arrow = write_arrow(tmp_path / "arrow" / "x.arrow", read)
        for full in (False, True):
            assert indexed(parquet, full=full) == indexed(arrow, full=full), column.type
        if way != "no-statistics":
            assert whole_columns(parquet) == whole_columns(arrow), column.type
