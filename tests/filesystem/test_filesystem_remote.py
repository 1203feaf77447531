"""`touchfs://` over data at URLs: chains, options of stores, and secrets in them."""

import errno
import json
import os
import pickle
import threading
import zipfile

import fsspec
import pytest
from range_server import range_server
from s3_server import SECRET, s3_server, upload
from tars import write_tar

from touchfs.core.errors import UsageError
from touchfs.filesystem import TouchFileSystem
from touchfs.filesystem.source import target_source
from touchfs.source.remote import storage_options
from touchfs.source.remote.storage_options import given_options

FILES = {f"{name}.txt": name.encode() * 1000 for name in ("x", "y")}


@pytest.fixture(autouse=True)
def _scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(storage_options, "_given", {})  # these servers are gone when other tests name the same buckets


@pytest.fixture
def tar(tmp_path):
    return write_tar(tmp_path / "data" / "one.tar", FILES)


def test_s3_with_options_of_its_own(tar, monkeypatch, tmp_path):
    with s3_server(monkeypatch) as client:
        upload(client, tar.parent, "data/set")
        settings = {"key": "somebody", "secret": SECRET, "endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name)
        with fsspec.open("touchfs://by-key/x.txt::s3://data/set", s3=settings) as file:
            assert file.read() == FILES["x.txt"]
            files = file.fs
        assert SECRET not in repr(files) + files.fsid + str(files.info("shards"))
        files = fsspec.filesystem("touchfs", fo="s3://data/set/one.tar", target_options=settings)
        assert files.cat("shards/one/y.txt") == FILES["y.txt"]
        assert pickle.loads(pickle.dumps(files)).find("shards") == ["shards/one/x.txt", "shards/one/y.txt"]
        for place, _, names in os.walk(os.environ["XDG_CACHE_HOME"]):
            for name in names:
                with open(os.path.join(place, name), "rb") as kept:
                    assert SECRET.encode() not in kept.read()


def test_http_and_a_replaced_file(tar):
    with range_server() as server:
        address = server.put("/one.tar", tar.read_bytes())
        files = fsspec.filesystem("touchfs", fo=f"{address}?signature=abc", skip_instance_cache=True)
        assert files.cat("shards/one/x.txt") == FILES["x.txt"]
        assert "abc" not in files.fsid
        with fsspec.open(f"touchfs://shards/one/y.txt::{address}") as file:
            assert file.read() == FILES["y.txt"]
        server.put("/one.tar", tar.read_bytes()[::-1], '"2"')
        changed = TouchFileSystem(address, skip_instance_cache=True)
        changed.invalidate_cache()
        with pytest.raises(OSError) as problem:
            changed.cat("shards/one/x.txt")
        assert problem.value.errno in (errno.ESTALE, errno.ENOENT)


def test_several_files_are_asked_for_at_once(tmp_path):
    contents = {f"{number}.bin": bytes([number]) * (8 << 20) for number in range(4)}
    with range_server() as server:
        address = server.put("/one.tar", write_tar(tmp_path / "one.tar", contents).read_bytes())
        files = fsspec.filesystem("touchfs", fo=address, skip_instance_cache=True)
        paths = files.find("shards")
        together = threading.Barrier(len(paths))
        server.fault = lambda: (together.wait(20), None)[1]  # no answer until all have asked
        found = files.cat_ranges(paths, 4 << 20, (4 << 20) + 9)
        server.fault = lambda: None
        assert found == [data[:9] for data in contents.values()]
        assert files.cat("shards/one/*.bin") == dict(zip(paths, contents.values(), strict=True))


def test_memory(tar):
    fsspec.filesystem("memory").put(str(tar), "/there/one.tar")
    assert fsspec.filesystem("touchfs", fo="memory://there").cat("shards/one/x.txt") == FILES["x.txt"]
    with fsspec.open("touchfs://shards/one/x.txt::memory://there/one.tar") as file:
        assert file.read(3) == b"xxx"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("bucket/a", "s3", {"anon": True}), ("s3://bucket/a", {"anon": True})),
        (("/home/a", "sftp", {"host": "h", "port": 2, "username": "u"}), ("sftp://h:2/home/a", {"username": "u"})),
        (("https://h/a.tar", "https", None), ("https://h/a.tar", {})),
        (("/a/b", "file", {}), ("/a/b", {})),
        (("s3://bucket/a", None, None), ("s3://bucket/a", {})),
    ],
)
def test_the_source_of_a_chain(arguments, expected):
    assert target_source(*arguments) == expected


def test_options_of_one_dataset_are_not_those_of_another():
    for name in ("one", "two/x.tar"):
        TouchFileSystem(f"s3://shared/{name}", target_options={"key": name}, skip_instance_cache=True)
    assert json.loads(given_options("s3://shared/one/a.tar")) == {"key": "one"}
    assert json.loads(given_options("s3://shared/two/x.tar.idx")) == {"key": "two/x.tar"}
    assert json.loads(given_options("s3://shared/two/.touchfs-index/x")) == {"key": "two/x.tar"}
    TouchFileSystem("s3://whole", target_options={"key": "whole"}, skip_instance_cache=True)
    assert json.loads(given_options("s3://whole/x")) == {"key": "whole"}
    for elsewhere in ("s3://other/one", "s3://wholesale/x"):
        assert json.loads(given_options(elsewhere)) == {}


def test_options_of_the_client_that_are_ours(tar):
    fsspec.filesystem("memory").put(str(tar), "/ours/one.tar")
    files = TouchFileSystem("memory://ours", target_options={"use_listings_cache": True}, skip_instance_cache=True)
    assert files.cat("shards/one/x.txt") == FILES["x.txt"]


def test_options_that_cannot_be_kept():
    with pytest.raises(UsageError, match="must be text, a number"):
        TouchFileSystem("s3://x/y", target_options={"session": object()}, skip_instance_cache=True)


def test_a_dataset_in_an_archive(tar, tmp_path):
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(tar, "train/one.tar")
    fsspec.filesystem("memory").put(str(archive), "/archives/all.zip")
    for place in ("memory://archives/all.zip", f"file://{archive}"):
        with fsspec.open(f"touchfs://shards/one/x.txt::zip://train::{place}") as file:
            assert file.read() == FILES["x.txt"]
    files = TouchFileSystem(f"zip://train::{archive}", skip_instance_cache=True)
    assert files.cat("shards/one/x.txt") == FILES["x.txt"]


@pytest.mark.parametrize("chain", ["tar://a.tar::/z.tar", "zip://a::zip://b.zip::/z.zip"])
def test_another_archive_in_the_chain_is_refused(chain):
    with pytest.raises(UsageError, match="of chains only a ZIP archive"):
        fsspec.open(f"touchfs://x::{chain}")
