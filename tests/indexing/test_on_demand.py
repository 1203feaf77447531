"""A dataset that is opened as the list of its shards: each is indexed when somebody looks into it."""

import fcntl
import gzip
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import TOUCHFS
from every_kind import OPTIONS, SPEECH
from s3_server import asked_of_s3, s3_server, upload
from tars import write_tar
from waiting import wait_until

import touchfs
from touchfs.core.errors import NotFoundError
from touchfs.dataset import Dataset
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import list_dataset, open_dataset
from touchfs.shard.options import Options
from touchfs.tree.entry import Entry
from touchfs.tree.tree import Tree

# What makes a catalog, as a program of its own: it stops until it is told to go on.
_SLOW = """
import os, sys
from touchfs.indexing import list_dataset
print("ready", flush=True)
sys.stdin.readline()
dataset = list_dataset(sys.argv[1])
shard = dataset.shard(0)
print(os.stat(shard.catalog).st_ino, flush=True)
"""

SAID = b'{"segments": [{"start": 0.1, "end": 0.2}]}'
VIEWS_OF_TALKS = ["by-key", "manifests", "merged", "segments", "shards", "slices"]

# Indexes all, and gives way.
_BACKGROUND = "import sys; from touchfs.indexing import open_dataset; open_dataset(sys.argv[1], gives_way=True)"


@pytest.fixture(autouse=True)
def index(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "touchfs" / "index"


@pytest.fixture
def tars(tmp_path) -> Path:
    for name in "abc":
        write_tar(tmp_path / "tars" / f"{name}.tar", {f"{name}{i}.txt": f"{name}{i}".encode() for i in range(3)})
    return tmp_path / "tars"


def test_a_shard_is_given_up_for_one_who_is_killed(tars, index):
    """Whoever gives way waits for the one who has the turn, and then indexes it all the same."""
    write_tar(tars / "big.tar", {f"{each}.txt": b"x" for each in range(25_000)})
    catalog = next(each.catalog for each in list_dataset(str(tars)).listed if each.name == "big")
    index.mkdir(parents=True, mode=0o700, exist_ok=True)
    with open(f"{catalog}.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        running = subprocess.Popen([sys.executable, "-P", "-c", _BACKGROUND, tars])
        wait_until(lambda: catalogs(index) == 3)
        wait_until(lambda: b"locks_lock" in Path(f"/proc/{running.pid}/wchan").read_bytes())
        assert not os.path.exists(f"{catalog}.background")
    assert running.wait(60) == 0
    assert catalogs(index) == 4
    assert not [path for path in index.iterdir() if path.suffix == ".background"]


def tree_of(dataset: Dataset) -> Tree:
    return Tree(dataset, range(1, len(dataset.listed) + 1))


def catalogs(index: Path) -> int:
    return len(list(index.glob("*.arrow"))) if index.exists() else 0


def walked(tree: Tree, entry: Entry, path: str = "") -> Iterator[tuple[str, Entry, bytes]]:
    """All below a directory: path, entry, and the bytes of a file or the target of a link."""
    for name, child, _ in list(tree.entries(entry.inode)):
        below, found = f"{path}/{os.fsdecode(name)}", tree.find(entry.inode, name)
        assert found is not None
        if child.is_directory:
            yield below, found, b""
            yield from walked(tree, child, below)
        elif child.is_link:
            yield below, found, tree.link(child.inode)
        else:
            content = tree.content(child.inode)
            yield below, found, bytes(content.read(0, content.size))


def test_it_is_the_dataset_that_is_indexed_whole(every_kind, tmp_path, monkeypatch):
    """Names, inode numbers, bytes, order and fingerprint do not depend on when a shard was indexed."""
    for place in sorted(every_kind.iterdir()):
        options, seen, views = OPTIONS.get(place.name, Options()), [], ["shards"]
        for opened in (open_dataset, list_dataset):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / opened.__name__))
            dataset = opened(str(place), options=options)
            tree = tree_of(dataset)
            if opened is open_dataset and tree.find(tree.resolve("").inode, b"segments") is not None:
                views.append("segments")  # there are recordings
            below = [list(walked(tree, tree.resolve(view))) for view in views]
            assert dataset.is_indexed == (opened is open_dataset), place.name
            list(tree.entries(tree.resolve("manifests").inode))  # which all shards have a part in
            whole = list(walked(tree, tree.resolve("")))
            samples = DatasetSamples(dataset)
            seen.append(
                (below, whole, samples.fingerprint, samples.identity, [shard.identity for shard in dataset.shards])
            )
        assert seen[0] == seen[1], place.name


def test_one_look_indexes_one_shard(tars, index):
    tree = tree_of(list_dataset(str(tars)))
    assert [name for name, _, _ in tree.entries(tree.resolve("shards").inode)] == [b"a", b"b", b"c"]
    assert catalogs(index) == 0
    entry = tree.resolve("shards/b/b1.txt")
    assert (bytes(tree.content(entry.inode).read(0, 9)), catalogs(index)) == (b"b1", 1)
    assert not tree.dataset.is_indexed
    # What all shards have a part in waits for all of them.
    assert (tree.resolve("by-key/c2.txt").size, catalogs(index)) == (2, 3)
    assert tree.dataset.is_indexed


def test_headers_are_read_once_however_many_wait_for_them(tars, index):
    """Also where nothing but headers has to be read, so that the one who had the turn has made the whole catalog."""
    opened = [list_dataset(str(tars)) for _ in range(4)]
    catalog = opened[0].listed[0].catalog
    index.mkdir(parents=True, mode=0o700, exist_ok=True)

    def look(dataset: Dataset) -> int:
        return os.stat(dataset.headers(0).catalog).st_ino

    with ThreadPoolExecutor(4) as pool:
        with open(f"{catalog}.headers.lock", "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            looks = [pool.submit(look, dataset) for dataset in opened]
            wait_until(lambda: Path("/proc/locks").read_text().count("->") >= len(opened))
        assert len({each.result(60) for each in looks}) == 1


@pytest.fixture
def talks(tmp_path) -> Path:
    """Two tars of recordings: one with segments in JSON, of which one is damaged, and one with none."""
    wav, json = (SPEECH / "wav").iterdir().__next__().read_bytes(), SAID
    write_tar(
        tmp_path / "talks" / "a.tar", {"a.wav": wav, "a.json": json, "b.wav": wav, "b.json": b"{", "ERROR.wav": wav}
    )
    write_tar(tmp_path / "talks" / "b.tar", {"a.wav": wav, "a.cls": b"7"})
    return tmp_path / "talks"


def test_files_of_a_sample_wait_for_no_contents(talks, index):
    """What is in them is read when somebody asks for segments. It changes nothing in `shards/`."""
    tree = tree_of(list_dataset(str(talks)))
    before = list(walked(tree, tree.resolve("shards")))
    assert (catalogs(index), len(list(index.glob("*.arrow.headers")))) == (1, 1)
    assert [tree.dataset.has_index(position) for position in (0, 1)] == [False, True]
    again = tree_of(list_dataset(str(talks)))
    assert [tree.dataset.has_headers(position) for position in (0, 1)] == [True, True]
    assert list(walked(again, again.resolve("shards"))) == before
    assert [path for path, _, _ in walked(tree, tree.resolve("segments/a"))] == [
        "/ERROR.txt",
        "/a",
        "/a/0000.json",
        "/a/0000.wav",
    ]
    assert [path.suffix for path in index.iterdir()] == [".arrow"] * 2
    # Those who have its headers open go on, and whoever opens it now has the whole catalog.
    for each in (tree, again, tree_of(list_dataset(str(talks)))):
        assert list(walked(each, each.resolve("shards"))) == before


@pytest.mark.parametrize("gives_way", [False, True])
def test_headers_are_dropped_with_whoever_indexes(talks, index, gives_way):
    """Also those that were left when a process was killed before it dropped them."""
    list_dataset(str(talks)).headers(0)
    headers = next(index.glob("*.headers"))
    kept = headers.read_bytes()
    open_dataset(str(talks), gives_way=gives_way)
    assert not headers.exists()
    headers.write_bytes(kept)
    for each in index.glob("*.dataset.json"):
        each.unlink()
    assert open_dataset(str(talks), gives_way=gives_way).is_indexed
    assert not headers.exists()


def test_the_root_before_and_after(tars):
    tree = tree_of(list_dataset(str(tars)))
    root = tree.resolve("").inode
    before = {name: entry.inode for name, entry, _ in tree.entries(root)}
    assert {b"by-key", b"manifests", b"interleaved", b"slices"} < before.keys()
    assert all(tree.entry(inode).is_directory for inode in before.values())
    list(tree.entries(tree.resolve("manifests").inode))
    after = {name: entry.inode for name, entry, _ in tree.entries(root)}
    assert before.items() > after.items()  # neither items nor recordings are there
    assert after == {name: entry.inode for name, entry, _ in tree_of(open_dataset(str(tars))).entries(root)}
    assert tree.find(root, b"interleaved") is None
    was_listed = before[b"interleaved"]
    assert (list(tree.entries(was_listed)), tree.find(was_listed, b"a"), tree.parent(was_listed)) == ([], None, root)


def test_the_root_of_a_single_shard_tells_what_it_has(tars, talks, index):
    """Its files wait for no more than its headers; what is listed for people waits for all of it."""
    for path, views in ((tars / "a.tar", ["by-key", "manifests", "shards"]), (talks / "b.tar", VIEWS_OF_TALKS)):
        done = subprocess.run([TOUCHFS, "ls", path], capture_output=True, text=True, check=True)
        assert sorted(done.stdout.split()) == [f"{view}/" for view in views]
    before = catalogs(index)
    run = [TOUCHFS, "cat", f"{talks / 'a.tar'}:shards/a/a.json"]
    assert subprocess.run(run, capture_output=True, check=True).stdout == SAID
    assert (catalogs(index), len(list(index.glob("*.headers")))) == (before, 1)


def test_shards_that_are_indexed_are_known_at_once(tars):
    open_dataset(str(tars))
    assert list_dataset(str(tars)).is_indexed
    os.utime(tars / "a.tar")
    assert not list_dataset(str(tars)).is_indexed


def test_damage_is_found_by_a_look(tars, index):
    (tars / "b.tar").write_bytes(b"\xff" * 1024)
    tree = tree_of(list_dataset(str(tars)))
    assert tree.resolve("shards/a/a0.txt").size == 2
    assert [name for name, _, _ in tree.entries(tree.resolve("shards/b").inode)] == [b"ERROR.txt"]
    assert catalogs(index) == 2


def test_a_look_tells_of_an_index_that_cannot_be_used(tars, index, caplog):
    open_dataset(str(tars))
    for file in index.glob("*.dataset.json"):
        file.unlink()
    damaged, planted = sorted(index.glob("*.arrow"))[:2]
    damaged.write_bytes(b"\xff" * 99)
    os.chown(planted, 12345, 12345)
    dataset = list_dataset(str(tars))
    for _ in range(2):
        assert [dataset.shard(position).samples for position in range(3)] == [3] * 3
    lines = sorted(record.getMessage() for record in caplog.records)
    assert len(lines) == 2
    assert f"{damaged}: is damaged, and made again" in lines
    assert any(line.startswith(f"{planted}: ") and "ignored and rebuilt" in line for line in lines)


def test_a_compressed_shard_is_decompressed_by_a_look(tars, index):
    for name in "abc":
        with open(tars / f"{name}.tar", "rb") as plain, gzip.open(tars / f"{name}.tar.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        (tars / f"{name}.tar").unlink()
    tree = tree_of(list_dataset(str(tars)))
    assert (tree.resolve("shards/b/b1.txt").size, catalogs(index)) == (2, 1)


def test_a_shard_that_changes_before_it_is_looked_into(tars):
    tree = tree_of(list_dataset(str(tars)))
    write_tar(tars / "b.tar", {"new.txt": b"new"})
    assert [name for name, _, _ in tree.entries(tree.resolve("shards/b").inode)] == [b"new.txt"]
    (tars / "c.tar").unlink()
    assert [name for name, _, _ in tree.entries(tree.resolve("shards/c").inode)] == [b"ERROR.txt"]


def test_where_no_index_can_be_written(tars, index, caplog):
    """Also if that is found only when the first shard is indexed."""
    tree = tree_of(list_dataset(str(tars)))
    shutil.rmtree(index.parents[1])
    index.parents[1].symlink_to("cache")  # a loop
    assert tree.resolve("shards/b/b1.txt").size == 2
    assert "the index is kept in memory" in caplog.text


def test_threads_wait_for_one_that_indexes(tars, monkeypatch):
    made = []
    from touchfs.indexing import index_task

    real = index_task.make_catalog
    monkeypatch.setattr(
        index_task, "make_catalog", lambda *args, **keywords: made.append(args[0]) or real(*args, **keywords)
    )
    dataset = list_dataset(str(tars))
    with ThreadPoolExecutor(8) as pool:
        shards = list(pool.map(dataset.shard, [1] * 8))
    assert (made, len(set(map(id, shards)))) == ([str(tars / "b.tar")], 1)
    assert len(dataset.shards) == 3
    assert sorted(made) == [str(tars / f"{name}.tar") for name in "abc"]


def test_processes_wait_for_one_that_indexes(tars):
    """All see one catalog: it was made once, however they began."""
    runs = [
        subprocess.Popen([sys.executable, "-c", _SLOW, tars], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("go\n")
        run.stdin.flush()
    assert len({run.communicate()[0] for run in runs}) == 1


def test_killed_while_it_indexes(tmp_path, index):
    """A part of a catalog is never believed, and nobody waits for a process that is gone."""
    with tarfile.open(tmp_path / "big.tar", "w") as tar:
        for number in range(15_000):
            tar.addfile(tarfile.TarInfo(f"{number:06}.txt"))
    for seconds in (0.0, 0.2):
        run = subprocess.Popen(
            [sys.executable, "-c", _SLOW, tmp_path / "big.tar"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert run.stdout.readline() == b"ready\n"
        run.stdin.write(b"go\n")
        run.stdin.flush()
        if seconds:
            wait_until(lambda: list(index.glob("*.lock")))
        time.sleep(seconds)
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdin.close()
        run.stdout.close()
    assert list_dataset(str(tmp_path / "big.tar")).shard(0).samples == 15_000
    assert list(index.glob("*.lock")) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ls", "{}:shards/b"], b"b0.txt\nb1.txt\nb2.txt\n"),
        (["cat", "{}:shards/b/b1.txt"], b"b1"),
        (["cp", "{}:shards/b/b1.txt", "/dev/stdout"], b"b1"),
        (["info", "{}:shards/b"], b"kind:           tar\nshards:         1\nsamples:        3\n"),
    ],
    ids=["ls", "cat", "cp", "info"],
)
def test_commands(tars, index, arguments, expected):
    run = subprocess.run([TOUCHFS, *(each.format(tars) for each in arguments)], capture_output=True)
    assert (run.stdout[: len(expected)], run.stderr, run.returncode) == (expected, b"", 0)
    assert catalogs(index) == 1


def test_stat_and_a_listing_of_shards(tars, index):
    for path in ("", ":shards"):
        assert subprocess.run([TOUCHFS, "ls", f"{tars}{path}"], capture_output=True).returncode == 0
        assert catalogs(index) == 0
    assert b"size" in subprocess.run([TOUCHFS, "stat", f"{tars}:shards/b/b1.txt"], capture_output=True).stdout
    assert catalogs(index) == 1


def test_info_of_a_shard(tars, index):
    """It is the same after all are indexed, tells nothing of the others, and names what `cat` takes."""
    (tars / "c.tar").write_bytes(b"\xff" * 1024)
    (tars / "notes.rst").write_text("notes")

    def info(path: str) -> tuple[str, int]:
        run = subprocess.run([TOUCHFS, "info", f"{tars}{path}"], capture_output=True, text=True)
        assert run.stderr == ""
        return run.stdout, run.returncode

    before, broken = info(":shards/b"), info(":shards/c")
    assert (before[1], broken[1], catalogs(index)) == (0, 1, 2)
    assert "left out" not in before[0] and f"See `touchfs cat {tars}:shards/c/ERROR.txt`." in broken[0]
    assert info(":shards") == info("") and "left out" in info("")[0]
    assert (info(":shards/b"), info(":shards/c")) == (before, broken)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("shards/bb", "there is no such shard: next to it would be shards/b and shards/c"),
        ("shards/nosuch", "there is no such shard: next to it would be shards/c"),
        ("segments/b", "there is no such shard: next to it would be shards/a"),
        ("nosuch", "there is no such shard: next to it would be shards/a"),
        ("shards/b/b1.txt", "is not a shard, but below shards/b: `touchfs stat` is for files"),
    ],
)
def test_what_is_no_shard(tars, index, path, problem):
    with pytest.raises(NotFoundError, match=r"shows what there is$") as caught:
        open_dataset(str(tars), below=path)
    line = f"{tars}:{path}: {problem}; `touchfs ls {tars}:shards` shows what there is"
    assert (str(caught.value), catalogs(index)) == (line, 0)
    run = subprocess.run([TOUCHFS, "info", f"{tars}:{path}"], capture_output=True, text=True)
    assert (run.stderr, run.returncode) == (f"touchfs: {line}\n", 1)


def samples_of(source: object) -> list[tuple[Sample, dict[str, bytes], list[str]]]:
    return [(each, dict(each), [each.path(name) for name in each]) for each in touchfs.open(source)]


@pytest.mark.parametrize(
    ("directories", "parts"),
    [
        (("lang=de", "lang=fr"), {"shards/x": slice(1), "shards/x~2/": slice(1, 2)}),
        (
            ("train/1", "train/2", "test"),
            {"shards/test/x": slice(1), "shards/train/x~2": slice(1, 2), "/shards/train": slice(1, 3)},
        ),
    ],
    ids=["values of directories", "splits"],
)
def test_open_one_shard(tmp_path, index, directories, parts):
    """Its samples are those that it has in the whole dataset, before the others are indexed and after."""
    for number, directory in enumerate(directories):
        (tmp_path / "data" / directory).mkdir(parents=True)
        table = pa.table({"id": [f"{number}-{i}" for i in range(3)], "word": ["a", "b", "c"]})
        pq.write_table(table, tmp_path / "data" / directory / "x.parquet")
    before = {path: samples_of(f"{tmp_path}/data:{path}") for path in [*parts][:2]}
    assert catalogs(index) == 2
    whole = samples_of(tmp_path / "data")
    shards = [whole[start : start + 3] for start in range(0, len(whole), 3)]
    for path, positions in parts.items():
        expected = [sample for shard in shards[positions] for sample in shard]
        assert samples_of(f"{tmp_path}/data:{path}") == before.get(path, expected) == expected


def test_a_set_of_one_shard(tars, index, monkeypatch):
    part = touchfs.open(f"{tars}:shards/b")
    assert ([sample.key for sample in part], part["b2"]["txt"], "a0" in part) == (["b0", "b1", "b2"], b"b2", False)
    assert [sample.key for sample in part.where("key != 'b1'")] == ["b0", "b2"]
    assert (repr(part), bool(part), catalogs(index)) == ("Dataset(3 samples, 1 shard, files: txt)", True, 1)
    with pytest.raises(NotFoundError, match="there is no such shard"):
        touchfs.open(f"{tars}:shards/nosuch")
    write_tar(tars.parent / "tars:shards" / "b" / "c.tar", {"c.txt": b"c"})
    assert [sample.key for sample in touchfs.open(f"{tars}:shards/b")] == ["c"]


def test_neither_repr_nor_bool_of_a_dataset_waits(tars, index):
    dataset = list_dataset(str(tars))
    assert repr(dataset) and bool(dataset)
    assert (catalogs(index), dataset.is_indexed) == (0, False)


def test_fsspec(tars, index):
    files = fsspec.filesystem("touchfs", fo=str(tars), skip_instance_cache=True)
    assert files.ls("shards/b", detail=False) == [f"shards/b/b{i}.txt" for i in range(3)]
    assert catalogs(index) == 1


def test_a_look_into_a_bucket(tars, monkeypatch):
    """A listing of the prefix, and the requests of one shard: nobody is asked for the others."""
    with s3_server(monkeypatch) as client:
        for name in "defgh":
            shutil.copy(tars / "b.tar", tars / f"{name}.tar")
        upload(client, tars, "data/train")
        with asked_of_s3() as asked:
            tree = tree_of(list_dataset("s3://data/train"))
            assert {"head_object train", "list_objects_v2"} == set(asked)
            before = len(asked)
            assert tree.resolve("shards/b/b1.txt").size == 2
        # One for the head of the file and one for its bytes; the others look for the list of the prefix and its index.
        assert sorted(call for call in asked if "tar" in call) == ["get_object train/b.tar", "head_object train/b.tar"]
        assert before <= 3 and len(asked) <= 8, asked
        with asked_of_s3() as asked:
            assert touchfs.open("s3://data/train:shards/d")["b1"]["txt"] == b"b1"
        assert {call.split()[-1] for call in asked if "tar" in call} == {"train/d.tar"}
