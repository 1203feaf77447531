"""The numbers of a real mount: exact, and complete after kills."""

import os
import signal
import tarfile
import time
from collections.abc import Iterator

import numpy as np
import pytest
import soundfile
from mount_numbers import Numbers, fetch, numbers_of, settled
from mounts import WAYS, Mount, touchfs, ways
from slow import readers, slow
from touchfs_mount.numbers.slots import OPERATIONS
from waiting import wait_until


@pytest.fixture(scope="module")
def plain(speech, tmp_path_factory) -> Iterator[Mount]:
    """A mount that several tests read."""
    mounted = Mount(tmp_path_factory.mktemp("plain") / "mnt", speech)
    yield mounted
    mounted.end()


@pytest.mark.parametrize("way", ways("two-workers"))
def test_what_readers_do_is_counted_exactly(mount, speech, way):
    mounted = mount(speech, "--metrics", 0, *WAYS[way])
    files, told = sorted(mounted.files()), mounted.info()
    before = settled(told["metrics"])
    sizes = [len(path.read_bytes()) for path in files]
    after = settled(told["metrics"])
    assert after.total("read_bytes") - before.total("read_bytes") == sum(sizes)
    assert after.requests("read") - before.requests("read") >= sum(size > 0 for size in sizes)
    assert [after.requests(name) for name in ("open", "release", "opendir", "write", "create")] == [0] * 5
    again = [path.read_bytes() for path in files]  # from the kernel's cache
    assert list(map(len, again)) == sizes
    last = settled(told["metrics"])
    assert {name: last.requests(name) for name in OPERATIONS} == {name: after.requests(name) for name in OPERATIONS}
    assert last["touchfs_workers",] == told["workers"]
    assert last["touchfs_info", told["touchfs"]] == 1


def test_a_small_file_is_one_read(mount, speech):
    """None is larger than a request; and nothing is requested twice."""
    mounted = mount(speech, "--metrics", 0)
    small = [path for path in mounted.files() if 0 < path.stat().st_size <= 1 << 17]
    url = mounted.info()["metrics"]
    before = settled(url)
    size = sum(len(path.read_bytes()) for path in small)
    after = settled(url)
    assert after.requests("read") - before.requests("read") == len(small) > 0
    assert after.requests("lookup") == before.requests("lookup")
    assert after.total("read_bytes") - before.total("read_bytes") == size


def test_errors_are_counted_by_errno(plain):
    """Not those that the kernel gives by itself: it knows that the data are not to be written. A reply is counted once
    it is given.
    """
    mounted, path = plain, next(plain.files())
    before = numbers_of(mounted)
    for _ in range(3):
        with pytest.raises(OSError):
            os.open(path, os.O_RDWR)
        with pytest.raises(OSError):
            os.open(mounted.path / ".touchfs/info", os.O_RDWR)
        with pytest.raises(OSError):
            os.getxattr(path, "user.touchfs.none")
        with pytest.raises(OSError):
            os.stat(mounted.path / "shards" / ("x" * 256))
        assert not (mounted.path / "shards" / "missing").exists()

    def counted() -> dict[str, float]:
        after = numbers_of(mounted)
        changes = {key[1]: after[key] - before[key] for key in after if key[0] == "touchfs_errors_total"}
        return {name: count for name, count in changes.items() if count}

    wait_until(lambda: sum(counted().values()) >= 9)
    assert counted() == {"ENODATA": 3, "EROFS": 3, "ENAMETOOLONG": 3}


def test_a_healthy_mount_has_no_errors(mount, speech):
    """Not even when `ls -l` looks for the labels and capabilities that no file has."""
    mounted = mount(speech)
    for path in mounted.files():
        assert path.read_bytes() is not None
        for name in ("security.selinux", "security.capability"):
            with pytest.raises(OSError):
                os.getxattr(path, name)
    numbers_of(mounted)  # its close is a flush
    numbers = numbers_of(mounted)
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


def test_killed_processes_lose_nothing(mount, speech):
    """Workers, and the one that serves control files."""
    mounted = mount(speech, "--workers", 2, "--metrics", 0)
    url = mounted.info()["metrics"]
    for path in mounted.files():
        path.read_bytes()
    numbers_of(mounted)
    before, serving = settled(url), mounted.serving()
    for process in serving:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: len(now := mounted.serving()) == len(serving) and not set(now) & set(serving))
    after = settled(url)
    assert [key for key in before if after[key] < before[key]] == []
    assert {name: after.requests(name) for name in OPERATIONS} == {name: before.requests(name) for name in OPERATIONS}
    assert after.total("worker_restarts") == len(serving) == 3
    assert after.total("resends") > before.total("resends")
    assert after.total("strikes") == 0
    assert numbers_of(mounted).requests("open") == before.requests("open") + 1


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


@pytest.mark.parametrize("way", ways())
def test_a_request_that_waits_is_in_flight_and_its_wait_is_counted(mount, copied, tmp_path, way):
    with slow(copied, tmp_path / "slow") as files:
        assert touchfs("index", files.path).returncode == 0
        mounted = mount(files.path, "--metrics", 0, *WAYS[way])
        path = next(path for path in sorted(mounted.files()) if path.suffix == ".wav")
        url = mounted.info()["metrics"]
        settled(url)
        for data in files.path.rglob("*.bin"):  # what indexing has read of them is in the page cache
            with open(data) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        files.hang()
        with readers(files, path) as (reader,):
            wait_until(lambda: Numbers(fetch(url))["touchfs_requests_in_flight",] > 0)
            time.sleep(0.2)
            files.go_on()
            reader.communicate()
        assert settled(url)["touchfs_request_seconds_sum", "read"] > 0.2


def test_reloads_are_counted(plain):
    assert touchfs("reload", plain.path).returncode == 0
    assert numbers_of(plain).total("reloads") == 1


def test_labels_hold_no_names_of_samples(plain):
    paths = [path.relative_to(plain.path / "shards") for path in (plain.path / "shards").rglob("*")]
    names = {part for path in paths for part in path.with_suffix("").parts if len(part) > 2}
    assert len(names) > 10
    text = (plain.path / ".touchfs/stats").read_text()
    assert [name for name in names if name in text] == []
