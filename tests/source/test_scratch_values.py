"""Small values in the scratch store: verified when they are read, made once, and never in the way of a reader."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from touchfs.core.errors import FormatError
from touchfs.source.scratch.store import Scratch
from touchfs.source.scratch.write_behind import WRITE_BEHIND

NAME = f"{7:032x}"
# Makes a value, says so, and goes on when it is told.
MAKER = """
import sys
from touchfs.source.scratch.store import Scratch
def make():
    print("making", flush=True)
    sys.stdin.readline()
    return b"a value"
print(Scratch(sys.argv[1], 10**6).kept_or_made(sys.argv[2], make))
"""


def maker(directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", MAKER, str(directory), NAME]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 5000])
def test_kept(tmp_path: Path, value: bytes) -> None:
    store = Scratch(str(tmp_path / "store"))
    assert store.kept(NAME) is None
    store.keep(NAME, memoryview(value))
    assert store.kept(NAME) == value
    store.keep(NAME, b"it is kept already")
    assert store.kept(NAME) == value
    assert store.find(NAME) is None, "a value is no file"


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data[:20] + b"X" + data[21:], lambda data: b""])
def test_a_damaged_value_is_missing_and_made_again(tmp_path: Path, spoil: object) -> None:
    store = Scratch(str(tmp_path))
    store.keep(NAME, b"precious value")
    path = tmp_path / f"{NAME}.value"
    path.write_bytes(spoil(path.read_bytes()))  # type: ignore[operator]
    assert store.kept(NAME) is None
    assert store.kept_or_made(NAME, lambda: b"precious value") == b"precious value"
    WRITE_BEHIND.wait()
    assert store.kept(NAME) == b"precious value"


def test_threads_make_it_once(tmp_path: Path) -> None:
    store, together, made = Scratch(str(tmp_path)), Barrier(8), []

    def read(_: int) -> bytes:
        together.wait()
        return store.kept_or_made(NAME, lambda: (made.append(1), b"a value")[1])

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(read, range(8))) == {b"a value"}
    assert len(made) == 1


def test_processes_make_it_once(tmp_path: Path) -> None:
    with maker(tmp_path) as first:
        assert first.stdout is not None and first.stdout.readline() == "making\n"
        with maker(tmp_path) as second:
            assert first.communicate("\n")[0] == "b'a value'\n"
            assert second.communicate("\n")[0] == "b'a value'\n", "without making it"


def test_another_makes_it_if_the_first_is_killed(tmp_path: Path) -> None:
    with maker(tmp_path) as first:
        assert first.stdout is not None and first.stdout.readline() == "making\n"
        with maker(tmp_path) as second:
            first.kill()
            assert second.communicate("\n")[0] == "making\nb'a value'\n"
    assert sorted(os.listdir(tmp_path)) == [".touchfs-scratch.lock", f"{NAME}.value"]


def test_an_error_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    def make() -> bytes:
        raise FormatError("damaged")

    store = Scratch(str(tmp_path))
    with pytest.raises(FormatError, match="damaged"):
        store.kept_or_made(NAME, make)
    assert os.listdir(tmp_path) == []
    assert store.kept_or_made(NAME, lambda: b"sound") == b"sound"


def test_a_store_without_room_keeps_nothing(tmp_path: Path) -> None:
    for store in (Scratch("/proc/x"), Scratch(str(tmp_path), 100)):
        assert store.kept_or_made(NAME, lambda: bytes(1000)) == bytes(1000)
    WRITE_BEHIND.wait()
    assert os.listdir(tmp_path) == [".touchfs-scratch.lock"]


@contextmanager
def nothing_can_be_written(directory: Path) -> Iterator[None]:
    """As if the disk did not answer: another process has the account."""
    with open(directory / ".touchfs-scratch.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_answer_does_not_wait_for_the_disk_and_others_wait_for_the_value(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path))
    store.keep(f"{8:032x}", b"another")
    with ThreadPoolExecutor() as threads:
        with nothing_can_be_written(tmp_path):
            assert store.kept_or_made(NAME, lambda: b"a value") == b"a value"
            assert store.kept(NAME) is None
            other = threads.submit(store.kept_or_made, NAME, lambda: b"made again")
            with pytest.raises(TimeoutError):
                other.result(0.2)
        assert other.result(60) == b"a value"
    assert store.kept(NAME) == b"a value"


def test_what_is_written_when_a_process_forks_is_not_shared(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path))
    assert store.kept_or_made(NAME, lambda: b"a value") == b"a value"
    if (child := os.fork()) == 0:
        kept = store.kept(NAME), store.kept_or_made(f"{8:032x}", lambda: b"of the copy")
        WRITE_BEHIND.wait()
        os._exit(kept != (b"a value", b"of the copy"))
    assert os.waitpid(child, 0)[1] == 0
    assert store.kept(f"{8:032x}") == b"of the copy"


def test_what_waits_to_be_written_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("touchfs.source.scratch.write_behind.WAITING_BYTES", 100)
    store = Scratch(str(tmp_path))
    store.keep(f"{8:032x}", b"another")
    with ThreadPoolExecutor() as threads:
        with nothing_can_be_written(tmp_path):
            assert store.kept_or_made(NAME, lambda: bytes(90)) == bytes(90)
            more = threads.submit(store.kept_or_made, f"{9:032x}", lambda: bytes(20))
            with pytest.raises(TimeoutError):
                more.result(0.2)
        assert more.result(60) == bytes(20)
    WRITE_BEHIND.wait()
    assert (store.kept(NAME), store.kept(f"{9:032x}")) == (bytes(90), bytes(20))
