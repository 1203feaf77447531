"""`extents.parquet`: ranges of stored files, which others read without touchfs."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import google_crc32c
import numpy as np
import pyarrow.parquet as pq
import pytest
from every_kind import OPTIONS
from range_server import range_server
from tars import write_tar

import touchfs
from touchfs.core.errors import FormatError
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.lists.extents import open_extents
from touchfs.shard.options import Options
from touchfs.source.scratch.store import Scratch
from touchfs.verify.checksums import load_checksums

pytestmark = pytest.mark.usefixtures("scratch")

# Kinds whose files are ranges of theirs, if perhaps not all; those of others are compressed or computed.
PLAIN = {"arrow", "cache", "interleaved", "kaldi", "segments", "shar", "tar"}
PACKED = {"jsonl.gz", "tar.gz"}


def table_of(dataset: Any, checksums: Any = load_checksums) -> bytes:
    content = open_extents(dataset, checksums)
    return bytes(content.read(0, content.size))


def rows_of(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return rows


def read(row: Mapping[str, Any]) -> bytes:
    with open(row["path"], "rb") as file:
        return os.pread(file.fileno(), row["length"], row["offset"])


def test_extents_of_every_kind_are_the_files(every_kind: Path, tmp_path: Path) -> None:
    found = dict[str, int]()
    for place in sorted(every_kind.iterdir()):
        dataset = open_dataset(str(place), options=OPTIONS.get(place.name, Options()))
        data = table_of(dataset)
        rows = rows_of(data)
        expected, contents = [], []
        for sample in DatasetSamples(dataset):
            for extension in sample:
                if (place_of := sample.extent(extension)) is not None:
                    expected.append((*place_of, sample.shard, sample.key, extension, None))
                    contents.append(sample[extension])
        assert [tuple(row.values()) for row in rows] == expected, place
        assert [read(row) for row in rows] == contents, place
        (tmp_path / "extents.parquet").write_bytes(data)
        query = f"SELECT * FROM '{tmp_path}/extents.parquet'"
        assert duckdb.sql(query).fetchall() == expected, place
        found[place.name] = len(rows)
    assert {name for name in PLAIN if not found[name]} == set()
    assert {name for name in PACKED if found[name]} == set()


def test_stored_members_of_a_zip_have_extents_and_deflated_ones_not(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", b"stored", zipfile.ZIP_STORED)
        archive.writestr("b.txt", b"deflated" * 99, zipfile.ZIP_DEFLATED)
    samples = touchfs.open(tmp_path / "a.zip")
    (row,) = rows_of(table_of(open_dataset(str(tmp_path / "a.zip"))))
    assert read(row) == b"stored" and samples["a"].extent("txt") == (row["path"], row["offset"], 6)
    assert samples["b"].extent("txt") is None


def test_arrays_of_headers_and_other_computed_files_have_none(every_kind: Path) -> None:
    for sample in touchfs.open(every_kind / "touch").take(2):
        assert sample.extent("wav") is None  # its header is computed
        assert type(sample["wav"]) is bytes


def test_data_at_urls_is_named_by_them(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"a.txt": b"hello"})
    with range_server() as server:
        url = server.put("/a.tar", (tmp_path / "a.tar").read_bytes())
        (row,) = rows_of(table_of(open_dataset(f"{url}?signature=secret")))
    assert row["path"] == url
    assert (tmp_path / "a.tar").read_bytes()[row["offset"] :][: row["length"]] == b"hello"


def test_checksums_are_those_that_were_written(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"a.txt": b"hello", "b.txt": b""})
    dataset = open_dataset(str(tmp_path / "a.tar"))
    assert {row["crc32c"] for row in rows_of(table_of(dataset))} == {None}
    table = dataset.catalog(0).tables["shards"]
    sums = np.zeros(table.rows, np.uint32)
    for ordinal, data in enumerate([b"hello", b""]):
        sums[table.files(ordinal)] = google_crc32c.value(data)
    rows = rows_of(table_of(dataset, lambda shard: sums))
    assert [row["crc32c"] for row in rows] == [google_crc32c.value(read(row)) for row in rows]


def test_it_is_made_once_and_again_if_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tar(tmp_path / "a.tar", {"a.txt": b"hello"})
    dataset = open_dataset(str(tmp_path / "a.tar"))
    data = table_of(dataset)
    (stored,) = Scratch.configured().stored()
    damaged = bytearray(data)
    damaged[9] ^= 1
    Path(stored).write_bytes(bytes(damaged))
    assert table_of(dataset) == data
    monkeypatch.delattr(touchfs.lists.extents, "_write")
    assert table_of(dataset) == data


def test_a_path_that_is_not_text_is_refused(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"\xff")
    write_tar(place / "a.tar", {"a.txt": b"hello"})
    with pytest.raises(FormatError, match="its path is not UTF-8, so extents"):
        open_extents(open_dataset(str(place)), load_checksums)
