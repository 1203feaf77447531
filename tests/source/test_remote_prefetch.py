"""`touchfs prefetch` has all bytes of shards on this machine, and asks for none twice."""

import re
import subprocess
import threading
import time

import numpy as np
import pytest
from command import TOUCHFS
from range_server import range_server
from tars import write_tar

from touchfs.core.errors import ChangedError, SourceError, UnwritableError
from touchfs.source.data import DATA
from touchfs.source.remote.flights import REQUEST_MAX
from touchfs.source.remote.kept import KEPT, KeptPieces
from touchfs.source.remote.prefetch import check_kept, fetch_all, remote_files
from touchfs.source.scratch.store import Scratch


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    KEPT.forget()
    with range_server() as server:
        data = write_tar(tmp_path / "made.tar", {"s.bin": np.random.default_rng(1).bytes(9_000_000)}).read_bytes()
        server.put("/set/a.tar", data)
        yield server


def prefetch(*arguments):
    return subprocess.run([TOUCHFS, "prefetch", *arguments], capture_output=True, text=True, timeout=120)


def test_whole_shards_are_fetched_once(server):
    url = f"{server.url}/set/"
    size = len(server.files["/set/a.tar"][0])
    done = prefetch("--rate", "100M", url)
    assert (done.returncode, done.stdout) == (0, f"{url}: 1 shard, {size:,} bytes are on this machine\n"), done.stderr
    asked = len(server.ranges)
    assert sum(stop - start for _, start, stop in server.ranges) < 1.2 * size
    assert prefetch(url).returncode == 0
    assert len(server.ranges) == asked, "the next one goes on where this one ended"
    server.fault = lambda: "404"
    assert DATA.open(f"{url}a.tar").read(0, size) == server.files["/set/a.tar"][0]


def test_a_disk_that_is_slower_than_the_store_is_waited_for(server, monkeypatch):
    """What has landed counts as missing until it is on the disk, so it is not counted before that."""
    offer, late = KeptPieces.offer, iter([True] * 20)
    monkeypatch.setattr(KeptPieces, "offer", lambda *arguments: not next(late, False) and offer(*arguments))
    files = remote_files([DATA.open(f"{server.url}/set/a.tar")])
    assert list(fetch_all(files))
    check_kept(files)
    assert next(late, None) is None


def test_the_rate_is_a_limit_and_the_progress_is_shown(server):
    """One request does not wait, but all after it come at the rate: 4 MiB of 9 MB at 8 MB a second."""
    url, begun = f"{server.url}/set/", time.monotonic()
    done = prefetch("--rate", "8M", "--progress", "plain", url)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun > (len(server.files["/set/a.tar"][0]) - REQUEST_MAX) / 8_000_000 - 0.1
    shown = [line for line in done.stderr.splitlines() if line.startswith(f"fetching {url}: ")]
    assert shown[-1].startswith(f"fetching {url}: 9.0 MB of 9.0 MB")


def test_the_rate_is_one_for_all_files(server, tmp_path):
    """Many small shards are no way around it: each may be asked for when the bytes of the one before are due."""
    url, begun = put_many(server, tmp_path, "small"), time.monotonic()
    done = prefetch("--rate", "30M", url)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun > 9 * 1_500_000 / 30_000_000


def test_all_shards_of_a_list_are_fetched(server, tmp_path):
    data, _ = server.files["/set/a.tar"]
    urls = [f"{server.url}/set/a.tar", server.put("/other/b.tar", data)]
    listed = tmp_path / "data.list"
    listed.write_text("".join(f"{url} metainfo\n" for url in urls))
    done = prefetch("--allow-location", server.url, listed)
    assert done.stdout == f"{listed}: 2 shards, {2 * len(data):,} bytes are on this machine\n", done.stderr
    server.fault = lambda: "404"
    for url in urls:
        assert DATA.open(url).read(0, len(data)) == data


def test_a_rate_of_nothing_is_refused(server):
    assert prefetch("--rate", "0", f"{server.url}/set/").returncode == 2


def put_many(server, tmp_path, directory, count=10, size=1_500_000):
    """Puts shards, and returns the URL of their directory."""
    for number in range(count):
        files = {f"{number}.bin": np.random.default_rng(number).bytes(size)}
        server.put(f"/{directory}/{number}.tar", write_tar(tmp_path / "one.tar", files).read_bytes())
    return f"{server.url}/{directory}/"


def fetched(server):
    return sum(stop - start for _, start, stop in server.ranges)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((1, 20_000_000), id="one large shard", marks=pytest.mark.variant),
        pytest.param((10, 1_500_000), id="many shards"),
    ],
)
def test_what_does_not_fit_is_said_before_it_is_fetched(server, tmp_path, sizes):
    url = put_many(server, tmp_path, "large", *sizes)
    done = prefetch("--scratch-size", "10M", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert fetched(server) < 5_000_000, "no more than the index needs"
    size = re.search(r"give --scratch-size at least ([0-9]+)$", done.stderr.strip())
    assert size, done.stderr
    assert prefetch("--scratch-size", size[1], url).returncode == 0


def test_what_was_fetched_and_is_evicted_is_not_here(server, tmp_path):
    """The store evicts until a tenth is free, and others have less than that."""
    assert prefetch(put_many(server, tmp_path, "other", 2)).returncode == 0
    url = put_many(server, tmp_path, "large")
    done = prefetch("--scratch-size", "16M", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "bytes are not on this machine any more" in done.stderr and "--scratch-size at least" in done.stderr


def test_what_was_fetched_before_is_not_evicted_for_the_rest(server, tmp_path):
    """Others in the store were used after it."""
    url = put_many(server, tmp_path, "large")
    assert prefetch(url + "{0..4}.tar").returncode == 0
    assert prefetch(put_many(server, tmp_path, "other", 3)).returncode == 0
    assert prefetch("--scratch-size", "17M", url).returncode == 0


def test_no_more_is_fetched_than_can_be_kept(server, monkeypatch):
    """As soon as the disk is full, nothing more is asked for."""

    def refuse(*_):
        raise SourceError("the disk is full")

    monkeypatch.setattr(Scratch, "keep_open", refuse)
    monkeypatch.setenv("TOUCHFS_REQUESTS", "1")
    url = server.put("/large.bin", bytes(20 * REQUEST_MAX))
    with pytest.raises(UnwritableError, match="the disk is full"):
        list(fetch_all(remote_files([DATA.open(url)])))
    assert fetched(server) < 5 * REQUEST_MAX


def test_pieces_that_the_index_has_read_are_here(server, tmp_path):
    url = put_many(server, tmp_path, "small", 20, 20_000)
    assert prefetch(url).returncode == 0
    assert fetched(server) == sum(len(data) for path, (data, _) in server.files.items() if "/small/" in path)
    file = remote_files([DATA.open(f"{url}0.tar")])[0]
    for _ in range(2):
        assert file.read(0, 1000) == server.files["/small/0.tar"][0][:1000]
    KEPT._memory.forget()
    assert file.read_nowait(0, 1000) is not None, "whoever must not wait finds them, too"


def test_several_shards_are_fetched_at_once(server, tmp_path):
    """Each request is answered when four are there."""
    url = put_many(server, tmp_path, "small", 4, 20_000)
    files = remote_files(DATA.open(f"{url}{number}.tar") for number in range(4))
    for file in files:
        file.open()
    requests = len(server.requests)
    together = threading.Barrier(4)

    def wait() -> None:
        together.wait(20)

    server.fault = wait
    assert [type(result) for _, result in fetch_all(files)] == [int] * 4
    assert len(server.requests) - requests == 4, "nobody looks at a file whose version is known"


def test_a_shard_that_is_gone_costs_itself_only(server, tmp_path):
    url = put_many(server, tmp_path, "small", 3, 9_000_000)
    files = remote_files(DATA.open(f"{url}{number}.tar") for number in range(3))
    for file in files:
        file.open()
    server.put("/small/1.tar", b"another", '"2"')
    results = {}
    for file, result in fetch_all(files):
        results.setdefault(file, []).append(result)
    assert [sum(results[file]) for file in (files[0], files[2])] == [files[0].size, files[2].size]
    assert [type(each) for each in results[files[1]]] == [ChangedError]


def test_what_no_version_names_is_not_fetched(server):
    """Nothing of it would be used again."""
    (file,) = remote_files([DATA.open(server.put("/a.bin", bytes(1000), ""))])
    file.open()
    ((_, result),) = fetch_all([file])
    assert "--assume-immutable" in str(result)
    assert not fetched(server)


def test_files_of_this_machine_are_here(server, tmp_path):
    done = prefetch(tmp_path / "made.tar")
    assert (done.returncode, "are on this machine" in done.stdout) == (0, True)
