"""Cells of Parquet files as files: ranges of it, or parts of pages that are decoded once."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conformance import check_reads
from parquet_files import nested_table, written

from touchfs.core.errors import ChangedError, FormatError
from touchfs.core.extent import Extent
from touchfs.form.ordinals import pack_ordinal
from touchfs.limits import LIMITS, Limits
from touchfs.registry.forms import parse_form
from touchfs.source.data import DATA
from touchfs.source.scratch.store import Scratch

TABLE = nested_table()
IMAGES = [(image or {}).get("bytes") or b"" for image in TABLE["image"].to_pylist()]
NAMES = [(name or "").encode() for name in TABLE["name"].to_pylist()]
WAYS = {
    "plain": {},
    "dictionary": {"pages": ("2.0", True, True)},
    "zstd": {"codec": "zstd"},
    "snappy-dictionary": {"pages": ("1.0", False, True), "codec": "snappy"},
    "differences": {"column_encoding": {"name": "DELTA_BYTE_ARRAY", "image.bytes": "DELTA_LENGTH_BYTE_ARRAY"}},
}


def file_of(path: Path, data: bytes) -> Extent:
    """The extent of a cell whose place nobody knows."""
    path.write_bytes(data)
    return Extent(DATA.open(str(path)), 0, 0)


@pytest.fixture(autouse=True)
def own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# With the smaller window, pages are decoded into the scratch store.
@pytest.mark.parametrize("window", [50, 4 * 10**6])
@pytest.mark.parametrize("way", WAYS)
def test_cells_are_those_that_were_written(tmp_path: Path, way: str, window: int) -> None:
    extent = file_of(tmp_path / "x.parquet", written(TABLE, **WAYS[way]))  # type: ignore[arg-type]
    limits = Limits(window=window)
    for path, cells in (("4.0", IMAGES), ("1", NAMES)):
        form = parse_form(f"parquet/{path}")
        first = form.content(extent, pack_ordinal(3), limits)
        assert form.size(0, pack_ordinal(3)) is None and form.known_size(extent, pack_ordinal(3), limits) is None
        assert first.read_nowait(0, 1) is None
        check_reads(first, cells[3])
        for row in reversed(range(100)):
            content = form.content(extent, pack_ordinal(row), limits)
            assert bytes(content.read(0, 1000)) == cells[row]
            assert form.known_size(extent, pack_ordinal(row), limits) == content.size == len(cells[row])
            assert content.read_nowait(0, 1000) == cells[row]
    has_scratch = bool(Scratch.configured().stored())
    assert has_scratch == (window == 50 and way not in ("plain", "dictionary"))


def test_a_cell_in_a_form(tmp_path: Path) -> None:
    arrays = np.arange(12, dtype="<f4").reshape(4, 3)
    extent = file_of(tmp_path / "x.parquet", written(pa.table({"a": [row.tobytes() for row in arrays]}), codec="zstd"))
    form = parse_form("parquet/0/npy/<f4/3")
    content = form.content(extent, pack_ordinal(2), LIMITS)
    assert np.array_equal(np.load(io.BytesIO(bytes(content.read(0, content.size)))), arrays[2])
    assert form.known_size(extent, pack_ordinal(2), LIMITS) == content.size


def test_a_row_or_column_that_is_not_there(tmp_path: Path) -> None:
    extent = file_of(tmp_path / "x.parquet", written(TABLE))
    with pytest.raises(FormatError, match="no row 100: index with --force"):
        parse_form("parquet/1").content(extent, pack_ordinal(100), LIMITS).read(0, 1)
    for path in ("99", "4", "5", "4.7"):
        with pytest.raises(FormatError, match="Parquet file"):
            parse_form(f"parquet/{path}").content(extent, pack_ordinal(0), LIMITS).read(0, 1)


def test_a_file_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    extent = file_of(path, written(TABLE, codec="zstd"))
    form = parse_form("parquet/1")
    assert bytes(form.content(extent, pack_ordinal(0), LIMITS).read(0, 100)) == NAMES[0]
    changed = [f"other {i}" for i in range(100)]
    path.write_bytes(written(pa.table({"id": changed, "name": changed}), codec="zstd"))
    extent.source.close()  # type: ignore[attr-defined]
    with pytest.raises(ChangedError):
        form.content(extent, pack_ordinal(0), LIMITS).read(0, 100)
    again = Extent(DATA.open(str(path)), 0, 0)
    assert bytes(form.content(again, pack_ordinal(0), LIMITS).read(0, 100)) == b"other 0"
