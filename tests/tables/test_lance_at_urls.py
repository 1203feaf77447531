"""Lance datasets at URLs: the same rows as from a disk, and the errors of stores. Real servers on loopback."""

import http.client
import pickle
import random
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from every_kind import files_of
from range_server import RangeServer, range_server
from variants import with_variants
from waiting import wait_until

from touchfs.caches.backends.lance_rows import LanceBackend
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, SourceTimeoutError
from touchfs.indexing import open_dataset
from touchfs.tables.lance import endpoint
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors

ROWS = 150
LARGE = random.Random(3).randbytes(3_500_000)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path_factory.mktemp("scratch")))
    with range_server() as served:
        yield served


def put(server: RangeServer, place: Path, etag: str = '"1"') -> str:
    for path in place.rglob("*"):
        if path.is_file():
            server.put(f"/{place.name}/{path.relative_to(place)}", path.read_bytes(), etag)
    return f"{server.url}/{place.name}"


def write(place: Path, version: str = "2.2", first: int = 0) -> None:
    numbers = range(first, first + ROWS)
    table = pa.table({"n": list(numbers), "text": [f"{i} " * 20 for i in numbers], "b": [b"%d" % i for i in numbers]})
    if version == "2.2":
        blobs = lance.blob_array([None if i == 9 else LARGE if i == 5 else b"blob %d" % i for i in range(ROWS)])
        table = table.append_column(lance.blob_field("blob"), blobs)
    named_by_number = version != "2.2"
    lance.write_dataset(
        table, place, data_storage_version=version, max_rows_per_file=120, enable_v2_manifest_paths=not named_by_number
    )
    lance.dataset(place).delete("n % 7 = 3")


@pytest.mark.parametrize(
    "version", with_variants(("legacy", "2.0", "2.1", "2.2"), lambda version: version in ("legacy", "2.2"))
)
def test_rows_are_those_of_the_disk(server: RangeServer, tmp_path: Path, version: str) -> None:
    write(tmp_path / "d.lance", version)
    local, remote = LanceTable(str(tmp_path / "d.lance")), LanceTable(put(server, tmp_path / "d.lance") + "/")
    assert (remote.version, remote.rows, remote.schema) == (2, local.rows, local.schema)
    wanted = [0, local.rows - 1, 7, 7, 121]
    assert remote.take(wanted) == local.take(wanted)
    again = pickle.loads(pickle.dumps(remote))
    assert again.take([3], ["text"]) == local.take([3], ["text"])
    with pytest.raises(NotFoundError, match="no column 'm'"):
        remote.take([0], ["m"])


def test_where_no_thread_starts_for_a_while_lance_asks_again(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "d.lance")
    start, refused = threading.Thread.start, 0

    def refuse_some(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name == "lance-request" and refused < 2:
            refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_some)
    remote = LanceTable(put(server, tmp_path / "d.lance"))
    assert remote.take([0], ["n"]) == LanceTable(str(tmp_path / "d.lance")).take([0], ["n"])
    assert (refused, capfd.readouterr().err) == (2, "")


def test_a_backend_has_the_same_values(server: RangeServer, tmp_path: Path) -> None:
    write(tmp_path / "d.lance")
    local, remote = LanceBackend(uri=tmp_path / "d.lance"), LanceBackend(uri=put(server, tmp_path / "d.lance"))
    assert (remote.num_rows, remote.num_shards, remote.fingerprint) == (
        local.num_rows,
        local.num_shards,
        local.fingerprint,
    )
    assert remote.table == local.table
    assert LARGE in remote.table["blob"].to_pylist()


def test_a_proxy_of_the_environment_is_not_asked(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "d.lance")
    url = put(server, tmp_path / "d.lance")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert LanceTable(url).rows == LanceTable(str(tmp_path / "d.lance")).rows


def test_another_dataset_at_the_url_is_a_change(server: RangeServer, tmp_path: Path) -> None:
    write(tmp_path / "d.lance")
    url = put(server, tmp_path / "d.lance")
    table = LanceTable(url)
    version, manifest = table.pin()
    write(tmp_path / "other" / "d.lance", first=1000)
    server.files.clear()
    put(server, tmp_path / "other" / "d.lance", '"2"')
    with pytest.raises(ChangedError):
        _ = table.rows
    with pytest.raises(ChangedError):
        _ = LanceTable(url, version, manifest).rows
    assert LanceTable(url).take([0], ["n"]).to_pydict() == {"n": [1000]}


def test_a_store_that_fails_says_why(server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "d.lance")
    table = LanceTable(put(server, tmp_path / "d.lance"))
    assert table.rows
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "1")
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "0")
    server.fault = lambda: "503"
    with pytest.raises(SourceTimeoutError):
        table.take([1])
    server.fault = lambda: None

    def taken() -> Any:
        with suppress(SourceTimeoutError):  # for a second, all that ask for the same file fail at once
            return table.take([1], ["n"]).to_pydict()

    assert wait_until(taken) == {"n": [1]}
    for path in [path for path in server.files if "/data/" in path]:
        server.put(path, server.files[path][0], '"2"')
    with pytest.raises(ChangedError):
        table.take([2])


def test_a_file_that_is_missing_is_said(server: RangeServer, tmp_path: Path) -> None:
    write(tmp_path / "d.lance")
    url = put(server, tmp_path / "d.lance")
    for path in [path for path in server.files if "/data/" in path]:
        del server.files[path]
    with pytest.raises((SourceError, FormatError), match="Lance cannot read it"):
        LanceTable(url).take([0])


def test_messages_have_no_address_of_the_endpoint() -> None:
    """ERROR.txt shows them to all who may read the mount."""
    for address in ("http://127.0.0.1:37711/", "s3://"):
        text = f"error sending request for url ({address}{'4c872bc8' * 4}/0/data/a.lance)"
        with pytest.raises(SourceError, match=r"url \(data/a.lance\)$"), lance_errors("s3://b/d.lance"):
            raise OSError(text)


def test_others_get_nothing_from_the_endpoint(server: RangeServer, tmp_path: Path) -> None:
    write(tmp_path / "d.lance")
    url = put(server, tmp_path / "d.lance")
    server.put("/beside", b"not of the dataset")
    table = LanceTable(url)
    uri, options = endpoint.address_of(url, *table.pin())
    bucket, number = uri.removeprefix("s3://").split("/")
    (manifest,) = (path.name for path in (tmp_path / "d.lance" / "_versions").glob("*3.manifest"))
    host = options["aws_endpoint"].removeprefix("http://")

    def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(host)) as connection:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    whole = (tmp_path / "d.lance" / "_versions" / manifest).read_bytes()
    name = f"_versions/{manifest}"
    assert ask(f"/{bucket}/{number}/{name}") == (200, whole)
    assert ask(f"/{bucket}/{number}/{name}", Range="bytes=3-9") == (206, whole[3:10])
    assert ask(f"/{bucket}/{number}/{name}", Range="bytes=-5") == (206, whole[-5:])
    assert ask(f"/{bucket}/{number}/{name}", Range=f"bytes={len(whole)}-")[1] == b""
    assert ask(f"/{'0' * 32}/{number}/{name}") == (403, b"")
    assert ask(f"/{bucket}/{int(number) + 1}/{name}") == (403, b"")
    assert ask(f"/{bucket}?list-type=2") == (403, b"")
    for outside in ("../beside", "%2e%2e/beside", "data/../../beside", "/beside", "http:%2f%2f127.0.0.1/beside"):
        assert ask(f"/{bucket}/{number}/{outside}")[0] in (400, 403, 404)
    assert ask(f"/{bucket}/{number}/{name}", "PUT")[0] == 501


def test_blobs_elsewhere_are_refused(server: RangeServer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of somebody else")
    blobs = lance.blob_array([b"inline", lance.Blob.from_uri(f"file://{secret}")])
    table = pa.table([blobs], schema=pa.schema([lance.blob_field("b")]))
    place = tmp_path / "d.lance"
    lance.write_dataset(table, place, data_storage_version="2.2", allow_external_blob_outside_bases=True)
    url = put(server, place)
    with pytest.raises(FormatError, match="a blob lies outside of the dataset"):
        LanceBackend(uri=url).take([0])
    dataset = open_dataset(url)
    assert "is outside of the dataset: not read" in dataset.shards[0].report


FORKING = """
import os, sys
from touchfs.indexing import open_dataset
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors
url = sys.argv[1]
assert not open_dataset(url).shards[0].report
pid = os.fork()
if not pid:
    print(LanceTable(url).take([1], ["n"]).to_pydict(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_a_fork_after_indexing_opens_it_anew(server: RangeServer, tmp_path: Path) -> None:
    """As the workers of a mount do. Indexing has used the endpoint of the process that forks."""
    write(tmp_path / "d.lance")
    run = [sys.executable, "-c", FORKING, put(server, tmp_path / "d.lance")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.stdout == "{'n': [1]}\n", done.stderr


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, pytest.param(zipfile.ZIP_DEFLATED, marks=pytest.mark.variant)]
)
def test_a_dataset_in_an_archive(server: RangeServer, tmp_path: Path, compression: int) -> None:
    place = tmp_path / "d.lance"
    write(place)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", compression) as archive:
        for path in place.rglob("*"):
            archive.write(path, path.relative_to(tmp_path))
    files, reports = files_of(place)
    assert len(files) > ROWS
    url = server.put("/all.zip", (tmp_path / "all.zip").read_bytes())
    assert files_of(f"zip://d.lance::{url}") == (files, reports)
