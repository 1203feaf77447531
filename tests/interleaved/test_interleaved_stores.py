"""Readers of interleaved samples over HTTP, and of files of several stores in one partition."""

import json

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interleaved_tars import WdsSample, make_image, make_wds_tar, mint_sample
from items_http import serving

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, NotFoundError, SourceError
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader


@pytest.fixture
def served():
    with serving() as server:
        yield server


def local_tar(place, name):
    image = make_image("png", seed=len(name))
    return make_wds_tar(place / name, [mint_sample(1), WdsSample(name, [], [f"{name}.png"], {f"{name}.png": image})])


@pytest.mark.parametrize("parameters", [{}, {"max_batch_bytes": 1500}])
def test_one_partition_of_three_stores(tmp_path, served, parameters):
    """Rows and images of a local file, one in memory, and a compressed one over HTTP."""
    paths = [local_tar(tmp_path, name) for name in ("a.tar", "b.tar", "c.tar.gz")]
    urls = [str(paths[0]), "memory:///interleaved-stores/b.tar", f"{served.url}/c.tar.gz"]
    with fsspec.open(urls[1], "wb") as file:
        file.write(paths[1].read_bytes())
    served.files["/c.tar.gz"] = paths[2].read_bytes()
    tables = []
    for places in (urls, [str(path) for path in paths]):
        reader = InterleavedWebdatasetReader(places, materialize_on_read=True, files_per_partition=3, **parameters)
        table = pa.concat_tables([batch.table for batch in reader.batches(ItemPartition(tuple(places)))])
        tables.append(table.to_pylist())
    assert not any(row["materialize_error"] for row in tables[0])
    names = dict(zip(map(str, paths), urls, strict=True))
    for row in tables[1]:
        ref = json.loads(row["source_ref"])
        row["source_ref"] = json.dumps(ref | {"path": names[ref["path"]]})
    assert tables[0] == tables[1]


def test_partitions_over_http(tmp_path, served):
    served.files["/a.tar"] = local_tar(tmp_path, "a.tar").read_bytes()
    url = f"{served.url}/a.tar"
    (partition,) = InterleavedWebdatasetReader([url]).partitions()
    assert (partition.files, partition.size) == ((url,), len(served.files["/a.tar"]))
    with pytest.raises(NotFoundError):
        InterleavedWebdatasetReader(f"{served.url}/missing.tar").partitions()
    reader = InterleavedWebdatasetReader([url])
    del served.files["/a.tar"]
    fsspec.filesystem("http").dircache.clear()
    with pytest.raises((NotFoundError, SourceError)) as error:
        list(reader.batches(partition))
    assert error.value.path == url


def test_parquet_over_http(tmp_path, served):
    table = pa.table({"sample_id": ["a", "b"], "position": pa.array([0, 0], pa.int32()), "modality": ["text"] * 2})
    pq.write_table(table, tmp_path / "x.parquet")
    served.files["/x.parquet"] = (tmp_path / "x.parquet").read_bytes()
    (batch,) = InterleavedParquetReader(f"{served.url}/x.parquet")
    assert batch.table["sample_id"].to_pylist() == ["a", "b"]


def test_secrets_go_only_to_the_store_that_they_are_for(tmp_path):
    path = str(local_tar(tmp_path, "a.tar"))
    options = {"headers": {"Token": "hunter2"}}
    reader = InterleavedWebdatasetReader([path], read_kwargs={"storage_options": options})
    (batch,) = reader
    assert batch.storage_options == {}
    assert "hunter2" not in repr(reader) + json.dumps(reader.describe())
    stores = ["https://one.example/a.tar", "https://two.example/b.tar", path]
    with pytest.raises(ArgumentValueError, match="several stores"):
        InterleavedWebdatasetReader(stores, read_kwargs={"storage_options": options})
    given = {"https://one.example": {"outer": 1}, "https://one.example/deep": {"inner": 1}}
    found = InterleavedWebdatasetReader(stores, read_kwargs={"storage_options": given}).options
    assert found.of(stores[0]) == {"outer": 1}
    assert found.of("https://one.example/deep/b.tar") == {"inner": 1}
    assert found.of("https://one.example.evil/b.tar") == found.of(stores[1]) == found.of(path) == {}
    with pytest.raises(ArgumentTypeError):
        InterleavedWebdatasetReader(stores, read_kwargs={"storage_options": {"https://one.example": 3}})
    with pytest.raises(ArgumentValueError, match="chain of URLs"):
        InterleavedWebdatasetReader("simplecache::https://one.example/a.tar")


def test_a_url_of_a_local_file_is_its_path(tmp_path):
    path = local_tar(tmp_path, "a.tar")
    (batch,) = InterleavedWebdatasetReader(path.as_uri(), materialize_on_read=True)
    assert batch.source_files == (str(path),)
    assert not any(batch.table["materialize_error"].to_pylist())


def test_options_go_with_the_rows_of_remote_files(tmp_path, served):
    served.files["/a.tar"] = local_tar(tmp_path, "a.tar").read_bytes()
    options = {"headers": {"Token": "secret"}}
    url = f"{served.url}/a.tar"
    (batch,) = InterleavedWebdatasetReader(url, read_kwargs={"storage_options": options}, materialize_on_read=True)
    assert batch.storage_options == {url: options}
    assert not any(batch.table["materialize_error"].to_pylist())
    assert all(headers.get("Token") == "secret" for _, _, headers in served.asked)


def test_a_compressed_tar_that_changed_on_its_server_is_not_that_of_before(tmp_path, served):
    """What it was is kept only if the server says when it changes."""
    url = f"{served.url}/a.tar.gz"
    paths = [make_wds_tar(tmp_path / str(i) / "a.tar.gz", [WdsSample(f"s{i}", ["x"])]) for i in range(2)]
    for headers in ({}, {"ETag": '"1{}"'}, {"ETag": '"2{}"'}, {"Last-Modified": "Sun, 22 Nov 2026 10:00:0{} GMT"}):
        found = []
        for i, path in enumerate(paths):
            served.files["/a.tar.gz"] = path.read_bytes()
            served.headers = {name: value.format(i) for name, value in headers.items()}
            (batch,) = InterleavedWebdatasetReader(url)
            found.append(batch.table["sample_id"][0].as_py())
        assert found == ["s0", "s1"]
