"""`touchfs prefetch` has all bytes of shards on this machine, and asks for none twice."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from range_server import range_server
from tars import write_tar

from touchfs.source.data import DATA
from touchfs.source.remote.flights import REQUEST_MAX
from touchfs.source.remote.kept import KeptPieces

TOUCHFS = Path(sys.executable).with_name("touchfs")


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with range_server() as server:
        data = write_tar(tmp_path / "made.tar", {"s.bin": random.Random(1).randbytes(9_000_000)}).read_bytes()
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
    file = DATA.open(f"{server.url}/set/a.tar")
    assert list(file.fetch())
    assert next(late, None) is None


def test_the_rate_is_a_limit_and_the_progress_is_shown(server):
    """One request does not wait, but all after it come at the rate: 4 MiB of 9 MB at 2 MB a second."""
    url, begun = f"{server.url}/set/", time.monotonic()
    done = prefetch("--rate", "2M", "--progress", "plain", url)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun > (len(server.files["/set/a.tar"][0]) - REQUEST_MAX) / 2_000_000 - 0.1
    shown = [line for line in done.stderr.splitlines() if line.startswith(f"fetching {url}: ")]
    assert shown[-1].startswith(f"fetching {url}: 9.0 MB of 9.0 MB")


def test_the_rate_is_one_for_all_files(server, tmp_path):
    """Many small shards are no way around it: each may be asked for when the bytes of the one before are due."""
    data = write_tar(tmp_path / "small.tar", {"s.bin": bytes(90_000)}).read_bytes()
    for number in range(20):
        server.put(f"/small/{number}.tar", data)
    begun = time.monotonic()
    done = prefetch("--rate", "1M", f"{server.url}/small/")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun > 19 * len(data) / 1_000_000


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


def test_what_does_not_stay_is_an_error(server):
    done = prefetch("--scratch-size", "4M", f"{server.url}/set/")
    assert done.returncode == 1
    assert "--scratch-size" in done.stderr
    assert prefetch("--rate", "0", f"{server.url}/set/").returncode == 2


def test_files_of_this_machine_are_here(server, tmp_path):
    done = prefetch(tmp_path / "made.tar")
    assert (done.returncode, "are on this machine" in done.stdout) == (0, True)
