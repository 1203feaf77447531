"""The scratch store, shared by processes that are killed, run at once, and want more than there is room for."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_until

from touchfs.core.errors import FormatError, SourceError
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, SIZE_VARIABLE, Scratch

# Makes a file of the store at argv[1] in pieces, as many as argv[3]; says so before each, and goes on when it is told.
MAKER = """
import sys
from touchfs.source.scratch.store import Scratch
def pieces():
    for number in range(int(sys.argv[3])):
        print(number, flush=True)
        sys.stdin.readline()
        yield bytes([number]) * 100_000
held = Scratch(sys.argv[1], 10**7).make(sys.argv[2], pieces())
print("made", flush=True)
sys.stdin.readline()
"""


def name(number: int) -> str:
    return f"{number:032x}"


def stored(directory: Path) -> list[str]:
    return sorted(entry for entry in os.listdir(directory) if entry.endswith(".scratch"))


def maker(directory: Path, number: int, pieces: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAKER, str(directory), name(number), str(pieces)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go_on(process: subprocess.Popen[str]) -> str:
    """What it says next."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_made_once_and_found(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path / "deep/store"), 1000)
    assert store.find(name(1)) is None
    held = store.make(name(1), [b"one", b"", b"two"])
    assert Path(held.path).read_bytes() == b"onetwo"
    again = store.make(name(1), iter(()))
    assert again.path == held.path == store.path(name(1))
    found = store.find(name(1))
    assert found is not None and found.exists
    assert os.stat(tmp_path / "deep/store").st_mode & 0o777 == 0o700


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x" * 3_000_000
        raise FormatError("damaged")

    with pytest.raises(FormatError, match="damaged"):
        Scratch(str(tmp_path)).make(name(1), pieces())
    assert stored(tmp_path) == []


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path), 1000)
    for number in range(3):
        store.make(name(number), [bytes(300)])
        os.utime(store.path(name(number)), ns=(number, 0))
    used = store.find(name(0))
    assert used is not None
    used.close()
    store.make(name(3), [bytes(300)])
    assert stored(tmp_path) == [f"{name(number)}.scratch" for number in (0, 2, 3)]


def test_what_is_held_stays(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path), 1000)
    held = [store.make(name(number), [bytes(300)]) for number in range(3)]
    for refused in ({"pieces": [bytes(200)]}, {"pieces": iter(()), "at_least": 101}, {"pieces": (), "at_least": 1001}):
        with pytest.raises(SourceError, match=r"takes .* bytes or more .*--scratch-size"):
            store.make(name(9), **refused)  # type: ignore[arg-type]
        assert all(each.exists for each in held)
        assert len(stored(tmp_path)) == 3
    held.pop(1).close()
    assert store.make(name(9), [bytes(200)]).exists
    assert stored(tmp_path) == [f"{name(number)}.scratch" for number in (0, 2, 9)]


def test_nothing_goes_for_what_has_no_room_anyhow(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path), 1000)
    store.make(name(1), [bytes(300)])
    held = store.make(name(2), [bytes(600)])
    for size in (500, 1001):
        with pytest.raises(SourceError):
            store.make(name(3), [bytes(size)])
    assert len(stored(tmp_path)) == 2
    held.close()


def test_a_fork_holds_too(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path), 1000)
    held = store.make(name(1), [bytes(600)])
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    held.close()
    with pytest.raises(SourceError):
        store.make(name(2), [bytes(600)])
    os.close(writing)
    os.waitpid(child, 0)
    assert store.make(name(2), [bytes(600)]).exists


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    mine = [tmp_path / "notes", tmp_path / ".touchfs-tmp-0123456789abcdef", tmp_path / f"{'x' * 32}.scratch"]
    for path in mine:
        path.write_bytes(bytes(2000))
    store = Scratch(str(tmp_path), 1000)
    store.make(name(1), [bytes(900)])
    store.make(name(2), [bytes(900)])
    assert all(path.stat().st_size == 2000 for path in mine)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["make", "hold", "let go"]), st.integers(0, 5), st.integers(0, 500)), max_size=30
    )
)
def test_the_limit_is_never_passed(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Scratch(directory, 1000)
        held: dict[int, ScratchFile] = {}
        for action, number, size in steps:
            if action == "make":
                with suppress(SourceError):
                    made = store.make(name(number), [bytes(size)])
                    assert made.exists
            elif action == "hold" and (found := store.find(name(number))) is not None:
                held[number] = found
            elif action == "let go":
                held.pop(number, None)
            names = stored(Path(directory))
            assert sum(os.path.getsize(os.path.join(directory, each)) for each in names) <= 1000
            assert all(f"{name(number)}.scratch" in names and each.exists for number, each in held.items())
            assert not any(each.startswith(".touchfs-tmp-") for each in names)


def test_killed_while_it_makes_a_file(tmp_path: Path) -> None:
    """What it leaves counts no longer, whoever makes something next removes it, and the file can be made."""
    with maker(tmp_path, 1, 40) as process:
        assert hear(process) == "0"
        for number in range(1, 30):
            assert go_on(process) == str(number)
        unfinished = tmp_path / f".touchfs-tmp-{name(1)}.scratch"
        assert unfinished.stat().st_size > 10**6
        with pytest.raises(SourceError):
            Scratch(str(tmp_path), 10**6).make(name(2), [b"x"])
        process.kill()
    assert stored(tmp_path) == [unfinished.name]
    Scratch(str(tmp_path), 10**6).make(name(2), [b"x"])
    assert stored(tmp_path) == [f"{name(2)}.scratch"]


def test_killed_and_made_again(tmp_path: Path) -> None:
    with maker(tmp_path, 1, 3) as process:
        assert [hear(process), go_on(process), go_on(process)] == ["0", "1", "2"]
        process.kill()
    held = Scratch(str(tmp_path), 10**7).make(name(1), [b"whole"])
    assert Path(held.path).read_bytes() == b"whole"
    assert stored(tmp_path) == [f"{name(1)}.scratch"]


def test_two_processes_make_a_file_once(tmp_path: Path) -> None:
    with maker(tmp_path, 1, 2) as first:
        assert hear(first) == "0"
        with maker(tmp_path, 1, 2) as second:
            assert [go_on(first), go_on(first)] == ["1", "made"]
            assert hear(second) == "made", "without a piece of its own"
            second.kill()
        first.kill()
    assert stored(tmp_path) == [f"{name(1)}.scratch"]


def test_the_disk_is_full(tmp_path: Path) -> None:
    """As here, where the system refuses to make a file larger; nothing of it stays."""
    making = "Scratch(sys.argv[1]).make('0' * 32, [bytes(10**6)] * 9)"
    code = f"import sys; from touchfs.source.scratch.store import Scratch; {making}"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 10**6, 5 * 10**6)),
        capture_output=True,
        text=True,
        check=False,
    )
    told = f"{tmp_path}: the scratch store cannot be used: File too large; --scratch-dir names another place"
    assert done.stderr.splitlines()[-1] == f"touchfs.core.errors.SourceError: {told}"
    assert stored(tmp_path) == []


@pytest.mark.parametrize("place", ["/proc", "/dev/null"])
def test_a_place_that_takes_no_files(place: str) -> None:
    with pytest.raises(SourceError, match=r"the scratch store cannot be used: .*--scratch-dir"):
        Scratch(f"{place}/x").make(name(1), [b"x"])


def test_ctrl_c(tmp_path: Path) -> None:
    with maker(tmp_path, 1, 3) as process:
        assert hear(process) == "0"
        # Python notices no signal between its last look and the wait.
        wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    assert stored(tmp_path) == []


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Scratch.configured() == Scratch(str(tmp_path / "touchfs/scratch"), None)
    with monkeypatch.context() as once:  # reads ask for it, so its place is found once
        once.setattr(platformdirs, "user_cache_dir", None)
        assert Scratch.configured() == Scratch(str(tmp_path / "touchfs/scratch"), None)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Scratch.configured() == Scratch(str(tmp_path / "home/.cache/touchfs/scratch"), None)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "x"))
    monkeypatch.setenv(SIZE_VARIABLE, "1.5G")
    assert Scratch.configured() == Scratch(str(tmp_path / "x"), 1_500_000_000)
