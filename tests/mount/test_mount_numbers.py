"""The numbers of a real mount: exact, and complete after kills."""

import os
import signal
import tarfile
import time
from collections.abc import Iterator

import numpy as np
import pytest
import soundfile
from mount_numbers import Numbers, numbers_of
from mounts import WAYS, Mount, touchfs, ways
from slow import readers, slow
from waiting import wait_until


@pytest.fixture(scope="module")
def plain(speech, tmp_path_factory) -> Iterator[Mount]:
    """A mount that several tests read."""
    mounted = Mount(tmp_path_factory.mktemp("plain") / "mnt", speech)
    yield mounted
    mounted.end()


def settled(mounted: Mount) -> Numbers:
    """The numbers once all files are released: the kernel does that behind the close."""

    def look() -> Numbers | None:
        numbers = numbers_of(mounted)
        released = numbers.requests("open") == numbers.requests("release") + 1
        # A release is counted when it begins: another worker may be at it still. The open of the numbers stays.
        return numbers if released and numbers["touchfs_requests_in_flight",] <= 1 else None

    return wait_until(look)


@pytest.mark.parametrize("way", ways("two-workers"))
def test_what_readers_do_is_counted_exactly(mount, speech, way):
    mounted = mount(speech, *WAYS[way])
    files = sorted(mounted.files())
    before = settled(mounted)
    sizes = [len(path.read_bytes()) for path in files]
    after = settled(mounted)
    # The reader of the numbers has opened them in between, and read them.
    looks = 1
    assert after.requests("open") - before.requests("open") >= len(files) + looks
    looks = after.requests("open") - before.requests("open") - len(files)
    assert after.requests("release") - before.requests("release") == len(files) + looks
    data = after.total("read_bytes") - before.total("read_bytes")
    assert sum(sizes) + before.size <= data <= sum(sizes) + looks * 2 * after.size
    assert after.requests("unlink") == after.requests("create") == 0
    again = [path.read_bytes() for path in files]  # from the kernel's cache, but opened
    assert list(map(len, again)) == sizes
    last = settled(mounted)
    assert last.requests("open") - after.requests("open") >= len(files)
    assert last.requests("lookup") == after.requests("lookup")
    assert last["touchfs_workers",] == mounted.info()["workers"]
    assert last["touchfs_info", mounted.info()["touchfs"]] == 1


def test_one_open_of_each_file_is_one_request(mount, speech):
    """And one read, as none is larger than a request; and nothing is requested twice."""
    mounted = mount(speech)
    files = sorted(mounted.files())
    small = [path for path in files if 0 < path.stat().st_size <= 1 << 17]
    before = settled(mounted)
    size = sum(len(path.read_bytes()) for path in small)
    after = numbers_of(mounted)
    assert after.requests("open") - before.requests("open") == len(small) + 1
    # `before` was read to its end after it was made, in pieces, and the one look at `after` has not been counted.
    text_reads = after.requests("read") - before.requests("read") - len(small)
    assert 1 <= text_reads <= before.size // 4096 + 2
    assert after.total("read_bytes") - before.total("read_bytes") == size + before.size


def test_errors_are_counted_by_errno(plain):
    mounted, path = plain, next(plain.files())
    before = numbers_of(mounted)
    for _ in range(3):
        with pytest.raises(OSError):
            os.open(path, os.O_RDWR)
        with pytest.raises(OSError):
            os.getxattr(path, "user.touchfs.none")
        assert not (mounted.path / "shards" / "missing").exists()
    after = numbers_of(mounted)
    changes = {key[1]: after[key] - before[key] for key in after if key[0] == "touchfs_errors_total"}
    assert {name: count for name, count in changes.items() if count} == {"ENODATA": 3, "EROFS": 3}


@pytest.mark.parametrize("options", [(), ("--no-xattr",)], ids=["xattrs", "no-xattr"])
def test_a_healthy_mount_has_no_errors(mount, speech, options):
    """Not even when `ls -l` looks for the labels and capabilities that no file has."""
    mounted = mount(speech, *options)
    for path in mounted.files():
        assert path.read_bytes() is not None
        for name in ("security.selinux", "security.capability"):
            with pytest.raises(OSError):
                os.getxattr(path, name)
    numbers = settled(mounted)
    assert numbers.requests("flush") > 0 and numbers.requests("getxattr") > 0
    assert {key: count for key, count in numbers.items() if key[0] == "touchfs_errors_total" and count} == {}


def test_what_is_rendered_once_is_found_by_the_next_mount(mount, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", os.fspath(tmp_path / "scratch"))
    soundfile.write(tmp_path / "a.flac", np.sin(np.arange(40 * 16000) / 9), 16000)
    with tarfile.open(tmp_path / "s.tar", "w") as file:
        file.add(tmp_path / "a.flac", "a.flac")

    def counts() -> tuple[float, ...]:
        """Of a new mount that has read two spans, each a request."""
        mounted = mount(tmp_path / "s.tar")
        for span in ("1-2", "2-3"):
            assert len((mounted.path / "slices" / span / "s/a.wav").read_bytes()) == 32044
        numbers = numbers_of(mounted)
        mounted.end()
        scratch = (numbers["touchfs_cache_hits_total", "scratch"], numbers["touchfs_cache_misses_total", "scratch"])
        return *scratch, numbers.total("renderings")

    assert counts() == (0, 2, 2)
    assert counts() == (2, 0, 0)


def test_a_window_of_a_recording_answers_several_reads(mount, tmp_path):
    soundfile.write(tmp_path / "a.flac", np.sin(np.arange(40 * 16000) / 9), 16000)
    with tarfile.open(tmp_path / "s.tar", "w") as file:
        file.add(tmp_path / "a.flac", "a.flac")
    mounted = mount(tmp_path / "s.tar")
    assert len((mounted.path / "slices/1-38/s/a.wav").read_bytes()) == 44 + 37 * 32000
    numbers = numbers_of(mounted)
    hits, misses = (numbers[f"touchfs_cache_{end}_total", "window"] for end in ("hits", "misses"))
    assert hits > 0 and misses > 0


def test_killed_workers_lose_nothing(mount, speech):
    mounted = mount(speech, "--workers", 2)
    for path in mounted.files():
        path.read_bytes()
    before = settled(mounted)
    workers = mounted.workers()
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(mounted.workers()) == len(workers) and not set(mounted.workers()) & set(workers))
    after = numbers_of(mounted)
    counters = [key for key in before if key != ("touchfs_requests_in_flight",)]
    assert [key for key in counters if after[key] < before[key]] == []
    assert after.requests("open") - before.requests("open") <= 2
    assert after.total("worker_restarts") == len(workers)
    assert after.total("resends") > before.total("resends")
    assert after.total("strikes") == 0
    # The other worker may have been at a release.
    wait_until(lambda: numbers_of(mounted)["touchfs_requests_in_flight",] == 1)


@pytest.mark.parametrize("way", ways())
def test_steps_are_counted_once(mount, speech, tmp_path, way):
    mounted = mount(speech, "--state-dir", tmp_path / "state", *WAYS[way])
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    for _ in range(7):
        (train / "next").read_bytes()
        (train / "peek").read_bytes()
        (train / "token").read_bytes()
    assert (train / "position").read_text() == "7\n"
    assert numbers_of(mounted).total("iterator_steps") == 7


@pytest.mark.parametrize("way", ways("one-worker", "trio"))
def test_a_request_that_waits_is_in_flight_and_its_wait_is_counted(mount, copied, tmp_path, way):
    def in_flight() -> float:
        return numbers_of(mounted)["touchfs_requests_in_flight",]

    with slow(copied, tmp_path / "slow") as files:
        assert touchfs("index", files.path).returncode == 0
        mounted = mount(files.path, *WAYS[way])
        path = next(path for path in sorted(mounted.files()) if path.suffix == ".wav")
        idle = in_flight()
        for data in files.path.rglob("*.bin"):  # what indexing has read of them is in the page cache
            with open(data) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        files.hang()
        with readers(files, path) as (reader,):
            wait_until(lambda: in_flight() > idle)
            time.sleep(0.2)
            files.go_on()
            reader.communicate()
        after = numbers_of(mounted)
        assert sum(after["touchfs_request_seconds_sum", operation] for operation in ("open", "read")) > 0.2
        wait_until(lambda: in_flight() == idle)


def test_reloads_are_counted(plain):
    assert touchfs("reload", plain.path).returncode == 0
    assert numbers_of(plain).total("reloads") == 1


def test_labels_hold_no_names_of_samples(plain):
    paths = [path.relative_to(plain.path / "shards") for path in (plain.path / "shards").rglob("*")]
    names = {part for path in paths for part in path.with_suffix("").parts if len(part) > 2}
    assert len(names) > 10
    text = (plain.path / ".touchfs/stats").read_text()
    assert [name for name in names if name in text] == []
