"""What touchfs keeps on a machine is shown, and goes when it is asked for: what is gone first, positions never else."""

import gzip
import json
import os
import shutil
import subprocess
import time
from dataclasses import asdict

import pytest
from command import TOUCHFS, in_one_process
from interleaved_tars import make_wds_tar
from megatron import UINT8, index_bytes
from range_server import range_server

import touchfs
from touchfs.source.scratch.store import Scratch
from touchfs.storage import list_storage

LINES = b"".join(b'{"id": "line-%d"}\n' % number for number in range(50))

# Both datasets have the same shards.
ONE_LIST = "1 list of the shards that states are over"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's directories of their own, and a dataset with an iterator, of which one shard is compressed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make(tmp_path / "data" / "kept")
    return tmp_path


@pytest.fixture
def moved(home):
    """Another such dataset."""
    return make(home / "data" / "moved")


def make(place):
    place.mkdir(parents=True)
    (place / "a.jsonl").write_bytes(LINES)
    (place / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    run("iterator", "create", place, "train")
    return place


def run(*arguments, status=0):
    done = subprocess.run([TOUCHFS, *map(str, in_one_process(*arguments))], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def listed(kind=None):
    """What `touchfs storage ls --json` prints."""
    return [json.loads(json.dumps(asdict(each))) for each in list_storage() if kind in (None, each.kind)]


def test_everything_that_is_kept_is_listed_with_what_it_is_about(home, moved):
    data = home / "data"
    stored = json.loads(run("storage", "ls", "--json"))
    assert stored == listed()
    assert {(each["kind"], each["about"]) for each in stored} == {
        ("index", str(data / "kept")),
        ("index", str(data / "moved")),
        ("scratch", str(data / "kept" / "b.jsonl.gz")),
        ("scratch", str(data / "moved" / "b.jsonl.gz")),
        ("state", str(data / "kept")),
        ("state", str(data / "moved")),
        ("shards", ONE_LIST),
    }
    assert not any(each["is_gone"] or each["is_used"] for each in stored)
    files = {os.path.realpath(file) for each in stored for file in each["files"]}
    assert files == {
        str(path) for top in ("cache", "state") for path in (home / top).rglob("*.*") if path.name[0] != "."
    }
    assert sum(each["size"] for each in stored) == sum(map(os.path.getsize, files))
    assert run("storage", "prune").strip() == "0 bytes in 0 items"


def test_results_of_filters_are_listed_and_can_be_removed(home):
    """Those of iterators are beside their positions, those of `touchfs.open` in the cache."""
    kept = home / "data" / "kept"
    train = json.dumps({"where": "ordinal > 0", "output": "key"})
    run("iterator", "create", kept, "filtered", "--spec", train)
    run("iterator", "next", kept, "filtered")
    assert len(touchfs.open(kept).where("ordinal > 0")) > 0
    places = {os.path.dirname(os.path.dirname(each["files"][0])) for each in listed("where")}
    assert places == {str(home / "state" / "touchfs"), str(home / "cache" / "touchfs")}
    run("storage", "prune", "--keep", "0")
    assert listed("where") == []


def test_small_files_of_the_scratch_store_are_one_item(home):
    store = Scratch(str(home / "cache" / "touchfs" / "scratch"))
    for number in range(1001):
        store.keep(f"{number:032x}", bytes(100))
    (item,) = listed("values")
    assert (len(item["files"]), item["size"]) == (1001, 1001 * 116)
    shown = [line for line in run("storage", "ls").splitlines() if " values " in line]
    assert len(shown) == 1 and "1,001 rendered slices, blocks of data at URLs and other small files" in shown[0]
    run("storage", "prune", "--keep", "0")
    assert listed("values") == listed("scratch") == []
    store.keep(f"{0:032x}", b"again")
    assert store.kept(f"{0:032x}") == b"again"


def test_prune_removes_what_is_about_data_that_are_gone(home, moved):
    shutil.rmtree(moved)
    shown = run("storage", "prune", "--dry-run")
    assert shown.count("gone") == 3
    assert len(listed()) == 7
    assert [each for each in listed() if each["is_gone"]] == json.loads(run("storage", "prune", "--dry-run", "--json"))
    assert run("storage", "prune") == shown
    assert {each["about"] for each in listed()} == {
        str(home / "data" / "kept"),
        str(home / "data" / "kept" / "b.jsonl.gz"),
        ONE_LIST,
    }
    assert "\ntrain\t" in run("iterator", "list", home / "data" / "kept")


def test_data_on_a_disk_that_is_absent_are_not_gone(home):
    """Its mount point is an empty directory."""
    shutil.rmtree(home / "data")
    (home / "data").mkdir()
    assert not any(each["is_gone"] for each in listed())


def test_data_that_are_found_by_another_name_than_a_path_are_not_gone(home):
    """A Megatron pair by its prefix, and tars by braces: no file has these names."""
    (home / "data" / "corpus.idx").write_bytes(index_bytes(UINT8, [4], [0]))
    (home / "data" / "corpus.bin").write_bytes(b"text")
    for number in range(2):
        make_wds_tar(home / "data" / f"t-{number}.tar", [("a.txt", b"text")])
    names = [str(home / "data" / name) for name in ("corpus", "t-{0..1}.tar")]
    for name in names:
        run("iterator", "create", name, "train")
    assert {each["about"] for each in listed() if not each["is_gone"]} >= set(names)
    run("storage", "prune")
    for name in names:
        assert "\ntrain\t" in run("iterator", "list", name)
    (home / "data" / "t-0.tar").unlink()
    assert not any(each["is_gone"] for each in listed() if each["about"] == names[1])
    for path in (home / "data").glob("[ct]*.*"):
        path.unlink()
    assert {each["about"] for each in listed("state") if each["is_gone"]} == set(names)


def test_members_on_a_disk_that_is_absent_are_not_gone(home):
    for disk in ("a", "b"):
        (home / "data" / disk).mkdir()
        (home / "data" / disk / "1.jsonl").write_bytes(LINES)
    source = str(home / "data" / "{a,b}" / "1.jsonl")
    run("iterator", "create", source, "train")
    shutil.rmtree(home / "data" / "a")
    (home / "data" / "b" / "1.jsonl").unlink()
    assert not any(each["is_gone"] for each in listed("state"))
    (home / "data" / "b").rmdir()
    assert [each["about"] for each in listed("state") if each["is_gone"]] == [source]


def test_prune_keeps_so_much_and_all_positions(home, moved):
    now = time.time()
    for each in listed():
        for file in each["files"]:
            days = 2 if "moved" in each["about"] else 1
            os.utime(file, (now - days * 86400, now - days * 86400))
    total = sum(each["size"] for each in listed())
    (older,) = (each["size"] for each in listed("index") if each["about"].endswith("moved"))
    run("storage", "prune", "--keep", total - older)
    assert [each["about"] for each in listed("index")] == [str(home / "data" / "kept")]
    run("storage", "prune", "--keep", 0)
    assert listed("index") == listed("scratch") == []
    assert len(listed("state")) == 2 and len(listed("shards")) == 1
    assert run("iterator", "next", moved, "train") == "shards/a/line-0.json\n"


def test_what_a_mount_uses_stays(home):
    run("mount", home / "data" / "kept", home / "mnt")
    try:
        assert {each["is_used"] for each in listed() if each["about"].startswith(str(home / "data" / "kept"))} == {True}
        (log,) = listed("log")
        assert log["is_used"]
        run("storage", "prune", "--keep", 0)
        assert (home / "mnt" / "shards" / "b" / "line-7.json").read_bytes() == b'{"id": "line-7"}\n'
        assert (home / "mnt" / ".touchfs" / "iterators" / "train" / "next").read_text()
    finally:
        run("umount", home / "mnt")


def test_files_of_others_and_links_are_left_alone(home):
    (home / "data" / "victim").write_text("precious")
    index = home / "cache" / "touchfs" / "index"
    (index / f"{'0' * 32}.arrow").symlink_to(home / "data" / "victim")
    (index / "notes.txt").write_text("mine")
    evil = {"version": 3, "source": "/nowhere", "shards": [{"catalog": str(home / "data" / "victim")}]}
    (index / f"{'1' * 32}.dataset.json").write_text(json.dumps(evil))
    run("storage", "prune", "--keep", 0)
    assert (home / "data" / "victim").read_text() == "precious"
    assert (index / "notes.txt").exists()


def test_what_is_decompressed_for_data_with_an_index_of_their_own_is_not_gone(home):
    data = home / "data" / "beside"
    data.mkdir()
    (data / "c.jsonl.gz").write_bytes(gzip.compress(LINES * 2))
    run("index", "--in-place", "--jobs", "1", data)
    (one,) = (each for each in listed("scratch") if each["about"] is None)
    assert not one["is_gone"]
    run("storage", "prune")
    assert one["files"] in [each["files"] for each in listed("scratch")]


def test_an_index_of_a_url_is_listed_and_is_never_gone(home):
    """Nobody asks its store, which may not answer."""
    with range_server() as server:
        url = server.put("/lines.jsonl", LINES)
        run("index", "--jobs", "1", url)
    (index,) = [each for each in listed("index") if each["about"] == url]
    assert not index["is_gone"]


def test_checksums_and_a_journal_belong_to_their_dataset(home, moved):
    data = home / "data"
    run("verify", "--write", "--jobs", "1", data / "kept")
    run("verify", "--write", "--jobs", "1", moved)
    for path in (home / "cache").rglob("*.crc32c"):
        os.utime(path, (0, 0))
    assert run("storage", "prune").strip() == "0 bytes in 0 items"
    assert len(list((home / "cache").rglob("*.crc32c"))) == 4
    shutil.rmtree(moved)
    run("storage", "prune")
    assert len(list((home / "cache").rglob("*.crc32c"))) == 2
