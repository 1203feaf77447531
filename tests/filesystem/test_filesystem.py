"""`touchfs://` over a local dataset: everything that fsspec offers for reading, and nothing that writes."""

import errno
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from tars import write_tar

from touchfs.core.errors import SourceError
from touchfs.filesystem import TouchFileSystem

ROOT = Path(__file__).parents[2]
FILES = {f"{folder}/{name}.{end}": f"{folder} {name} {end}".encode() * 50
         for folder in ("a", "b") for name in ("x", "y z", "ü") for end in ("txt", "bin")}  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    place = tmp_path_factory.mktemp("dataset")
    write_tar(place / "one.tar", FILES)
    return place


@pytest.fixture
def files(dataset):
    return TouchFileSystem(dataset)


def test_it_is_known_to_fsspec(dataset, files):
    assert fsspec.filesystem("touchfs", fo=str(dataset)).ls("shards", detail=False) == ["shards/one"]
    with fsspec.open(f"touchfs://shards/one/a/x.txt::{dataset}") as file:
        assert file.read() == FILES["a/x.txt"]
    with fsspec.open(f"touchfs://by-key/a%2Fx.txt::file://{dataset}", "rt") as file:
        assert file.read() == FILES["a/x.txt"].decode()
    opened = fsspec.open_files(f"touchfs://shards/one/a/*.txt::{dataset}")
    assert [each.path for each in opened] == [f"shards/one/a/{name}.txt" for name in ("x", "y z", "ü")]


def test_listing_and_looking(files):
    assert {"by-key", "manifests", "shards"} <= set(files.ls("", detail=False))
    assert files.ls("/shards/one/", detail=False) == ["shards/one/a", "shards/one/b"]
    (info,) = files.ls("shards/one/a/x.txt")
    assert info == files.info("touchfs://shards/one/a/x.txt")
    assert (info["name"], info["type"], info["size"]) == ("shards/one/a/x.txt", "file", len(FILES["a/x.txt"]))
    assert all(each == files.info(each["name"]) for each in files.ls("shards/one/a"))
    assert files.info("shards/one")["type"] == "directory"
    assert files.isdir("shards/one/a") and files.isfile("shards/one/a/ü.bin")
    assert files.find("shards") == sorted(f"shards/one/{name}" for name in FILES)
    assert files.glob("shards/*/?/x.*") == sorted(f"shards/one/{name}" for name in FILES if "x." in name)
    assert [(path, sorted(below)) for path, below, _ in files.walk("shards")] == [
        ("shards", ["one"]),
        ("shards/one", ["a", "b"]),
        ("shards/one/a", []),
        ("shards/one/b", []),
    ]
    assert files.du("shards") == sum(map(len, FILES.values()))
    assert files.modified("shards/one/a/x.txt").timestamp() == pytest.approx(files.info("shards/one")["mtime"])
    assert files.checksum("shards/one/a/x.txt") != files.checksum("shards/one/b/x.txt")


def test_links_are_files(files):
    assert files.info("by-key/a%2Fx.txt")["size"] == len(FILES["a/x.txt"])
    assert files.cat("by-key/a%2Fx.txt") == FILES["a/x.txt"]
    assert {each["type"] for each in files.ls("by-key")} == {"file"}


def test_reading(files):
    path, data = "shards/one/b/y z.bin", FILES["b/y z.bin"]
    assert files.cat_file(path) == files.read_bytes(path) == data
    assert files.cat_file(path, 3, 9) == data[3:9]
    assert files.cat_file(path, -7) == data[-7:]
    assert files.cat_file(path, 5, -5) == data[5:-5]
    assert files.cat_file(path, 10**6, 10**7) == b""
    assert files.head(path, 6) == data[:6] and files.tail(path, 6) == data[-6:]
    assert files.read_block(path, 10, 20) == data[10:30]
    with files.open(path) as file:
        assert file.size == len(data)
        assert (file.seek(-4, os.SEEK_END), file.read()) == (len(data) - 4, data[-4:])
        assert (file.seek(2), file.read(3), file.tell()) == (2, data[2:5], 5)
        with pytest.raises(ValueError):
            file.seek(-1)
    with files.open(path, compression=None, block_size=7) as file:
        assert b"".join(iter(lambda: file.read(5), b"")) == data


def test_several_files(files):
    path, data = "shards/one/b/y z.bin", FILES["b/y z.bin"]
    assert files.cat(["shards/one/a/x.txt", path]) == {"shards/one/a/x.txt": FILES["a/x.txt"], path: data}
    assert files.cat(["shards/one/a/x.txt", path], start=1, end=3)[path] == data[1:3]
    assert files.cat_ranges([path] * 3, [0, 4, 100], [4, 8, 120]) == [data[:4], data[4:8], data[100:120]]
    assert files.cat_ranges([path] * 2, 0, 3) == [data[:3]] * 2
    assert files.cat("shards/one", recursive=True) == {name: files.cat(name) for name in files.find("shards/one")}


def test_errors_among_several_files(files):
    good, missing = "shards/one/a/x.txt", "shards/one/missing"
    with pytest.raises(FileNotFoundError):
        files.cat([good, missing])
    assert files.cat([good, missing], on_error="omit") == {good: FILES["a/x.txt"]}
    found = files.cat([good, missing], on_error="return")
    assert found[good] == FILES["a/x.txt"]
    assert isinstance(found[missing], FileNotFoundError)
    assert isinstance(files.cat_ranges([missing], 0, 3)[0], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        files.cat_ranges([missing, good], 0, 3, on_error="raise")
    with pytest.raises(ValueError):
        files.cat_ranges([good, good], [0], [3, 4])


def test_what_is_not_there(files):
    assert not files.exists("shards/two")
    for call in (files.info, files.ls, files.cat_file, files.open):
        with pytest.raises(FileNotFoundError, match="there is no 'two'"):
            call("shards/two/x")
    with pytest.raises(IsADirectoryError):
        files.open("shards/one")
    with pytest.raises(FileNotFoundError):
        files.info("../etc/passwd")


def test_nothing_is_written(files, tmp_path):
    (local := tmp_path / "local").write_bytes(b"x")
    calls = [
        lambda: files.open("shards/new", "wb"),
        lambda: files.open("shards/one/a/x.txt", "ab"),
        lambda: files.mkdir("new"),
        lambda: files.makedirs("new/one", exist_ok=True),
        lambda: files.rmdir("shards"),
        lambda: files.rm("shards/one/a/x.txt"),
        lambda: files.rm_file("shards/one/a/x.txt"),
        lambda: files.delete("shards", recursive=True),
        lambda: files.mv("shards/one/a/x.txt", "y"),
        lambda: files.rename("shards/one/a/x.txt", "y"),
        lambda: files.cp_file("shards/one/a/x.txt", "y"),
        lambda: files.copy("shards/one/a/x.txt", "y"),
        lambda: files.put(str(local), "y"),
        lambda: files.put_file(str(local), "y"),
        lambda: files.upload(str(local), "y"),
        lambda: files.pipe("y", b"x"),
        lambda: files.pipe_file("y", b"x"),
        lambda: files.write_bytes("y", b"x"),
        lambda: files.write_text("y", "x"),
        lambda: files.touch("y"),
        files.start_transaction,
        files.transaction.__enter__,
    ]
    for call in calls:
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.EROFS


def test_a_dataset_that_changes(tmp_path):
    write_tar(tmp_path / "one.tar", {"a.txt": b"old"})
    files = TouchFileSystem(tmp_path, skip_instance_cache=True)
    assert files.cat("shards/one/a.txt") == b"old"
    write_tar(tmp_path / "one.tar", {"a.txt": b"newer"})
    write_tar(tmp_path / "two.tar", {"b.txt": b"two"})
    files.invalidate_cache()
    assert files.cat("shards/one/a.txt") == b"newer"
    assert files.cat("shards/two/b.txt") == b"two"


def test_a_file_that_was_replaced_is_stale(tmp_path):
    write_tar(tmp_path / "one.tar", {"a.txt": b"old"})
    files = TouchFileSystem(tmp_path, skip_instance_cache=True)
    files.ls("shards/one")
    write_tar(tmp_path / "one.tar", {"a.txt": b"newer" * 1000})
    with pytest.raises(OSError) as stale:
        files.cat("shards/one/a.txt")
    assert stale.value.errno == errno.ESTALE


def test_no_dataset(tmp_path):
    with pytest.raises(FileNotFoundError):
        TouchFileSystem(tmp_path / "nothing").ls("")
    with pytest.raises(Exception, match="name a dataset: touchfs://PATH::DATASET"):
        fsspec.filesystem("touchfs")


def test_pickles(dataset, files):
    again = pickle.loads(pickle.dumps(files))
    assert again.cat("shards/one/a/x.txt") == FILES["a/x.txt"]
    with files.open("shards/one/a/x.txt") as file:
        file.seek(5)
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == FILES["a/x.txt"][5:]
    code = f"import pickle; print(len(pickle.loads({pickle.dumps(files)!r}).find('shards')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(FILES)}\n"


def test_forks_and_threads(files):
    expected = [FILES[name] for name in sorted(FILES)]
    paths = [f"shards/one/{name}" for name in sorted(FILES)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            assert list(threads.map(files.cat_file, paths)) == expected
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(files.cat_file, paths) == expected


def test_neither_fuse_nor_trio_is_imported(dataset):
    code = (
        "import fsspec, sys\n"
        f"fsspec.filesystem('touchfs', fo={str(dataset)!r}).find('shards')\n"
        "print([name for name in ('pyfuse3', 'trio', 'touchfs_mount') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_relative_path_stays_the_same_dataset_in_other_directories(tmp_path, monkeypatch):
    for name in ("A", "B"):
        write_tar(tmp_path / name / "x.tar", {"a.txt": name.encode()})
    monkeypatch.chdir(tmp_path / "A")
    files = fsspec.filesystem("touchfs", fo="x.tar")
    with files.open("shards/x/a.txt") as opened:
        copies = pickle.dumps(files), pickle.dumps(opened)
    text = files.to_json()
    monkeypatch.chdir(tmp_path / "B")
    files.clear_instance_cache()
    assert pickle.loads(copies[0]).cat("shards/x/a.txt") == b"A"
    with pickle.loads(copies[1]) as opened:
        assert opened.read() == b"A"
    assert fsspec.AbstractFileSystem.from_json(text).cat("shards/x/a.txt") == b"A"
    assert fsspec.filesystem("touchfs", fo="x.tar").cat("shards/x/a.txt") == b"B"


def test_sizes_that_are_not_known_count_for_nothing(tmp_path):
    write_tar(tmp_path / "x.tar", {"good.txt": b"12345", "bad.flac": b"fLaC and no more"})
    files = fsspec.filesystem("touchfs", fo=str(tmp_path / "x.tar"))
    assert files.du("shards") >= 5
    assert files.du("slices", total=False) is not None


def test_seeking_from_nowhere(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.txt": b"12345"})
    with fsspec.filesystem("touchfs", fo=str(tmp_path / "x.tar")).open("shards/x/a.txt") as file:
        for whence in (3, 4, -1):
            with pytest.raises(ValueError, match="whence"):
                file.raw.seek(0, whence)


def test_where_no_thread_starts_the_error_says_so(files, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    paths = ["shards/one/a/x.txt", "shards/one/b/x.txt"]
    for read in (files.cat, lambda paths: files.cat_ranges(paths, 0, 5)):
        with pytest.raises(SourceError, match="no thread can be started"):
            read(paths)
