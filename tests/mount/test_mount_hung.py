"""A shard on a file system that does not answer, or is slow, holds up nobody who reads another one."""

import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from mounts import WAYS, Mount, is_waiting, touchfs, ways
from slow import Slow, readers, slow
from touchfs_mount.mountpoints.image_records import ImageRecord
from waiting import wait_until

from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.indexing.silent import look_below
from touchfs.registry.silent import silent_paths
from touchfs.source.data import DATA

SHARDS, SAMPLES = 8, 40
AUDIO, LONG = 40_000, 2_000_000
WAV = AUDIO + 44
STUCK_SECONDS = 1.5


def audio_of(shard: int, sample: int) -> bytes:
    return (shard * 256 + sample).to_bytes(2, "little") * (AUDIO // 2)


def name_of(shard: int, sample: int) -> str:
    return f"shards/{shard:03d}/s{sample:03d}.wav"


@pytest.fixture(scope="session")
def numbered(tmp_path_factory) -> Path:
    """Shards whose bytes say where they are from."""
    directory = tmp_path_factory.mktemp("numbered")
    for shard in range(SHARDS):
        with TouchNetWriter(
            directory / f"{shard:03d}", {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
        ) as writer:
            for sample in range(SAMPLES):
                metainfo = {"key": f"s{sample:03d}", "sample_rate": 16000, "txt": "word"}
                writer.add({"audio": audio_of(shard, sample), "metainfo": json.dumps(metainfo).encode()})
            long = {"key": f"s{SAMPLES:03d}", "sample_rate": 16000, "txt": "long"}
            writer.add({"audio": bytes(LONG), "metainfo": json.dumps(long).encode()})
    return directory


@pytest.fixture(scope="module")
def slow_files(numbered, tmp_path_factory) -> Iterator[Slow]:
    with slow(numbered, tmp_path_factory.mktemp("slow") / "slow") as files:
        yield files


@pytest.fixture
def files(slow_files) -> Iterator[Slow]:
    """They answer before a test and after it."""
    yield slow_files
    slow_files.take(0)
    slow_files.go_on()


@pytest.fixture
def source(files, numbered, tmp_path) -> Path:
    """Shard 0 is on the disk, the others are on the slow file system. All are indexed."""
    source = tmp_path / "source"
    source.mkdir()
    for shard in range(SHARDS):
        (source / f"{shard:03d}").symlink_to((files.path if shard else numbered) / f"{shard:03d}")
    assert touchfs("index", source).returncode == 0
    return source


def check(mounted: Mount, shard: int, sample: int) -> None:
    assert (mounted.path / name_of(shard, sample)).read_bytes()[44:] == audio_of(shard, sample)


@pytest.mark.parametrize("way", ways())
def test_a_shard_that_hangs_holds_up_no_other(files, mount, source, way):
    mounted = mount(source, "--stuck-seconds", STUCK_SECONDS, *WAYS[way])
    check(mounted, 1, 0)
    workers = mounted.workers()
    files.hang()
    hung = [mounted.path / name_of(shard, sample) for shard in (1, 2, 3, 4) for sample in range(1, 9)]
    with readers(files, *hung) as reading:
        wait_until(lambda: all(is_waiting(process.pid) for process in reading))
        for sample in range(SAMPLES // 2):
            check(mounted, 0, sample)
        assert mounted.info()["shards"] == SHARDS
        time.sleep(2 * STUCK_SECONDS)
        for sample in range(SAMPLES // 2, SAMPLES):  # which the kernel has not asked for yet
            check(mounted, 0, sample)
        assert len(os.listdir(mounted.path / "shards" / "005")) == 3 * (SAMPLES + 1)
        assert (mounted.path / name_of(5, 3)).stat().st_size == WAV
        assert all(process.poll() is None for process in reading)
        assert mounted.workers() == workers
        files.go_on()
        for process, path in zip(reading, hung, strict=True):
            data, _ = process.communicate(timeout=60)
            shard, sample = int(path.parent.name), int(path.stem[1:])
            assert (process.returncode, data[44:]) == (0, audio_of(shard, sample))
    assert mounted.info()["internal_errors"] == 0


def test_with_a_timeout_it_is_an_error(files, mount, source):
    mounted = mount(source, "--timeout", 0.5)
    wait_until(lambda: _reads(mounted, 1, 0))
    files.hang()
    for path in (name_of(1, 1), name_of(2, 0)):
        with pytest.raises(TimeoutError) as caught:
            (mounted.path / path).read_bytes()
        assert caught.value.errno == errno.ETIMEDOUT
    wait_until(lambda: _reads(mounted, 0, 0))
    files.go_on()
    wait_until(lambda: _reads(mounted, 1, 1))


def _reads(mounted: Mount, shard: int, sample: int) -> bool:
    """On a busy machine, what does not hang may take longer than the time-out, too."""
    try:
        check(mounted, shard, sample)
    except TimeoutError:
        return False
    return True


def test_reads_that_hang_leave_the_kernel_room_for_others(files, mount, source, numbered):
    """It has 12 requests for read-ahead under way at once, unless it is told otherwise."""
    mounted = mount(source)
    files.take(0, reads=1000)
    hung = [mounted.path / name_of(shard, SAMPLES) for shard in range(1, SHARDS)] * 3
    with readers(files, *hung) as reading:
        wait_until(lambda: all(is_waiting(process.pid) for process in reading))
        assert (mounted.path / name_of(0, SAMPLES)).read_bytes()[44:] == bytes(LONG)
        files.take(0)


def test_a_mount_does_not_wait_for_a_shard_that_hangs(files, mount, source, numbered):
    """One that was indexed is as it was then; of one that never was, a text says why it is not there."""
    (source / "new").symlink_to(files.path / "001")
    files.hang()
    mounted = mount(source, "--timeout", 1)
    wait_until(lambda: _reads(mounted, 0, 0))
    assert "does not answer" in (mounted.path / "shards/new/ERROR.txt").read_text()
    assert mounted.info()["shards_with_errors"] == ["new"]
    assert (mounted.path / name_of(1, 2)).stat().st_size == WAV
    with pytest.raises(TimeoutError):
        check(mounted, 1, 2)
    files.go_on()
    wait_until(lambda: _reads(mounted, 1, 2))
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: (mounted.path / "shards/new/s000.wav").exists())
    assert mounted.info()["shards_with_errors"] == []


def test_a_mount_for_others_does_not_wait_for_a_shard_that_hangs(files, mount, source, numbered):
    """Who may read that shard cannot be known meanwhile, so nobody else is let in."""
    mount(source, name="first").end()
    files.hang()
    mounted = mount(source, "--timeout", 1, "--allow-other")
    wait_until(lambda: _reads(mounted, 0, 0))
    shard = (mounted.path / name_of(1, 2)).parent
    assert stat.S_IMODE(shard.stat().st_mode) == 0o700
    files.go_on()
    wait_until(lambda: _reads(mounted, 1, 2))


def test_a_reload_while_a_shard_hangs(files, mount, source, numbered):
    """Readers of that shard wait on; a new shard is there; others are read meanwhile."""
    mounted = mount(source, "--timeout", 2)
    wait_until(lambda: _reads(mounted, 1, 0))
    hung = mounted.path / name_of(1, 1)
    files.hang()
    with readers(files, *[hung] * 3) as reading:
        shutil.copytree(numbered / "001", source / "new")
        assert touchfs("reload", mounted.path).returncode == 0
        wait_until(lambda: (mounted.path / "shards/new").exists())
        assert (mounted.path / "shards/new/s007.wav").read_bytes()[44:] == audio_of(1, 7)
        wait_until(lambda: _reads(mounted, 0, 3))
        files.go_on()
        for process in reading:
            data, error = process.communicate(timeout=60)
            assert (data[44:], error) == (audio_of(1, 1), b"") or b"timed out" in error
    wait_until(lambda: _reads(mounted, 1, 1))


def test_many_paths_that_hang_are_looked_at_together(files):
    here = os.path.dirname(__file__)
    paths = [str(files.path / f"{shard:03d}") for shard in range(SHARDS)]
    look = partial(look_below, store=DATA)
    assert silent_paths([*paths, here, "/nothing"], 60, look) == frozenset()
    files.hang()
    assert silent_paths([here, *paths, "/nothing"], 1, look) == set(paths)
    files.go_on()


def test_what_is_kept_for_data_that_hang_is_listed_and_stays(files, tmp_path, monkeypatch):
    """Of data there, and of a link to such. The command ends, and nobody waits for what it has asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "link").symlink_to(files.path / "001")
    (gone := tmp_path / "gone.jsonl").write_bytes(b"{}\n")
    for source in (there := files.path / "000", tmp_path / "link", gone):
        assert touchfs("iterator", "create", source, "train").returncode == 0
    gone.unlink()
    files.hang()
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda words: touchfs("storage", *words).stdout, (["ls"], ["prune", "--json"]))
        shown, removed = next(done), json.loads(next(done))
    files.go_on()
    lines = [line.split() for line in shown.splitlines()]
    silent = {(line[2], line[-1]) for line in lines if "silent" in line}
    assert silent >= {("index", str(there)), ("state", str(there)), ("index", str(tmp_path / "link"))}
    assert "nobody knows whether they are gone" in shown
    assert {each["about"] for each in removed} == {str(gone)}
    assert "silent" not in touchfs("storage", "ls").stdout


def test_tars_of_an_image_that_hang_are_told_from_those_that_have_changed(files, tmp_path):
    """The kernel reads the tars of an image itself, so only `touchfs status` looks at them."""
    (there := tmp_path / "a.tar").write_bytes(b"tar")
    paths = [there, tmp_path / "gone.tar", silent := files.path / "001"]
    devices = [
        (str(path), found.st_size, found.st_mtime_ns, found.st_ino) for path in paths for found in [there.stat()]
    ]
    record = ImageRecord(0, "source", "image", "since", 3, 3, devices, False)
    files.hang()
    changed, unseen = record.look()
    files.go_on()
    assert (changed, unseen) == ([str(tmp_path / "gone.tar")], [str(silent)])
