"""Whole columns and class labels of a Lance dataset look as those of the Arrow file with the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from arrow_tables import PNG, write_arrow
from lance_frames import write_frames

from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.tables.lance import columns as lance_columns
from touchfs.tree.tree import Tree

ROWS_AT_ONCE = 100
ROWS = 2 * ROWS_AT_ONCE + 7
OPTIONS = Options(features=json.dumps({"label": {"type": "ClassLabel", "names": ["cat", "dog", "cow"]}}))


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_columns, "ROWS_AT_ONCE", ROWS_AT_ONCE)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rows = range(ROWS)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(i) for i in range(2 * ROWS)], pa.float32()), 2)
    return pa.table(
        {
            "id": [f"{i:05d}" for i in rows],
            "image": [None if i == 5 else {"bytes": PNG, "path": f"{i}.png"} for i in rows],
            "label": pa.array([None if i == 9 else i % 3 for i in rows], pa.int64()),
            "number": pa.array(rows, pa.int32()),
            "vector": vectors,
            "tags": [None if i % 7 == 0 else [str(i)] * (i % 4) for i in rows],
        }
    )


def columns(path: Path) -> dict[str, bytes]:
    """All files below `columns/`."""
    tree = Tree(open_dataset(str(path), options=OPTIONS), [1])
    found = {}
    for name, entry, _ in tree.entries(tree.resolve("columns/rows").inode, 0):
        content = tree.content(entry.inode)
        assert entry.size in (None, content.size)
        found[name.decode()] = bytes(content.read(0, content.size))
    return found


def links(path: Path) -> dict[str, list[str]]:
    tree = Tree(open_dataset(str(path), options=OPTIONS), [1])
    found: dict[str, list[str]] = {}
    for label, entry, _ in tree.entries(tree.resolve("by-label").inode, 0):
        (shard,) = [each for _, each, _ in tree.entries(entry.inode, 0)]
        found[label.decode()] = [name.decode() for name, _, _ in tree.entries(shard.inode, 0)]
    return found


@pytest.fixture(scope="module")
def arrow(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> Path:
    return write_arrow(tmp_path_factory.mktemp("arrow") / "rows.arrow", table)


@pytest.mark.parametrize("version", [pytest.param("2.1", marks=pytest.mark.variant), "2.2"])
def test_whole_columns_are_those_of_arrow(tmp_path: Path, table: pa.Table, arrow: Path, version: Any) -> None:
    lance.write_dataset(table, tmp_path / "rows.lance", data_storage_version=version, max_rows_per_file=90)
    found = columns(tmp_path / "rows.lance")
    assert found == columns(arrow)
    assert sorted(found) == ["id.jsonl", "image.jsonl", "label.jsonl", "number.npy", "tags.jsonl", "vector.npy"]


def test_labels_are_those_of_arrow(tmp_path: Path, table: pa.Table, arrow: Path) -> None:
    lance.write_dataset(table, tmp_path / "rows.lance")
    found = links(tmp_path / "rows.lance")
    assert found == links(arrow)
    assert sorted(found) == ["cat", "cow", "dog"]
    assert sum(map(len, found.values())) == ROWS - 1  # row 9 has no label


def test_a_cache_of_frames_has_no_columns(tmp_path: Path) -> None:
    write_frames(tmp_path / "frames", [[b"one", b"two"]])
    tree = Tree(open_dataset(str(tmp_path / "frames")), [1])
    names = {name for name, _, _ in tree.entries(1, 0)}
    assert b"frames" in names
    assert b"columns" not in names
