import os
import pickle

import lance
import pyarrow as pa
import pytest

from touchfs.backend import LanceBackend
from touchfs.core.errors import ChangedError, FormatError, NotFoundError


@pytest.fixture
def path(tmp_path):
    lance.write_dataset(pa.table({"n": range(100)}), tmp_path / "d", max_rows_per_file=40)
    return tmp_path / "d"


def test_a_pickle_has_the_place_and_counts_only(path):
    backend = LanceBackend(uri=path, batch_readahead=3)
    backend.take([1, 2])
    assert len(pickle.dumps(backend)) < 700
    assert pickle.loads(pickle.dumps(backend)).__getstate__()["batch_readahead"] == 3


def test_the_version_is_fixed(path):
    old = LanceBackend(uri=path)
    lance.dataset(path).delete("n < 50")
    lance.write_dataset(pa.table({"n": range(1000, 1010)}), path, mode="append")
    new = LanceBackend(uri=path)
    for backend in (old, pickle.loads(pickle.dumps(old))):
        assert (backend.version, backend.num_rows, backend.get_row(0)) == (1, 100, {"n": 0})
    assert (new.version, new.num_rows, new.get_row(0), new.get_row(59)) == (3, 60, {"n": 50}, {"n": 1009})
    assert new.table.num_rows == 60
    assert [batch["n"][0].as_py() for batch in new.iter_batches([1, 2])] == [80, 1000]
    assert old.fingerprint != new.fingerprint


def test_a_version_that_is_gone(path):
    backend = LanceBackend(uri=path)
    lance.dataset(path).delete("n < 50")
    (path / "_versions" / "18446744073709551614.manifest").unlink()
    with pytest.raises(ChangedError, match="version 1 of this Lance dataset is gone"):
        backend.get_row(0)
    with pytest.raises(NotFoundError):
        LanceBackend(uri=path / "nothing")


@pytest.mark.parametrize("kind", ["absolute", "relative", "link", "inside"])
def test_a_blob_uri_stays_inside_the_dataset(tmp_path, kind):
    secret = tmp_path / "secret"
    secret.write_bytes(b"of somebody else")
    path = tmp_path / "d"
    inside = path / "beside.bin"
    uri = {
        "absolute": f"file://{secret}",
        "relative": f"file://{path}/../secret",
        "link": f"file://{path}/link",
        "inside": f"file://{inside}",
    }[kind]
    path.mkdir()
    inside.write_bytes(b"our own")
    os.symlink(secret, path / "link")
    blobs = lance.blob_array([b"inline", lance.Blob.from_uri(uri), None, os.urandom(100_000)])
    table = pa.table([blobs, pa.array(range(4))], schema=pa.schema([lance.blob_field("b"), pa.field("n", pa.int64())]))
    lance.write_dataset(table, path, data_storage_version="2.2", allow_external_blob_outside_bases=True)
    backend = LanceBackend(uri=path)
    if kind == "inside":
        assert backend.take([1, 0, 2])["b"].to_pylist() == [b"our own", b"inline", None]
        return
    for read in (
        lambda: backend.get_row(0),
        lambda: backend.take([1]),
        lambda: backend.slice(0, 1),
        lambda: next(backend.iter_batches()),
        lambda: backend.table,
    ):
        with pytest.raises(FormatError, match="a blob lies outside of the dataset"):
            read()
