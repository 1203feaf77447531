"""Lance datasets as shards, as pylance wrote them in each file version: what is shown equals what pylance takes."""

from __future__ import annotations

import io
import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from tree_files import files_below

from touchfs.core.errors import ChangedError
from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset
from touchfs.registry import find
from touchfs.registry.forms import parse_form
from touchfs.shard.options import Options
from touchfs.tables.shards import lance_files, lance_rows
from touchfs.tree.tree import Tree

VERSIONS = ("2.0", "2.1", "2.2")
ROWS = 40
BLOB = {"lance-encoding:blob": "true"}
PNG = b"\x89PNG\r\n\x1a\n"


def image(row: int) -> bytes | None:
    return None if row % 9 == 4 else PNG + bytes([row]) * (40 * row)


def table(first: int = 0, count: int = ROWS) -> pa.Table:
    """Rows with bytes, bytes in a struct, vectors, and nested values."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"key{i:03d}" for i in numbers],
            "image": pa.array([image(i) for i in numbers], pa.large_binary()),
            "sound": [{"bytes": b"RIFF" + b"%d" % i, "path": f"{i}.{'wav' if i % 2 else 'flac'}"} for i in numbers],
            "vector": pa.array([[i, i + 0.5] for i in numbers], pa.list_(pa.float32(), 2)),
            "label": pa.array([i % 3 for i in numbers], pa.int64()),
            "words": [[{"text": "é", "at": i}] * (i % 3) for i in numbers],
        }
    )


def write(path: Path, rows: pa.Table, version: str = "2.2", **how: Any) -> lance.LanceDataset:
    return lance.write_dataset(rows, path, data_storage_version=version, **how)


def files_of(path: Path, options: Options | None = None, *, full: bool = False) -> dict[str, bytes]:
    """All files of the one shard, by path in it. The size of each is that of its bytes."""
    dataset = open_dataset(str(path), options=options or Options(), force=True, full=full)
    tree = Tree(dataset, [1])
    return files_below(tree, f"shards/{dataset.shards[0].name}")


def vector_file(values: list[float]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, np.float32))
    return file.getvalue()


def expected(taken: pa.Table) -> dict[str, bytes]:
    """The files of rows as pylance takes them."""
    found = {}
    for row in taken.to_pylist():
        key = row["id"]
        if row["image"] is not None:
            found[f"{key}/image.png"] = row["image"]
        found[f"{key}/sound.{row['sound']['path'].rpartition('.')[2]}"] = row["sound"]["bytes"]
        found[f"{key}/vector.npy"] = vector_file(row["vector"])
        others = {name: row[name] for name in ("id", "label", "words")} | {"sound": {"path": row["sound"]["path"]}}
        found[f"{key}/row.json"] = (
            json.dumps(
                {name: others[name] for name in taken.schema.names if name in others}, ensure_ascii=False
            ).encode()
            + b"\n"
        )
    return found


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_shown_as_pylance_takes_them(tmp_path: Path, version: str, full: bool) -> None:
    dataset = write(tmp_path / "x.lance", table(), version, max_rows_per_file=13)
    files = files_of(tmp_path / "x.lance", full=full)
    assert (b"cannot be decoded" in files.pop("ERROR.txt", b"")) == full, "the recordings of this table are none"
    assert files == expected(dataset.take(list(range(ROWS))))


@pytest.mark.parametrize("version", VERSIONS)
def test_deleted_rows_and_versions(tmp_path: Path, version: str) -> None:
    path = tmp_path / "x"
    dataset = write(path, table(), version, max_rows_per_file=13)
    dataset.delete("label = 1")
    write(path, table(ROWS, 5), version, mode="append")
    dataset = lance.dataset(path)
    assert dataset.version == 3
    left = dataset.count_rows()
    assert files_of(path) == expected(dataset.take(list(range(left))))


def test_batches_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write(tmp_path / "x", table(), max_rows_per_file=13)
    monkeypatch.setattr(lance_rows, "ROWS_AT_ONCE", 7)
    assert files_of(tmp_path / "x") == expected(dataset.take(list(range(ROWS))))


# Inline, packed and dedicated ones in version 2.2; the last one is large enough for a file of its own.
BLOBS = [b"", b"tiny", None, b"\xff\xd8\xff" + b"j" * 5000, b"p" * 70_000, b"q" * 200_000, b"d" * 6_000_000]


@pytest.mark.parametrize("version", VERSIONS)
def test_blobs_are_ranges_of_files(tmp_path: Path, version: str) -> None:
    rows = pa.table(
        {"id": [str(i) for i in range(len(BLOBS))], "blob": BLOBS},
        pa.schema([pa.field("id", pa.string()), pa.field("blob", pa.large_binary(), metadata=BLOB)]),
    )
    dataset = write(tmp_path / "x.lance", rows, version, max_rows_per_file=3)
    shown = files_of(tmp_path / "x.lance", full=True)
    blobs = {name: data for name, data in shown.items() if not name.endswith(".json")}
    assert {name.partition(".")[0]: data for name, data in blobs.items()} == {
        str(i): data for i, data in enumerate(BLOBS) if data is not None
    }
    assert "3.jpg" in shown and shown["3.json"] == b'{"id": "3"}\n'
    taken = [data for _, data in dataset.read_blobs("blob", indices=list(range(len(BLOBS))))]
    assert taken == BLOBS
    kinds = open_dataset(str(tmp_path / "x.lance")).catalog(0).kinds
    sources = {kind.source.rpartition(".")[2] for kind in kinds if kind.form == "bytes"}
    assert sources == ({"lance", "blob"} if version == "2.2" else {"lance"})


def test_blobs_in_too_many_files_are_read_through_lance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_files, "BLOB_FILES_MAX", 1)
    data = [bytes([i]) * 5_000_000 for i in range(3)]
    write(tmp_path / "x", pa.table({"blob": data}, pa.schema([pa.field("blob", pa.large_binary(), metadata=BLOB)])))
    assert sorted(files_of(tmp_path / "x").values()) == data


def blob_files(path: Path) -> list[Path]:
    return sorted((path / "data").glob("*/*.blob"))


def test_blobs_never_leave_the_dataset(tmp_path: Path) -> None:
    outside, path = tmp_path / "secret.bin", tmp_path / "x"
    outside.write_bytes(b"secret" * 1000)
    named = [lance.Blob.from_uri(f"file://{outside}"), lance.Blob.from_uri(f"file://{path}/../secret.bin"), b"inside"]
    rows = pa.table({"b": lance.blob_array(named)}, schema=pa.schema([lance.blob_field("b")]))
    write(path, rows, allow_external_blob_outside_bases=True)
    shown = files_of(path)
    assert b"secret" not in b"".join(data for name, data in shown.items() if name != "ERROR.txt")
    assert shown["00000002.bin"] == b"inside"
    assert shown["ERROR.txt"].count(b"is outside of the dataset") == 2


def test_a_link_to_outside_is_not_read(tmp_path: Path) -> None:
    path, secret = tmp_path / "x", tmp_path / "secret"
    write(path, pa.table({"b": [b"p" * 70_000]}, pa.schema([pa.field("b", pa.large_binary(), metadata=BLOB)])))
    (blob,) = blob_files(path)
    secret.write_bytes(b"s" * 70_000)
    blob.unlink()
    blob.symlink_to(secret)
    shown = files_of(path)
    assert list(shown) == ["ERROR.txt"] and os.fsencode(blob) in shown["ERROR.txt"]


def test_a_blob_that_is_cut_is_a_problem_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "x"
    rows = [b"p" * 70_000, b"tiny"]
    write(path, pa.table({"b": rows}, pa.schema([pa.field("b", pa.large_binary(), metadata=BLOB)])))
    os.truncate(blob_files(path)[0], 69_999)
    shown = files_of(path)
    assert b"which ends before" in shown.pop("ERROR.txt") and list(shown.values()) == [b"tiny"]


def test_one_column_of_files_is_flat(tmp_path: Path) -> None:
    rows = pa.table({"key": [7, 8], "image": [PNG, PNG + b"x"]})
    write(tmp_path / "x", rows)
    flat = {"7.json": b'{"key": 7}\n', "7.png": PNG, "8.json": b'{"key": 8}\n', "8.png": PNG + b"x"}
    assert files_of(tmp_path / "x") == flat
    assert set(files_of(tmp_path / "x", Options(layout="nested"))) >= {"7/row.json", "7/image.png"}
    assert set(files_of(tmp_path / "x", Options(key_column="key"))) == set(flat)


def test_a_cache_of_another_tool(tmp_path: Path) -> None:
    write(tmp_path / "x", pa.table({"image": [PNG]}))
    metadata = {"cache_format_version": 1, "format": "lance", "layout": "lance-rows", "schema_fingerprint": "x"}
    (tmp_path / "x" / "_metadata.json").write_text(json.dumps(metadata | {"num_rows": 1}))
    assert files_of(tmp_path / "x") == {"00000000.png": PNG}
    (tmp_path / "x" / "_metadata.json").write_text(json.dumps(metadata | {"num_rows": 2}))
    assert b"it has 1 rows, and _metadata.json says 2" in files_of(tmp_path / "x")["ERROR.txt"]


def shards(source: Path) -> list[str]:
    return [os.path.relpath(path, source) for path in find.find_shards(str(source))]


def test_datasets_are_found(tmp_path: Path) -> None:
    for name in ("a.lance", "b"):
        write(tmp_path / name, table(0, 2))
    assert shards(tmp_path) == ["a.lance", "b"] and shards(tmp_path / "b") == ["."]
    dataset = open_dataset(str(tmp_path))
    assert [shard.name for shard in dataset.shards] == ["a", "b"] and dataset.samples == 4
    assert dataset.facts()["kind"] == "Lance dataset"


def garbage(path: Path) -> None:
    manifest = next((path / "_versions").glob("*.manifest"))
    manifest.write_bytes(b"\xff" * 999)


def cut(path: Path) -> None:
    manifest = next((path / "_versions").glob("*.manifest"))
    os.truncate(manifest, 100)


def no_versions(path: Path) -> None:
    shutil.rmtree(path / "_versions")


def no_data(path: Path) -> None:
    shutil.rmtree(path / "data")


def cut_data(path: Path) -> None:
    for file in (path / "data").glob("*.lance"):
        os.truncate(file, 60)


@pytest.mark.parametrize("damage", [garbage, cut, no_versions, no_data, cut_data])
def test_a_damaged_dataset_is_an_error_of_its_own(tmp_path: Path, damage: Any) -> None:
    write(tmp_path / "bad.lance", table(0, 2))
    write(tmp_path / "good.lance", table(0, 2))
    damage(tmp_path / "bad.lance")
    dataset: Dataset = open_dataset(str(tmp_path))
    assert [shard.name for shard in dataset.shards] == ["bad", "good"]
    assert dataset.shards[0].report and not dataset.shards[1].report and dataset.samples == 2
    assert "Traceback" not in dataset.shards[0].report


def test_a_new_version_is_a_changed_shard(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, table(0, 2))
    before = open_dataset(str(path))
    old = Tree(before, [1])
    write(path, table(2, 2), mode="append")
    assert old.content(old.resolve("shards/x/key001/image.png").inode).size == 48
    after = open_dataset(str(path))
    assert (before.samples, after.samples) == (2, 4)
    lance.dataset(path).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    gone = Tree(before, [1])
    with pytest.raises(ChangedError):
        gone.content(gone.resolve("shards/x/key001/image.png").inode)


def test_forms_are_read_back() -> None:
    for text in ("lance/3", "lance/3.0", "lance/0/npy/<f4/2", "lance-row", "lance-row/1/2.0", "lance-video/2/webp"):
        assert str(parse_form(text)) == text
