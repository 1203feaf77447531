"""Damaged Parquet files: each value is that of pyarrow, or there is a FormatError. No read is outside the file."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_files import nested_table, opened, written

from touchfs.core.errors import FormatError
from touchfs.limits import Limits

TABLE = nested_table(50)
LIMITS = Limits(decoded=10**8)
FILES = {
    "plain": written(TABLE, ("1.0", False, False)),
    "index": written(TABLE, ("1.0", True, True)),
    "v2": written(TABLE, ("2.0", False, True), "snappy"),
    "zstd": written(TABLE, ("2.0", True, False), "zstd", column_encoding={"name": "DELTA_BYTE_ARRAY"}),
}
BYTES = [(1,), (2,), (4, 0), (4, 1)]
# A damaged file may say that it has more.
ROWS_MAX = 10_000

Found = dict[tuple[int, str], list[Any]]


def walk(data: bytes) -> Found:
    """All that is read without an error: the values of columns of row groups. The file itself must open."""
    file, found = opened(data, LIMITS), {}
    for group in range(file.batches):
        first, stop = (int(row) for row in file.starts[group : group + 2])
        if stop - first > ROWS_MAX:
            continue
        for path in BYTES:
            try:
                check_ranges(data, file, path, group)
                file.validity(path, group, full=True)
            except FormatError as error:
                assert error.offset is None or 0 <= error.offset <= len(data)
        for name in file.schema.names:
            try:
                found[group, name] = file.read_batch(group, [name]).column(0).to_pylist()
            except (FormatError, UnicodeDecodeError):
                continue
        try:
            assert len(file.json_rows(first, stop - first)) == stop - first
        except FormatError:
            continue
    return found


def check_ranges(data: bytes, file: Any, path: tuple[int, ...], group: int) -> None:
    """Ranges are in the file, and have the cells that are decoded."""
    ranges = file.cell_ranges(path, group)
    if ranges is None:
        return
    assert (ranges.offsets >= 0).all() and (ranges.lengths >= 0).all()
    assert (ranges.offsets + ranges.lengths <= len(data)).all()
    rows = zip(ranges.offsets.tolist(), ranges.lengths.tolist(), ranges.valid.tolist(), strict=True)
    cells = [data[offset : offset + length] if is_valid else None for offset, length, is_valid in rows]
    try:
        decoded = file.cells(path, range(int(file.starts[group]), int(file.starts[group + 1])))
    except FormatError:
        return  # text that is not UTF-8
    assert cells == decoded


def of_pyarrow(data: bytes, group: int, name: str) -> list[Any] | None:
    """The values that pyarrow reads; None if it reads none, or not as many as the row group has."""
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        found = file.read_row_group(group, columns=[name])
        found.validate(full=True)
        rows = file.metadata.row_group(group).num_rows
        return found.column(0).to_pylist() if len(found) == rows and found.num_columns == 1 else None
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError):
        return None


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=settings().max_examples // 3)
@given(
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3),
    in_footer=st.booleans(),
)
def test_changed_bytes(name: str, changes: list[tuple[float, int]], in_footer: bool) -> None:
    data = bytearray(FILES[name])
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little") if in_footer else 0
    for place, byte in changes:
        data[start + int(place * (len(data) - start))] = byte
    try:
        found = walk(bytes(data))
    except FormatError:
        return
    for (group, column), values in found.items():
        theirs = of_pyarrow(bytes(data), group, column)
        assert theirs is None or str(theirs) == str(values)


@pytest.mark.parametrize("name", FILES)
def test_undamaged(name: str) -> None:
    found = walk(FILES[name])
    assert len(found) == 2 * TABLE.num_columns
    for column in TABLE.schema.names:
        assert found[0, column] + found[1, column] == TABLE[column].to_pylist()


def test_a_file_that_is_cut_while_it_is_read() -> None:
    data = FILES["plain"]
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    zeros = b"PAR1" + bytes(footer - 4) + data[footer:]
    assert walk(zeros) == {}


def test_an_offset_index_that_lies() -> None:
    data = FILES["index"]
    file = opened(data)
    start, size = file._pages.chunk(file._footer.schema.leaves[1], 0).index or (0, 0)
    for place in range(start, start + size):
        for byte in (0, 2, 0xFF):
            changed = bytearray(data)
            changed[place] = byte
            try:
                found = opened(bytes(changed), LIMITS).read_batch(0, ["name"]).column(0).to_pylist()
            except FormatError:
                continue
            assert found == TABLE["name"].to_pylist()[:40]
