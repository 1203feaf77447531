"""`mount --prefetch` has the shards of other stores on this machine, while it serves them."""

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from mounts import touchfs
from processes import children, runs
from range_server import SlowReplies
from tars import write_tar
from waiting import wait_until

SIZE = 3_000_000


@pytest.fixture
def put(server, tmp_path):
    """Makes a tar and puts it into the set."""

    def put(name: str, size: int = SIZE) -> bytes:
        sample = random.Random(name).randbytes(size)
        server.put(f"/set/{name}.tar", write_tar(tmp_path / f"{name}.tar", {f"{name}.bin": sample}).read_bytes())
        return sample

    return put


@pytest.fixture
def fetching(mount, server, tmp_path):
    """Mounts the set, and returns the mount and a function that returns its log."""

    def make(*options):
        log = tmp_path / "log"
        options = ("--prefetch", "--revalidate", 3600, "--log-file", log, *options)
        return mount(f"{server.url}/set/", *options), log.read_text

    return make


def fetchers(mounted) -> list[int]:
    """The programs that fetch."""
    found = []
    for pid in mounted.processes():
        with suppress(OSError):  # it has ended
            found += [pid] * (b"beside.prefetching" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


def test_all_shards_are_here_in_the_end_and_new_ones_after_a_reload(server, put, fetching):
    samples = {name: put(name) for name in ("a", "b")}
    mounted, log = fetching()
    wait_until(lambda: "2 of 2 files are on this machine" in log())
    wait_until(lambda: not fetchers(mounted))
    asked = len(server.ranges)
    for name, sample in samples.items():
        assert (mounted.path / f"shards/{name}/{name}.bin").read_bytes() == sample
    assert len(server.ranges) == asked

    samples["c"] = put("c")
    os.kill(mounted.pid, signal.SIGHUP)
    wait_until(lambda: "3 of 3 files are on this machine" in log())
    assert not [path for path, _, _ in server.ranges[asked:] if path != "/set/c.tar"], "what is here stays"
    asked = len(server.ranges)
    assert (mounted.path / "shards/c/c.bin").read_bytes() == samples["c"]
    assert len(server.ranges) == asked


def test_readers_and_the_program_share_one_limit_of_requests(server, put, fetching):
    """A store that allows so many requests gets no more of one mount."""
    samples = {name: put(name) for name in ("a", "b", "c", "d")}
    assert touchfs("index", f"{server.url}/set/").returncode == 0
    server.fault = slow = SlowReplies()
    mounted, log = fetching("--requests", 4)
    with ThreadPoolExecutor(len(samples)) as readers:
        paths = {name: mounted.path / f"shards/{name}/{name}.bin" for name in samples}
        assert dict(zip(paths, readers.map(Path.read_bytes, paths.values()), strict=True)) == samples
    wait_until(lambda: "4 of 4 files are on this machine" in log())
    assert 2 <= slow.most <= 4


def test_a_shard_that_cannot_be_fetched_stops_no_other_one(server, put, fetching):
    put("a", 5 * SIZE)
    put("b")
    assert touchfs("index", f"{server.url}/set/").returncode == 0
    size = len(server.files["/set/b.tar"][0])

    def fault():
        server.files["/set/a.tar"] = b"x" * 100, '"2"'  # after a part of it was fetched

    server.fault = fault
    _, log = fetching("--requests", 1)
    wait_until(lambda: "1 of 2 files are on this machine" in log())
    assert sum(stop - start for path, start, stop in server.ranges if path == "/set/b.tar") >= size
    assert "not fetched: " in log() and "a.tar" in log()


@pytest.mark.parametrize(("room", "count"), [("8M", 2), pytest.param("2M", 0, marks=pytest.mark.variant)])
def test_it_ends_where_no_more_fits(put, fetching, room, count):
    for name in ("a", "b", "c"):
        put(name)
    _, log = fetching("--scratch-size", room)
    wait_until(lambda: f"{count} of 3 files are on this machine" in log())
    assert "no more is fetched: " in log() and "--scratch-size at least" in log()


@pytest.mark.parametrize("way", ["unmount", pytest.param("kill", marks=pytest.mark.variant)])
def test_it_ends_with_the_mount(put, fetching, way):
    sample = put("a", 5 * SIZE)  # the first of its requests waits for nothing, the second one for an hour
    mounted, _ = fetching("--prefetch-rate", "1k")
    (fetcher,) = wait_until(lambda: fetchers(mounted))
    assert (mounted.path / "shards/a/a.bin").read_bytes() == sample, "a reader waits for nobody"
    assert runs(fetcher)
    if way == "kill":
        (zygote,) = children(mounted.pid)
        os.kill(zygote, signal.SIGKILL)
    else:
        mounted.end()
    wait_until(lambda: not runs(fetcher))


def test_a_rate_needs_something_to_limit(tmp_path):
    done = touchfs("mount", tmp_path, tmp_path / "m", "--prefetch-rate", "1M")
    assert (done.returncode, "--prefetch-rate needs --prefetch" in done.stderr) == (2, True)
    done = touchfs("mount", tmp_path, tmp_path / "m", "--prefetch", "--prefetch-rate", "0")
    assert (done.returncode, "more than 0" in done.stderr) == (2, True)


def test_what_is_on_this_machine_is_left_alone(mount, put, tmp_path):
    put("a")
    mounted = mount(tmp_path / "a.tar", "--prefetch")
    assert fetchers(mounted) == []
