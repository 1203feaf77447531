"""Cells of Parquet files as files: ranges of it, or parts of pages that are decoded once."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance import check_reads
from parquet_files import nested_table, written
from variants import with_variants

from touchfs.core.errors import ChangedError, FormatError
from touchfs.core.extent import Extent
from touchfs.form.ordinals import pack_ordinal
from touchfs.limits import LIMITS, Limits
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.registry.forms import parse_form
from touchfs.source.data import DATA
from touchfs.source.scratch.store import Scratch
from touchfs.tables.parquet import parquet_pages

pytestmark = pytest.mark.usefixtures("own_cache")

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


READ = """
import sys
from touchfs.core.extent import Extent
from touchfs.form.ordinals import pack_ordinal
from touchfs.limits import Limits
from touchfs.registry.forms import parse_form
from touchfs.source.data import DATA
extent, form = Extent(DATA.open(sys.argv[1]), 0, 0), parse_form("parquet/0")
for row in range(int(sys.argv[2])):
    content = form.content(extent, pack_ordinal(row), Limits(window=int(sys.argv[3])))
    sys.stdout.buffer.write(content.read(0, content.size))
"""


def read_elsewhere(path: Path, rows: int, window: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", READ, str(path), str(rows), str(window)]
    return subprocess.run(command, capture_output=True, check=False)


# What is kept: pages, pages and their dictionary, or cells.
KEPT = {
    "pages": {"codec": "zstd"},
    "dictionary": {"codec": "zstd", "pages": ("1.0", False, True)},
    "cells": {"column_encoding": {"a": "DELTA_LENGTH_BYTE_ARRAY"}},
}
SMALL, LARGE = 10_000, 4 * 10**6
FIRST = {("pages", SMALL), ("dictionary", LARGE), ("cells", SMALL)}


@pytest.mark.parametrize("pair", with_variants(product(KEPT, (SMALL, LARGE)), lambda pair: pair in FIRST), ids=str)
def test_what_a_process_has_decoded_no_other_decodes(tmp_path: Path, pair: tuple[str, int]) -> None:
    """Nor does it read the file: that is another one by now, which only its times do not tell."""
    kept, window = pair
    options: dict[str, Any] = KEPT[kept]
    cells, path = [np.random.default_rng(i).bytes(90_000) for i in range(40)], tmp_path / "x.parquet"
    path.write_bytes(written(pa.table({"a": cells}), **options))
    assert read_elsewhere(path, 40, window).stdout == b"".join(cells)
    limits = Limits(window=window)
    before, data = path.stat(), bytearray(path.read_bytes())
    damaged = data.replace(cells[7][:2000], bytes(2000))
    assert len(damaged) == len(data) and damaged != data
    with open(path, "r+b") as file:
        file.write(damaged)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_anew(path, 40, limits) == cells
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    scratch = Scratch.configured()
    assert len(scratch.values()) == 1 and len(scratch.stored()) >= 1
    scratch.remove([max(scratch.stored(), key=os.path.getsize)])  # what is gone or damaged is decoded again
    assert read_anew(path, 40, limits) == cells
    for stored in [*scratch.values(), *scratch.stored()]:
        Path(stored).write_bytes(Path(stored).read_bytes()[:-1])
    assert read_anew(path, 40, limits) == cells
    assert read_anew(path, 40, limits) == cells


def images_file(path: Path) -> list[bytes]:
    """Write a file of four row groups, each of one page that is kept, and return its cells."""
    cells = [np.random.default_rng(i).bytes(60_000) for i in range(12)]
    pq.write_table(pa.table({"a": cells}), path, row_group_size=3)
    return cells


def read_anew(path: Path, rows: int = 12, limits: Limits = LIMITS) -> list[bytes]:
    """The cells as a new process reads them, from the last to the first."""
    for kept in (parquet_pages._CELLS, parquet_pages._PLACES, parquet_pages._FILES, parquet_pages._DECODED):
        kept.forget()  # type: ignore[attr-defined]
    form, extent = parse_form("parquet/0"), Extent(DATA.open(str(path)), 0, 0)
    return [bytes(form.whole(extent, pack_ordinal(row), limits)) for row in reversed(range(rows))][::-1]


def test_kept_pages_are_read_with_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is a file that is opened once, the footer is not parsed, and each call takes a fifth of a µs."""
    path = tmp_path / "x.parquet"
    cells = images_file(path)
    assert read_anew(path) == cells
    opened, find = [], Scratch.find
    monkeypatch.setattr(Scratch, "find", lambda self, name: opened.append(name) or find(self, name))
    monkeypatch.setattr(parquet_pages, "open_parquet", None)
    assert read_anew(path) == cells
    assert len(opened) == len({*opened}) == 4
    form, extent, names = parse_form("parquet/0"), Extent(DATA.open(str(path)), 0, 0), list[str]()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    for is_counted in (False, True):
        sys.setprofile(count if is_counted else None)
        try:
            form.whole(extent, pack_ordinal(7), LIMITS)
        finally:
            sys.setprofile(None)
    assert len(names) <= 16, names


def planted(kind: int = 0, group: int = 0, count: int = 3, size: int = 180_012, *places: int) -> bytes:
    return struct.pack("<4q", kind, group, count, size) + struct.pack(f"<{len(places)}q", *places)


RIGHT = (4, 60_008, 120_012, 60_000, 60_000, 60_000)
PLANTED = {
    "nothing": b"",
    "half a head": planted()[:20],
    "no cells": planted(0, 0, 0),
    "more cells than bytes": planted(0, 0, 1 << 60, 180_012, *RIGHT),
    "fewer than none": planted(0, 0, -3, 180_012, *RIGHT),
    "a negative size": planted(0, 0, 3, -1, *RIGHT),
    "a negative offset": planted(0, 0, 3, 180_012, -80, *RIGHT[1:]),
    "a negative length": planted(0, 0, 3, 180_012, *RIGHT[:5], -1),
    "a cell beyond the end": planted(0, 0, 3, 180_012, *RIGHT[:5], 60_001),
    "a sum of over 64 bits": planted(0, 0, 3, 180_012, 4, 60_008, 2**63 - 1, *RIGHT[3:]),
    "a dictionary that is not there": planted(1, 0, 3, 180_012, *RIGHT),
}


@pytest.mark.parametrize("what", PLANTED)
def test_kept_pages_are_checked_before_they_are_believed(tmp_path: Path, what: str) -> None:
    path, scratch = tmp_path / "x.parquet", Scratch.configured()
    cells = images_file(path)
    assert read_anew(path) == cells
    for stored in scratch.stored():
        data = Path(stored).read_bytes()
        head = PLANTED[what][:8] + data[8:16] + PLANTED[what][16:]  # each has its own group
        assert data.startswith(planted()[:8] + data[8:16] + planted(0, 0, 3, 180_012, *RIGHT)[16:])
        Path(stored).write_bytes(
            PLANTED[what] if len(PLANTED[what]) < 32 else head if head[0] else head + data[len(head) :]
        )
    assert read_anew(path) == cells


def test_where_row_groups_begin_is_not_believed(tmp_path: Path) -> None:
    path, scratch = tmp_path / "x.parquet", Scratch.configured()
    cells = images_file(path)
    assert read_anew(path) == cells
    (value,) = scratch.values()
    name = os.path.basename(value).removesuffix(".value")
    for starts in ([], [0], [3, 3, 3], [9, 6, 3, 0], [-1 << 63], [0, 1, 2, 3, 4, 5]):
        scratch.remove([value])
        scratch.keep(name, np.array(starts, "<i8").tobytes() + b"\0" * (len(starts) == 1))
        assert read_anew(path) == cells


def test_pages_that_a_crash_may_have_damaged_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not flushed to the disk, so those of another boot do not count. Few are open at a time."""
    cells, path = [np.random.default_rng(i).bytes(200_000) for i in range(6)], tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": cells}), path, row_group_size=1)
    monkeypatch.setattr(parquet_pages, "_FILES", BoundedCache(2))
    for boot in ("before the crash", "after it"):
        monkeypatch.setattr(parquet_pages, "_boot", lambda boot=boot: boot)
        form, extent = parse_form("parquet/0"), Extent(DATA.open(str(path)), 0, 0)
        parquet_pages._CELLS.forget()
        parquet_pages._FILES.forget()
        for _ in range(2):
            contents = [form.content(extent, pack_ordinal(row), LIMITS) for row in range(6)]
            assert [bytes(content.read(0, content.size)) for content in contents] == cells
        assert len(parquet_pages._FILES.items()) == 2
        for stored in Scratch.configured().stored():
            Path(stored).write_bytes(bytes(os.path.getsize(stored)))
    assert len(Scratch.configured().stored()) == 12
