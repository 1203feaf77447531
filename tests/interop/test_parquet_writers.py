"""Parquet files of other tools as shards: Hugging Face's `datasets`, DuckDB and polars write, and touchfs shows the
same rows.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import duckdb
import polars
import pyarrow.parquet as pq
import pytest
from arrow_tables import JPG, PNG
from shown import dataset_files

import touchfs
from touchfs.indexing import open_dataset

ROWS: list[dict[str, Any]] = [
    {
        "image": None if i % 5 == 4 else {"bytes": (PNG if i % 2 else JPG) + bytes([i]) * i * 50, "path": None},
        "label": i % 2,
        "words": [f"w{j}" for j in range(i % 4)],
        "turns": [{"role": "user", "size": j} for j in range(i % 3)],
    }
    for i in range(60)
]


def check(path: Path, json_of: Any, *, full: bool) -> None:
    dataset = open_dataset(str(path), full=full)
    assert not any(shard.report for shard in dataset.shards) and dataset.samples == len(ROWS)
    shown = dataset_files(dataset)
    rows: dict[str, dict[str, bytes]] = {}
    for name, data in shown.items():
        key, _, extension = name.rpartition("/")[2].partition(".")
        rows.setdefault(key, {})[extension] = data
    for i, row in enumerate(ROWS):
        found = rows[f"{i:08d}"]
        assert json.loads(found.pop("json")) == json_of(row)
        assert [*found.values()] == ([] if row["image"] is None else [row["image"]["bytes"]])
        if full and row["image"] is not None:
            assert [*found] == ["png" if i % 2 else "jpg"]


@pytest.fixture
def hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "words": datasets.List(datasets.Value("string")),
            "turns": datasets.List({"role": datasets.Value("string"), "size": datasets.Value("int32")}),
        }
    )
    path = tmp_path / "train-00000-of-00001.parquet"
    datasets.Dataset.from_list(ROWS, features=features).to_parquet(str(path), batch_size=25)
    return path


@pytest.mark.parametrize("full", [False, True])
def test_files_of_hugging_face(hugging_face: Path, full: bool) -> None:
    check(
        hugging_face,
        lambda row: {**row, "image": None if row["image"] is None else {"path": None}},
        full=full,
    )
    opened = touchfs.open(str(hugging_face), layout="flat")
    assert [sample.ordinal for sample in opened.where("label == 1")] == [*range(1, 60, 2)]


def test_labels_of_hugging_face(hugging_face: Path) -> None:
    (shard,) = open_dataset(str(hugging_face)).shards
    from touchfs.catalog.catalog import Catalog

    labels = Catalog(shard.catalog).facts.labels
    assert labels is not None and labels.names == ("cat", "dog")


@pytest.mark.parametrize("codec", ["snappy", "zstd", "uncompressed", "gzip", "lz4_raw"])
@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize("full", [False, True])
def test_files_of_duckdb(tmp_path: Path, codec: str, version: str, full: bool) -> None:
    source = tmp_path / "source.arrow.parquet"
    polars.DataFrame([{**row, "image": row["image"] and row["image"]["bytes"]} for row in ROWS]).write_parquet(source)
    path = tmp_path / "out" / "x.parquet"
    path.parent.mkdir()
    duckdb.sql(
        f"COPY (SELECT struct_pack(bytes := image, path := NULL::VARCHAR) AS image, label, words, turns, "
        f"1.25::DECIMAL(9, 2) AS price, TIMESTAMP '2024-05-06 07:08:09' AS time FROM '{source}') "
        f"TO '{path}' (FORMAT parquet, COMPRESSION {codec}, PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048)"
    )
    others = {"price": "1.25", "time": "2024-05-06T07:08:09.000000"}
    check(path, lambda row: {**row, "image": {"path": None}, **others}, full=full)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "uncompressed"])
def test_files_of_polars(tmp_path: Path, codec: Any) -> None:
    rows = [{**row, "image": row["image"] and row["image"]["bytes"], "price": Decimal("1.25")} for row in ROWS]
    path = tmp_path / "x.parquet"
    frame = polars.DataFrame(rows).with_columns(time=polars.lit(datetime.datetime(2024, 5, 6, 7, 8, 9)))
    frame.write_parquet(path, compression=codec, row_group_size=17, data_page_size=2000)
    others = {"price": "1.25", "time": "2024-05-06T07:08:09.000000"}
    check(path, lambda row: {**{k: v for k, v in row.items() if k != "image"}, **others}, full=False)
    check(path, lambda row: {**{k: v for k, v in row.items() if k != "image"}, **others}, full=True)


def test_others_read_what_convert_writes(hugging_face: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from touchfs.bulk.tables.job import pack_table
    from touchfs.bulk.tables.writers import PARQUET, TableSettings

    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    report = pack_table(str(hugging_face), str(tmp_path / "out"), TableSettings(PARQUET, batch_size=7))
    assert report.rows == 60
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(path).to_pylist() == ROWS
    assert duckdb.execute(f"SELECT count(*), sum(label) FROM '{path}'").fetchall() == [(60, 30)]
    assert polars.read_parquet(path)["label"].to_list() == [row["label"] for row in ROWS]
    loaded = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    assert loaded.features["label"].names == ["cat", "dog"]
    assert loaded.cast_column("image", datasets.Image(decode=False))[7]["image"] == ROWS[7]["image"]
