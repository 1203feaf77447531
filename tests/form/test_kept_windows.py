"""What is decoded of a recording is decoded once, however many threads and processes read it, and kept."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from recordings import make
from spans import span_detail

from touchfs.core.errors import DecodeLimitError, FormatError
from touchfs.core.extent import Content, Extent, Memory
from touchfs.form import kept
from touchfs.form.recordings import Decoded, piece_detail
from touchfs.form.unmeasured import Unmeasured
from touchfs.limits import LIMITS, Limits
from touchfs.media.decoder import shared
from touchfs.media.decoder.pool import DecodePool
from touchfs.source.data import DATA
from touchfs.source.scratch.write_behind import WRITE_BEHIND

RATE = 48000
_numbers = count(1)


class CountingPool(DecodePool):
    """Counts the requests that it gets."""

    def __init__(self) -> None:
        super().__init__(timeout=60)
        self.requests: list[str] = []

    def request(self, operation, *arguments, **others):  # type: ignore[no-untyped-def]
        self.requests.append(operation)
        return super().request(operation, *arguments, **others)

    def suspend(self) -> None:
        """Its processes answer nothing from now on."""
        for child in self._idle:
            os.kill(child._process.pid, signal.SIGSTOP)


@pytest.fixture(scope="module")
def one_pool() -> Iterator[CountingPool]:
    """A process that decodes takes half a second to start."""
    with CountingPool() as pool:
        yield pool


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, one_pool: CountingPool) -> CountingPool:
    one_pool.requests.clear()
    monkeypatch.setattr(shared, "shared_pool", lambda timeout: one_pool)
    return one_pool


@pytest.fixture
def own_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingPool]:
    with CountingPool() as pool:
        monkeypatch.setattr(shared, "shared_pool", lambda timeout: pool)
        yield pool


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture
def mp3(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(make(directory, "a.mp3", RATE, 2), tmp_path))


def piece(path: Path, seconds: tuple[float, float] = (1, 3), limits: Limits | None = None) -> Content:
    """A content that shares nothing in memory with others, as its windows have a size of their own, unless `limits` are
    given.
    """
    source = DATA.open(str(path))
    limits = limits or Limits(window=LIMITS.window + 64 * next(_numbers))
    return Unmeasured().content(Extent(source, 0, source.size), span_detail(*seconds), limits)


def read(content: Content) -> bytes:
    return bytes(content.read(0, content.size))


@pytest.mark.usefixtures("scratch")
def test_a_file_that_is_opened_again_is_in_memory(mp3: Path, pool: CountingPool) -> None:
    """Also if it has another object for its source, and nothing is left in the scratch store."""
    whole = read(piece(mp3, limits=LIMITS))
    again = piece(mp3, limits=LIMITS)
    shutil.rmtree(os.environ["TOUCHFS_SCRATCH_DIR"])
    pool.requests.clear()
    assert read(again) == whole
    assert again.read_nowait(44, 1000) == whole[44:1044]
    assert pool.requests == []
    os.utime(mp3, ns=(0, 0))  # another version of the file
    assert read(piece(mp3, limits=LIMITS)) == whole
    assert "decode" in pool.requests


def files(scratch: Path) -> list[Path]:
    WRITE_BEHIND.wait()
    return [path for path in scratch.iterdir() if not path.name.startswith(".")]


@pytest.mark.usefixtures("scratch")
def test_readers_of_what_cannot_be_decoded_do_not_try_it_each(
    mp3: Path, own_pool: CountingPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may take the time limit for each of them. Later it is tried again."""
    pool, now = own_pool, time.monotonic()
    monkeypatch.setattr(kept, "monotonic", lambda: now)
    whole, limits = read(piece(mp3)), Limits(window=LIMITS.window + 1)
    pool.requests.clear()
    pool.suspend()  # the answer to a short recording may be there at once
    monkeypatch.setattr(pool, "timeout", 0)
    with ThreadPoolExecutor(8) as threads:
        contents = [piece(mp3, (1, 3.25), limits) for _ in range(8)]
        errors = [threads.submit(read, content).exception() for content in contents]
    assert {type(error) for error in errors} == {DecodeLimitError}
    assert len({id(error) for error in errors}) == 8
    assert pool.requests == ["decode"]
    monkeypatch.setattr(pool, "timeout", 60)
    with pytest.raises(FormatError, match="--decode-timeout"):
        read(contents[0])
    now += kept.RETRY_SECONDS
    assert read(contents[0])[44 : len(whole)] == whole[44:]
    assert pool.requests == ["decode", "decode"]


def test_it_is_decoded_once(mp3: Path, scratch: Path, pool: CountingPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        (whole,) = set(threads.map(lambda _: read(piece(mp3)), range(8)))
    assert pool.requests == ["demux", "decode"]
    read(piece(mp3, (1, 3.5)))  # another piece
    assert pool.requests == ["demux", "decode", "decode"]
    source = DATA.open(str(mp3))
    decoded = Decoded(RATE, 2).content(Extent(source, 0, source.size), piece_detail(RATE, 2 * RATE), LIMITS)
    assert read(decoded) == whole  # the same samples
    assert pool.requests == ["demux", "decode", "decode"]


READER = """
    import sys, threading, hashlib, json
    from touchfs.core.extent import Extent
    from touchfs.form.unmeasured import Unmeasured
    from touchfs.limits import LIMITS
    from touchfs.media.decoder.pool import DecodePool
    from touchfs.segments.packed_times import pack_times
    from touchfs.segments.times import Times
    from touchfs.source.data import DATA

    requests, sums = [], set()
    request = DecodePool.request

    def counted(pool, operation, *arguments, **others):
        requests.append(operation)
        return request(pool, operation, *arguments, **others)

    DecodePool.request = counted

    def read():
        source = DATA.open(sys.argv[1])
        content = Unmeasured().content(Extent(source, 0, source.size), pack_times(Times(1, 3)), LIMITS)
        sums.add(hashlib.sha256(content.read(0, content.size)).hexdigest())

    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=read) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(json.dumps([requests, sorted(sums)]))
"""


def test_two_processes_decode_it_once(mp3: Path, scratch: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(READER), str(mp3)]
    readers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    results = [json.loads(reader.communicate(timeout=120)[0]) for reader in readers]
    requests = [request for requests, _ in results for request in requests]
    assert sorted(requests) == ["decode", "demux"]
    assert {tuple(sums) for _, sums in results} == {(hashlib.sha256(read(piece(mp3))).hexdigest(),)}


def test_a_later_process_decodes_nothing(mp3: Path, scratch: Path, pool: CountingPool) -> None:
    read(piece(mp3))
    pool.requests.clear()
    command = [sys.executable, "-c", textwrap.dedent(READER), str(mp3)]
    done = subprocess.run(command, input="go\n", capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])[0] == []


def damage_all(scratch: Path, damage: str) -> None:
    for path in files(scratch):
        data = path.read_bytes()
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes({"flip": flipped, "cut": data[:-1], "empty": b"", "longer": data + b"\0"}[damage])


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer"])
def test_what_is_damaged_is_decoded_again(mp3: Path, scratch: Path, pool: CountingPool, damage: str) -> None:
    whole = read(piece(mp3))
    damage_all(scratch, damage)
    for expected in (["decode"], []):
        pool.requests.clear()
        assert read(piece(mp3)) == whole
        assert pool.requests == expected
        WRITE_BEHIND.wait()


def test_what_is_damaged_is_found_again_by_another_process(mp3: Path, scratch: Path, pool: CountingPool) -> None:
    whole = read(piece(mp3))
    damage_all(scratch, "flip")
    command = [sys.executable, "-c", textwrap.dedent(READER), str(mp3)]
    done = subprocess.run(command, input="go\n", capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()[-1]
    assert json.loads(told) == [["demux", "decode"], [hashlib.sha256(whole).hexdigest()]]
    pool.requests.clear()
    assert read(piece(mp3)) == whole
    assert pool.requests == []


@pytest.mark.usefixtures("as_root")
def test_what_somebody_else_planted_is_not_believed(mp3: Path, scratch: Path, pool: CountingPool) -> None:
    whole = read(piece(mp3))
    for path in files(scratch):
        os.chown(path, 12345, 12345)
    pool.requests.clear()
    assert read(piece(mp3)) == whole
    assert pool.requests == ["decode"]
    assert all(path.stat().st_uid != 12345 for path in files(scratch) if path.stat().st_size > 9**5)


def test_a_changed_recording_is_another_one(mp3: Path, scratch: Path, pool: CountingPool) -> None:
    before = read(piece(mp3))
    status = mp3.stat()
    os.utime(mp3, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert read(piece(mp3)) == before
    assert pool.requests == ["demux", "decode"] * 2


@pytest.mark.parametrize("trouble", ["full", "file", "others"])
def test_without_a_usable_store_it_is_decoded_all_the_same(
    mp3: Path,
    scratch: Path,
    pool: CountingPool,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    request: pytest.FixtureRequest,
) -> None:
    if trouble == "full":
        monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1k")
    elif trouble == "file":
        scratch.write_bytes(b"no directory")
    else:
        request.getfixturevalue("as_root")
        scratch.mkdir()
        os.chown(scratch, 12345, 12345)
    content = piece(mp3)
    assert len(read(content)) == content.size == 44 + 2 * RATE * 4
    assert read(content) == read(piece(mp3))
    assert pool.requests[:2] == ["demux", "decode"]
    assert not scratch.is_dir() or sum(path.stat().st_size for path in files(scratch)) <= 1000


def test_an_error_is_not_kept(directory: Path, tmp_path: Path, scratch: Path, pool: CountingPool) -> None:
    data = bytearray(make(directory, "a.opus", RATE, 2).read_bytes())
    data[len(data) // 2 :: 50] = bytes(len(range(len(data) // 2, len(data), 50)))
    path = tmp_path / "damaged.opus"
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(FormatError):
            read(piece(path, (6, 7)))
    assert not scratch.exists() or files(scratch) == []


def test_bytes_in_memory_and_pcm_are_not_kept(directory: Path, scratch: Path, pool: CountingPool, mp3: Path) -> None:
    data = mp3.read_bytes()
    read(Unmeasured().content(Extent(Memory(data), 0, len(data)), span_detail(0, 1), LIMITS))
    wav = make(directory, "a.wav", RATE, 2, "-c:a", "pcm_s24le")
    source = DATA.open(str(wav))
    read(Decoded(RATE, 2).content(Extent(source, 0, source.size), piece_detail(0, RATE), LIMITS))
    assert not scratch.exists()
