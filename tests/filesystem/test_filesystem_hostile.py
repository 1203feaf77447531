"""`touchfs://` where names, options and stores are not as one hopes, and where it is used for long."""

import concurrent.futures
import errno
import os
import pickle
import subprocess
import threading

import fsspec
import pytest
from cli.speech import SPEECH
from command import TOUCHFS
from range_server import range_server
from tars import write_tar

from touchfs.filesystem import TouchFileSystem


@pytest.fixture(autouse=True)
def _scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "0")


def test_names_with_what_urls_are_made_of(tmp_path):
    """Each listed name leads to its own bytes: `k.txt::x.txt` is not `k.txt`."""
    names = [
        "k.txt",
        "k.txt::x.txt",
        "k.txt::s3:/bucket.txt",
        "h#ash?q=1.txt",
        "touchfs:/x.txt",
        "a[1].txt",
        "st*r.txt",
        "%2Fx.txt",
    ]
    write_tar(tmp_path / "one.tar", {name: name.encode() for name in names})
    files = TouchFileSystem(tmp_path)
    for view in ("shards", "by-key"):
        listed = files.find(view)
        assert sorted(files.cat_file(path) for path in listed) == sorted(name.encode() for name in names)
        assert [files.info(path)["name"] for path in listed] == listed


def test_an_open_file_is_pickled_and_read_at_once(tmp_path):
    data = os.urandom(1 << 20)
    write_tar(tmp_path / "one.tar", {"a.bin": data})
    with TouchFileSystem(tmp_path).open("shards/one/a.bin", block_size=-1) as file:
        file.seek(7)
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == data[7:]
        assert file.read() == data[7:]
        assert file.seek(1 << 40) and file.read() == b""


def test_an_option_that_is_unknown(tmp_path):
    with pytest.raises(TypeError, match=r"no option 'anon'.*target_options"):
        fsspec.filesystem("touchfs", fo=str(tmp_path), anon=True)
    fsspec.filesystem("touchfs", fo=str(tmp_path), use_listings_cache=False, skip_instance_cache=True)
    with pytest.raises(ValueError, match="name a dataset"):
        fsspec.filesystem("touchfs")


def test_no_pattern_hides_that_there_is_no_dataset(tmp_path):
    files = fsspec.filesystem("touchfs", fo=str(tmp_path / "nothing"))
    for call in (files.glob, files.find, lambda path: list(files.walk(path))):
        with pytest.raises(FileNotFoundError, match="nothing"):
            call("shards/*" if call == files.glob else "shards")


def test_a_cache_of_fsspec_sees_another_etag(tmp_path):
    with range_server() as server:
        tar = write_tar(tmp_path / "one.tar", {"a.txt": b"old"})
        address = server.put("/one.tar", tar.read_bytes(), '"1"')
        url = f"filecache::touchfs://shards/one/a.txt::{address}"
        options = {"cache_storage": str(tmp_path / "cache"), "check_files": True}
        with fsspec.open(url, filecache=options) as file:
            assert file.read() == b"old"
        server.put("/one.tar", tar.read_bytes().replace(b"old", b"new"), '"2"')
        TouchFileSystem(address).invalidate_cache()  # of all filesystems of this dataset
        with fsspec.open(url, filecache=options) as file:
            assert file.read() == b"new"


def test_threads_share_one_tree(tmp_path):
    """fsspec makes a filesystem for each thread."""
    write_tar(tmp_path / "one.tar", {"a.txt": b"a"})
    together = threading.Barrier(8)

    def opened(_: int) -> object:
        together.wait()
        files = fsspec.filesystem("touchfs", fo=str(tmp_path))
        assert files.cat("shards/one/a.txt") == b"a"
        together.wait()
        return files._shared.get().current()

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert len({id(tree) for tree in threads.map(opened, range(8))}) == 1


def test_more_plans_than_inode_numbers_have(tmp_path):
    place = tmp_path / "shards"
    command = [TOUCHFS, "pack", "touchnet", SPEECH / "speech.jsonl", place, "--jobs", "1"]
    subprocess.run(command, check=True, capture_output=True)
    files = TouchFileSystem(place)
    expected = len(files.find("merged/max=1"))
    assert expected
    for seconds in range(2, 1200):
        assert files.isdir(f"merged/max={seconds}")
    assert len(files.find("merged/max=1")) == expected
    assert files.find("merged/max=1199")


def test_a_recording_that_cannot_be_read_is_listed(tmp_path):
    write_tar(tmp_path / "one.tar", {"a.flac": b"fLaC" + bytes(100), "b.txt": b"b"})
    files = TouchFileSystem(tmp_path)
    assert "shards/one/b.txt" in files.find("")
    assert [(each["name"], each["size"]) for each in files.ls("slices/all/one")] == [("slices/all/one/a.wav", None)]
    with pytest.raises(OSError) as refused:
        files.cat_file("slices/all/one/a.wav")
    assert refused.value.errno == errno.EIO
