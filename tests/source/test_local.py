import errno
import gc
import os
import pickle
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from conformance import check_reads, check_source

from touchfs.core.errors import ChangedError, NotFoundError, SourceError, TouchfsError
from touchfs.core.extent import Extent
from touchfs.source import local
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.local import LocalFile

DATA = random.Random(1).randbytes(50_000)
OTHER = random.Random(2).randbytes(50_000)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(local, "monotonic", clock)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "audio.bin"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(local._pool, "limit", 3)
    return 3


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A file on a file system that does not know RWF_NOWAIT, but has nothing to wait for."""
    path = Path(f"/dev/shm/touchfs-test-{os.getpid()}")
    path.write_bytes(DATA)
    yield path
    path.unlink()


def open_files(directory: Path) -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith(f"{directory}/") for link in links)


def test_it_is_a_source(tmp_path: Path) -> None:
    numbers = count()

    def make(data: bytes) -> LocalFile:
        path = tmp_path / f"{next(numbers)}.bin"
        path.write_bytes(data)
        return LocalFile(str(path))

    check_source(make)


def test_extents_of_it_are_contents(path: Path) -> None:
    source = LocalFile(str(path))
    check_reads(Extent(source, 0, len(DATA)), DATA)
    check_reads(Extent(source, 12345, 678), DATA[12345 : 12345 + 678])


def test_read_into_and_size(path: Path) -> None:
    source = LocalFile(str(path))
    assert source.size == len(DATA)
    buffer = bytearray(b"<" + bytes(1000) + b">")
    source.read_into(40_000, memoryview(buffer)[1:-1])
    assert buffer == b"<" + DATA[40_000:41_000] + b">"
    with pytest.raises(SourceError, match="ends here"):
        source.read_into(49_500, memoryview(bytearray(1000)))


def test_what_the_page_cache_holds_is_read_at_once(path: Path, in_memory: Path) -> None:
    for place in (path, in_memory):
        source = LocalFile(str(place))
        source.read(0, len(DATA))
        assert source.read_nowait(100, 5000) == DATA[100:5100]


def test_where_the_flag_is_unknown_and_reading_may_wait_it_is_not_tried(in_memory: Path) -> None:
    """`/proc` does not know the flag either, and stands for a network file system."""
    source = LocalFile("/proc/self/cmdline")
    assert source.read(0, 3)
    assert source.read_nowait(0, 3) is None


def replace_by_rename(path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(OTHER)
    os.utime(new, ns=(0, path.stat().st_mtime_ns))
    os.replace(new, path)


def write_in_place(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(OTHER)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def truncate(path: Path) -> None:
    os.truncate(path, 20_000)


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def cover_parent(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.write_bytes(b"")


CHANGES = [replace_by_rename, write_in_place, truncate, grow, os.unlink, make_directory, make_pipe, cover_parent]


@pytest.mark.parametrize("change", CHANGES)
def test_another_file_is_never_read(path: Path, clock: Clock, change: object) -> None:
    source = LocalFile(str(path))
    assert source.read(0, 10) == DATA[:10]
    change(path)  # type: ignore[operator]
    clock.now += local.VERIFY_SECONDS
    for _ in range(2):  # and it stays so
        assert source.read_nowait(0, 10) is None
        with pytest.raises(ChangedError, match=r"audio\.bin: was "):
            source.read(0, 10)
        with pytest.raises(ChangedError):
            source.open()
        with pytest.raises(ChangedError):
            source.read_into(0, memoryview(bytearray(10)))


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_before_it_was_opened(path: Path, change: object) -> None:
    source = LocalFile(str(path), Fingerprint.of(os.stat(path)))
    change(path)  # type: ignore[operator]
    with pytest.raises(ChangedError):
        source.read(0, 10)
    with pytest.raises(ChangedError):
        pickle.loads(pickle.dumps(source)).read(0, 10)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_the_descriptor_was_given_up(path: Path, clock: Clock, change: object) -> None:
    source = LocalFile(str(path))
    source.open()
    source.close()
    change(path)  # type: ignore[operator]
    assert source.read_nowait(0, 10) is None
    with pytest.raises(ChangedError):
        source.read(0, 10)


def test_to_verify_is_to_wait(path: Path, clock: Clock) -> None:
    """On a file system that does not answer, `stat` and `open` do not return."""
    source = LocalFile(str(path))
    assert not source.is_verified
    assert source.read_nowait(0, 10) is None
    source.open()
    assert source.is_verified
    assert source.read_nowait(0, 10) == DATA[:10]
    clock.now += local.VERIFY_SECONDS
    assert not source.is_verified
    assert source.read_nowait(0, 10) is None
    assert source.read(0, 10) == source.read_nowait(0, 10) == DATA[:10]


def test_closing_a_descriptor_may_hang(tmp_path: Path, few_descriptors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a file nobody reads any more, whose file system is asked at its close and does not answer."""
    answers, close = threading.Event(), os.close

    def hang(number: int) -> None:
        if threading.current_thread().name == "closer":
            answers.wait()
        close(number)

    monkeypatch.setattr(local, "_pool", local._Pool())
    monkeypatch.setattr(local._pool, "limit", few_descriptors)
    monkeypatch.setattr(os, "close", hang)
    sources = many(tmp_path, 3 * few_descriptors)
    try:
        for i, source in enumerate(sources):
            assert source.read(0, 10) == bytes([i]) * 10
    finally:
        answers.set()


def test_a_file_that_comes_back_is_read_again(path: Path, clock: Clock) -> None:
    source = LocalFile(str(path))
    source.open()
    os.rename(path, path.with_suffix(".away"))
    clock.now += 1
    with pytest.raises(ChangedError, match="was removed"):
        source.read(0, 10)
    os.rename(path.with_suffix(".away"), path)
    assert source.read(0, 10) == DATA[:10]


def test_a_file_is_verified_once_a_second(path: Path, clock: Clock) -> None:
    source = LocalFile(str(path))
    source.open()
    replace_by_rename(path)
    clock.now += local.VERIFY_SECONDS * 0.99
    assert source.read(0, len(DATA)) == DATA, "until then it is the old file, all of it"
    clock.now += local.VERIFY_SECONDS * 0.02
    with pytest.raises(ChangedError):
        source.read(0, 10)


def test_a_short_read_verifies_at_once(path: Path, clock: Clock) -> None:
    source = LocalFile(str(path))
    source.open()
    truncate(path)
    assert source.read(0, 20_000) == DATA[:20_000]
    assert source.read_nowait(19_999, 2) is None
    with pytest.raises(ChangedError):
        source.read(19_999, 2)


def test_a_listing_that_had_no_inodes(path: Path) -> None:
    stat = os.stat(path)
    source = LocalFile(str(path), Fingerprint(stat.st_size, stat.st_mtime_ns))
    assert source.read(5, 5) == DATA[5:10]
    source.close()
    replace_by_rename(path)
    with pytest.raises(ChangedError):
        source.read(5, 5)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("missing", NotFoundError, "no such file"),
        ("file/below", NotFoundError, "no such file"),
        ("directory", SourceError, "Is a directory"),
        ("loop", SourceError, "symbolic links"),
        ("pipe", SourceError, "Illegal seek"),
        ("socket", SourceError, "No such device"),
        ("x" * 300, NotFoundError, "no such file"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, error: type[TouchfsError], words: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    with pytest.raises(error, match=words) as caught:
        LocalFile(str(tmp_path / name)).read(0, 1)
    assert type(caught.value) is error
    assert caught.value.path == str(tmp_path / name)


def test_a_disk_that_fails() -> None:
    """`/proc/self/mem` opens, and cannot be read at 0."""
    with pytest.raises(SourceError, match="Input/output error") as caught:
        LocalFile("/proc/self/mem").read(0, 1)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EIO


def many(directory: Path, number: int) -> list[LocalFile]:
    sources = []
    for i in range(number):
        path = directory / f"{i}.bin"
        path.write_bytes(bytes([i]) * 1000)
        sources.append(LocalFile(str(path)))
    return sources


def test_few_descriptors_for_many_sources(tmp_path: Path, few_descriptors: int) -> None:
    sources = many(tmp_path, 20)
    for _ in range(2):
        for i, source in enumerate(sources):
            assert source.read(0, 10) == bytes([i]) * 10
            assert open_files(tmp_path) <= few_descriptors
    for source in sources:
        source.close()
    assert open_files(tmp_path) == 0


def test_the_descriptor_in_use_stays_open(tmp_path: Path, few_descriptors: int, clock: Clock) -> None:
    hot, *others = many(tmp_path, 10)
    hot.open()
    number = hot._descriptor
    for source in others:
        clock.now += 1
        hot.read(0, 1)
        source.read(0, 1)
    assert hot._descriptor is number


def test_descriptors_are_taken_away_under_concurrent_reads(tmp_path: Path, few_descriptors: int) -> None:
    """Each byte tells which file it is from: a read on a number that was closed and given again would show."""
    sources = many(tmp_path, 12)

    def read(seed: int) -> None:
        choice = random.Random(seed).choice
        for _ in range(300):
            source = choice(sources)
            expected = bytes([sources.index(source)]) * 500
            assert source.read(100, 500) == expected
            assert source.read_nowait(100, 500) in (expected, None)
            if seed % 3 == 0:
                source.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(8)))
    for source in sources:
        source.close()
    gc.collect()
    assert open_files(tmp_path) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_while_other_threads_open_files(tmp_path: Path, few_descriptors: int) -> None:
    sources = many(tmp_path, 12)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for source in sources[:6]:
                source.read(0, 1)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(4):
            child = os.fork()
            if not child:
                right = all(source.read(5, 50) == bytes([i]) * 50 for i, source in enumerate(sources))
                os._exit(0 if right else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_the_limit_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in (
        (local.resource.RLIM_INFINITY, local.DESCRIPTORS_MAX),
        (1024, 512),
        (64, 16),
        (80, 32),
        (8, 16),
    ):
        monkeypatch.setattr(local.resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert local._Pool().limit == expected


def test_a_file_that_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        (tmp_path / f"{number}").write_bytes(DATA)
        LocalFile(str(tmp_path / f"{number}")).read(0, 10)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_process_ends_without_a_word_whatever_still_has_a_file(path: Path) -> None:
    """Modules are emptied one after another, and what hangs on a module may go after it is empty."""
    code = (
        "import contextlib, sys; from touchfs.source.local import LocalFile; "
        "contextlib.last = LocalFile(sys.argv[1]); contextlib.last.read(0, 1)"
    )
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")
