"""Libraries that know fsspec read the files of a dataset through it."""

import io
import json

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import soundfile
from tars import write_tar
from wav_files import wav_of

ROWS = [{"id": n, "text": f"text {n}"} for n in range(50)]
SOUND = (np.sin(np.arange(4000) / 9) * 9000).astype(np.int16)


def parquet(rows: list[dict[str, object]]) -> bytes:
    buffer = io.BytesIO()
    pa.parquet.write_table(pa.Table.from_pylist(rows), buffer, row_group_size=10)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    place = tmp_path_factory.mktemp("tools")
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    csv = "".join(["id,text\n", *(f"{row['id']},{row['text']}\n" for row in ROWS)]).encode()
    files = {"t/a.parquet": parquet(ROWS[:25]), "t/b.parquet": parquet(ROWS[25:])}
    write_tar(place / "one.tar", {"lines.json": lines, "rows.csv": csv, "talk.wav": wav_of(SOUND), **files})
    return place


@pytest.fixture(scope="module")
def url(source):
    return lambda path: f"touchfs://shards/one/{path}::{source}"


def test_pandas(url):
    import pandas  # as other peers, only here: each process of the tests imports all files of tests

    assert pandas.read_json(url("lines.json"), lines=True).to_dict("records") == ROWS
    assert pandas.read_csv(url("rows.csv")).to_dict("records") == ROWS
    assert pandas.read_parquet(url("t/a.parquet")).to_dict("records") == ROWS[:25]


def test_pyarrow(source):

    files = fsspec.filesystem("touchfs", fo=str(source))
    table = pa.dataset.dataset("shards/one/t", filesystem=files, format="parquet").to_table(
        filter=pa.dataset.field("id") > 20
    )
    assert table.to_pylist() == ROWS[21:]


def test_soundfile(url):
    with fsspec.open(url("talk.wav")) as file:
        samples, rate = soundfile.read(file, dtype="int16", start=1000, stop=2000)
    assert rate == 8000
    assert (samples == SOUND[1000:2000]).all()


def test_polars(url):
    import polars

    with fsspec.open(url("t/b.parquet")) as file:
        assert polars.read_parquet(file).to_dicts() == ROWS[25:]


def test_duckdb(source):
    import duckdb

    with duckdb.connect() as connection:
        connection.register_filesystem(fsspec.filesystem("touchfs", fo=str(source)))
        assert connection.sql("SELECT count(*), sum(id) FROM 'touchfs://shards/one/t/*.parquet'").fetchall() == [
            (50, 1225)
        ]
        assert connection.sql("SELECT text FROM read_csv('touchfs://shards/one/rows.csv') WHERE id = 7").fetchall() == [
            ("text 7",)
        ]


def test_datasets(url, tmp_path):
    import datasets

    loaded = datasets.load_dataset("json", data_files=url("lines.json"), cache_dir=str(tmp_path), split="train")
    assert loaded.to_list() == ROWS
    streamed = datasets.load_dataset(
        "parquet",
        data_files=[url("t/a.parquet"), url("t/b.parquet")],
        split="train",
        streaming=True,
        cache_dir=str(tmp_path),
    )
    assert list(streamed) == ROWS
