"""The values that directories have in their names are columns of the rows, as pyarrow has them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from command import TOUCHFS
from mount.mounts import touchfs as run
from s3_server import s3_server

import touchfs
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.stream.open import open_streams
from touchfs.tables.values.partition import partitions_of

pytestmark = pytest.mark.usefixtures("own_cache")

NULL = "__HIVE_DEFAULT_PARTITION__"
DIRECTORIES = (
    ["a=1/b=x", "a=2/b=y%20z", f"a=-3/b={NULL}"],
    ["a=1", "a=x"],
    ["a=1", "a=3000000000"],
    ["a=01", "a=-0", "a=000000000000000002", "a=-2147483648"],
    ["a=1", f"a={NULL}"],
    ["a=", "a=+1", "a=1.5", "a= 1", "a=1_0", "a=-"],
    ["a=b=c", "a=%zz"],
    ["a=1/a=2"],
    ["a=1", "b=2/c=x", "plain"],
    ["a%20b=1/d/é=%C3%A9"],
    ["b=2/a=1"],
    ["=1"],
)
SOURCES = {
    "directory": lambda root: root,
    "pattern": lambda root: f"{root}/a=*/*/x.parquet",
    "braces": lambda root: f"{root}/{{a=1/b=x,a=2/b=y%20z}}/x.parquet",
}


def write(root: Path, directories: list[str], **columns: Any) -> str:
    for number, directory in enumerate(directories):
        (root / directory).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [number, number + 10]} | columns), root / directory / "x.parquet")
    return str(root)


def rows(source: Any) -> list[dict[str, Any]]:
    return sorted((sample.json() for sample in touchfs.open(source)), key=lambda row: row["x"])


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write(tmp_path / "source", ["a=1/b=x", "a=2/b=y%20z"])


@pytest.mark.parametrize("directories", DIRECTORIES, ids=lambda directories: directories[0])
def test_rows_are_those_of_pyarrow(tmp_path: Path, directories: list[str]) -> None:
    source = write(tmp_path / "source", directories)
    expected = pads.dataset(source, partitioning="hive").to_table().sort_by("x").to_pylist()
    assert rows(source) == expected


@pytest.mark.parametrize("source_of", SOURCES.values(), ids=SOURCES)
def test_every_way_to_name_a_dataset(source: str, source_of: Any) -> None:
    assert rows(source_of(source)) == rows(source)


@pytest.mark.parametrize("below", ["a=1", "a=1/b=x", "a=1/b=x/x.parquet"])
def test_the_values_of_a_directory_are_those_below_it_and_of_a_file_all(source: str, below: str) -> None:
    expected = pads.dataset(f"{source}/{below}", partitioning="hive").to_table().to_pylist()
    assert rows(f"{source}/{below}") == expected


def test_what_pyarrow_refuses() -> None:
    assert partitions_of([f"a={NULL}", "a=%FF"]) == ['{"a": null}', '{"a": "%FF"}']


def test_a_column_of_the_file_comes_first(tmp_path: Path) -> None:
    source = write(tmp_path / "source", ["a=1/b=2"], a=["own", "own"])
    assert rows(source) == [{"x": x, "a": "own", "b": 2} for x in (0, 10)]


def test_where_info_and_streams(source: str) -> None:
    samples = touchfs.open(source)
    assert [len(samples.where(text)) for text in ("a == 1", 'b == "y z"', "a > 1 and x > 1")] == [2, 2, 1]
    assert samples.to_arrow().to_pylist()[0] == {"x": 0, "a": 1, "b": "x"}
    done = subprocess.run([TOUCHFS, "info", source], capture_output=True, text=True, check=True)
    assert "columns:        x (int64), a (int32), b (utf8)\n" in done.stdout
    found = [made() for stream in open_streams(source) for _, made in stream.samples([])]
    assert sorted((sample.json() for sample in found), key=lambda row: row["x"]) == rows(source)
    for command in (["index", "--full"], ["verify"]):
        assert run(*command, source).returncode == 0


@pytest.mark.parametrize("kind", ["parquet", "arrow", "lance", "tar"])
def test_conversions_have_them(source: str, tmp_path: Path, kind: str) -> None:
    done = run("convert", source, tmp_path / "out", "--to", kind)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "out") == rows(source)
    if kind == "parquet":
        expected = pads.dataset(source, partitioning="hive").schema
        assert pads.dataset(tmp_path / "out").schema.equals(expected)


def test_an_index_of_other_values_is_not_used(source: str) -> None:
    plain = open_dataset(source, options=Options())
    assert rows(source)[0]["a"] == 1
    os.rename(f"{source}/a=2", f"{source}/a=two")
    assert {row["a"] for row in rows(source)} == {"1", "two"}
    assert DatasetSamples(open_dataset(source)).identity != DatasetSamples(plain).identity


def test_an_index_that_moved_has_the_values_of_the_new_place(source: str, tmp_path: Path) -> None:
    expected = rows(source)
    os.rename(source, tmp_path / "moved")
    assert rows(tmp_path / "moved") == expected
    assert open_dataset(str(tmp_path / "moved")).moved_from == source
    os.rename(tmp_path / "moved/a=1/b=x/x.parquet", tmp_path / "x.parquet")
    assert rows(tmp_path / "x.parquet") == [{"x": 0}, {"x": 10}]
    (tmp_path / "other/c=5").mkdir(parents=True)
    os.rename(tmp_path / "x.parquet", tmp_path / "other/c=5/x.parquet")
    assert rows(tmp_path / "other") == [{"x": 0, "c": 5}, {"x": 10, "c": 5}]


def test_a_published_index_is_of_its_values(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("index", source, "--output", tmp_path / "published")
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("TOUCHFS_INDEX", str(tmp_path / "published"))
    os.mkdir(f"{source}/a=three")
    os.rename(f"{source}/a=2/b=y%20z", f"{source}/a=three/b=y%20z")
    assert {row["a"] for row in rows(source)} == {"1", "three"}


def test_arrow_and_lance(tmp_path: Path) -> None:
    table = pa.table({"x": [0, 10], "jpg": [b"\xff\xd8\xff", None]})
    (tmp_path / "source/a=1").mkdir(parents=True)
    with pa.ipc.new_file(tmp_path / "source/a=1/x.arrow", table.schema) as writer:
        writer.write_table(table)
    lance.write_dataset(table, tmp_path / "source/a=2/y.lance")
    assert [json.dumps(sample.json()) for sample in touchfs.open(tmp_path / "source")] == [
        f'{{"x": {x}, "a": {a}}}' for a in (1, 2) for x in (0, 10)
    ]


def test_a_table_of_files_only_has_rows_with_values(tmp_path: Path) -> None:
    source = write(tmp_path / "source", ["a=1"])
    pq.write_table(pa.table({"jpg": [b"\xff\xd8\xff"]}), Path(source) / "a=1/x.parquet")
    (sample,) = touchfs.open(source)
    assert sample.json() == {"a": 1}
    assert set(sample) == {"jpg", "json"}


def test_in_a_store(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(monkeypatch) as client:
        client.put(source, "data/deep", recursive=True)
        assert rows("s3://data/deep") == rows("s3://data/deep/a=*/*/*.parquet") == rows(source)
