"""Catalogs of tables: what is derived equals what would be stored, and takes at most 24 bytes a file."""

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import JPG, PNG, pictures, write_arrow, write_cache

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.row_table import RowTable
from touchfs.catalog.rows import row_columns
from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.indexing.catalogs import make_catalog
from touchfs.indexing.tables import row_tables
from touchfs.shard.options import Options

BYTES_PER_FILE = 24


def many(rows: int, *, nulls: bool, several: bool) -> pa.Table:
    choose = random.Random(0)
    cells = [None if nulls and choose.random() < 0.3 else choose.choice([PNG, JPG]) for _ in range(rows)]
    columns = {"image": cells, "n": list(range(rows)), "text": [str(i) for i in range(rows)]}
    if several:
        columns["above"] = cells[::-1]
        columns["zoom"] = [cell and cell[:3] for cell in cells]
    return pa.table(columns, schema=pa.schema([(name, _type(name)) for name in columns]))


def _type(name: str) -> pa.DataType:
    return {"n": pa.int64(), "text": pa.string()}.get(name, pa.binary())


@pytest.mark.parametrize("layout", ["flat", "nested"])
@pytest.mark.parametrize("nulls", [False, True])
def test_a_file_takes_at_most_24_bytes(tmp_path, layout, nulls):
    for several in (False, True):
        path = write_arrow(tmp_path / "x.arrow", many(20_000, nulls=nulls, several=several), rows=1000)
        make_catalog(str(path), str(tmp_path / "c.arrow"), Options(layout=layout))
        table = Catalog(str(tmp_path / "c.arrow")).tables["shards"]
        assert isinstance(table, RowTable)
        count = np.count_nonzero(np.asarray(table.kind))
        if several or layout == "flat":  # nested tables have directories, too, and one file each is not usual
            assert os.path.getsize(tmp_path / "c.arrow") / count <= BYTES_PER_FILE


@pytest.mark.parametrize("layout", ["flat", "nested"])
@pytest.mark.parametrize("report", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_what_is_derived_equals_what_would_be_stored(tmp_path: Path, monkeypatch, layout, report, rows):
    table = many(rows, nulls=True, several=True)
    cache = write_cache(tmp_path / "cache", [table], [rows + 1 if report else rows])
    path, options = str(cache / "shard-00000.arrow"), Options(layout=layout)
    make_catalog(path, str(tmp_path / "derived.arrow"), options)
    monkeypatch.setattr(row_tables, "can_be_derived", lambda kind, is_nested: False)
    make_catalog(path, str(tmp_path / "stored.arrow"), options)
    derived, stored = (Catalog(str(tmp_path / f"{name}.arrow")) for name in ("derived", "stored"))
    assert type(derived.tables["shards"]) is RowTable and type(stored.tables["shards"]) is Table
    _check_equal(derived.tables["shards"], stored.tables["shards"], rows)
    assert derived.tables["segments"].rows == stored.tables["segments"].rows == 1
    assert [(kind.field, kind.form) for kind in derived.kinds] == [(kind.field, kind.form) for kind in stored.kinds]


def _check_equal(derived: Table, stored: Table, samples: int) -> None:
    assert derived.rows == stored.rows
    rows = range(derived.rows)
    for name in ("kind", "ordinal", "part", "offset", "length", "size", "frames", "keyed", "parent"):
        mine, other = getattr(derived, name), getattr(stored, name)
        # The length of the first directory is not stored.
        assert [mine[row] for row in rows if row or name != "length"] == [
            other[row] for row in rows if row or name != "length"
        ], name
        assert np.asarray(mine)[1:].tolist() == [mine[row] for row in rows][1:], name
    files = [row for row in rows if derived.kind[row] != DIRECTORY]
    for row in rows:
        assert derived.name(row) == stored.name(row) and derived.path(row) == stored.path(row)
        if row in files:
            assert derived.suffix[row] == stored.suffix[row] and derived.extension(row) == stored.extension(row)
            assert derived.key(row) == stored.key(row)
        assert derived.find(derived.parent[row], derived.name(row)) == (row or None)
        if derived.kind[row] == DIRECTORY:
            assert derived.children(row) == stored.children(row)
            assert derived.find(row, b"nothing") is None and derived.find(row, b"") is None
    every = np.array(files, np.int64)
    assert derived.paths(every, b"p/") == stored.paths(every, b"p/")
    for extension in (b"json", b"row.json", b"image.png", b"zoom.png", b"x"):
        assert (derived.have_extension(every, extension) == stored.have_extension(every, extension)).all()
        ordinals = np.arange(samples)
        assert (derived.rows_of(ordinals, extension) == stored.rows_of(ordinals, extension)).all()
    of_samples = sum(derived.ordinal[row] != NO_SAMPLE for row in files)
    assert list(derived.order[:of_samples]) == list(stored.order[:of_samples])
    assert np.asarray(derived.order)[:of_samples].tolist() == list(stored.order[:of_samples])
    for ordinal in range(samples):
        assert derived.files(ordinal) == stored.files(ordinal)
        assert all(
            derived.inline(row) in (stored.inline(row), ordinal.to_bytes(4, "little")) for row in derived.files(ordinal)
        )
    assert (derived.first_files(np.arange(samples)) == stored.first_files(np.arange(samples))).all()
    assert derived.files(samples) == []


def test_more_rows_than_names_have_digits_are_named_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(row_columns, "ORDINALS_MAX", 6)
    path = write_arrow(tmp_path / "x.arrow", pictures())
    make_catalog(str(path), str(tmp_path / "c.arrow"))
    assert type(Catalog(str(tmp_path / "c.arrow")).tables["shards"]) is Table
