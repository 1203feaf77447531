"""Many small files in the scratch store: they are not counted each time, and the limit holds whoever is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from touchfs.source.scratch.account import Account
from touchfs.source.scratch.store import Scratch

LIMIT = 1_000_000
# Keeps values of 2,000 bytes with the numbers from argv[2] to argv[3]. Prints how often it lists the directory.
KEEPER = f"""
import os, sys
from touchfs.source.scratch.store import Scratch
scans, scandir = [], os.scandir
os.scandir = lambda path: (scans.append(path), scandir(path))[1]
store, first, last = Scratch(sys.argv[1], {LIMIT}), int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    store.keep(f"{{number:032x}}", bytes(1984))
print(len(scans))
"""
# Starts a process that makes files and values of random sizes, and prints its number; or waits for the end of one.
# Such a process is a fork: starts of Python would take most of the time.
WRITERS = f"""
import os, random, sys
from touchfs.source.scratch.store import Scratch
store = Scratch(sys.argv[1], {LIMIT})
for line in sys.stdin:
    child = os.fork() if line == "start\\n" else os.wait()[0]
    while not child:
        name, size = f"{{random.randrange(200):032x}}", random.randrange(40_000)
        if random.random() < 0.5:
            store.keep(name, bytes(size))
        else:
            store.make(name, [bytes(size // 7 + 1)] * 7).close()
    print(child, flush=True)
"""


def name(number: int) -> str:
    return f"{number:032x}"


def used(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if path.suffix in (".scratch", ".value"))


def account(directory: Path) -> Account | None:
    descriptor = os.open(directory / ".touchfs-scratch.lock", os.O_RDONLY)
    try:
        return Account.load(descriptor)
    finally:
        os.close(descriptor)


def test_many_small_files_of_two_processes(tmp_path: Path) -> None:
    parts = [("0", "600"), ("5000", "5600")]
    keepers = [
        subprocess.Popen([sys.executable, "-c", KEEPER, tmp_path, *part], stdout=subprocess.PIPE, text=True)
        for part in parts
    ]
    most = 0
    while any(keeper.poll() is None for keeper in keepers):
        for keeper in keepers:
            keeper.send_signal(signal.SIGSTOP)
        most = max(most, used(tmp_path))
        for keeper in keepers:
            keeper.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            keepers[0].wait(0.05)
    scans = sum(int(keeper.communicate()[0]) for keeper in keepers)
    assert [keeper.returncode for keeper in keepers] == [0, 0]
    assert LIMIT // 2 < most <= LIMIT
    # An eviction frees a tenth of the limit, for 50 files; 1,200 files are more than twice the limit.
    assert 8 <= scans <= 24
    left = sorted(int(path.stem, 16) for path in tmp_path.glob("*.value"))
    for first, last in ((0, 600), (5000, 5600)):
        mine = [number for number in left if first <= number < last]
        assert mine == list(range(last - len(mine), last)), "those that were made last"
    said = account(tmp_path)
    assert said is not None and said.total == used(tmp_path)


def test_a_small_file_that_is_read_stays(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path), LIMIT // 4)
    for number in range(500):
        store.keep(name(number), bytes(1984))
        assert store.kept(name(number % 7)) is not None
    assert store.kept(name(250)) is None and store.kept(name(490)) is not None


def test_without_eviction_the_directory_is_listed_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KEEPER, tmp_path, "0", "300"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "1\n"


def ask(writers: "subprocess.Popen[str]", what: str) -> int:
    """The number of the process that it has started, or that has ended."""
    assert writers.stdin is not None and writers.stdout is not None
    print(what, file=writers.stdin, flush=True)
    return int(writers.stdout.readline())


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """The account never says too little, and the store never grows over its limit."""
    draw = random.Random(1)
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        for _ in range(6):
            for writer in [ask(parent, "start") for _ in range(2)]:
                time.sleep(draw.random() / 20)
                os.kill(writer, signal.SIGKILL)
            for _ in range(2):
                ask(parent, "wait")
            said = account(tmp_path)
            assert used(tmp_path) <= LIMIT
            assert said is None or said.total >= used(tmp_path)
        parent.communicate()
    store = Scratch(str(tmp_path), LIMIT)
    store.make(name(1000), [bytes(LIMIT * 19 // 20)]).close()
    said = account(tmp_path)
    assert said is not None and said.total == used(tmp_path) <= LIMIT
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".touchfs-tmp-")]


def test_a_killed_writer_holds_no_room_for_the_next_one(tmp_path: Path) -> None:
    """Nothing is counted for that: the account names the unfinished file."""
    code = """
import os, sys
from touchfs.source.scratch.store import Scratch
def pieces():
    yield bytes(500_000)
    yield bytes(100_000)
    os.kill(os.getpid(), 9)
Scratch(sys.argv[1], 10**6).make("0" * 32, pieces())
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert [path.name for path in tmp_path.glob("*.scratch")] == [f".touchfs-tmp-{name(0)}.scratch"]
    Scratch(str(tmp_path), LIMIT).keep(name(1), b"x")
    assert sorted(path.name for path in tmp_path.glob("*[0-9].*")) == [f"{name(1)}.value"]
    said = account(tmp_path)
    assert said is not None and (said.complete, said.unfinished) == (17, {})


@pytest.mark.parametrize("damaged", [b"", b"junk", b"00000000 {}", None])
def test_a_lost_account_is_counted_again(tmp_path: Path, damaged: bytes | None) -> None:
    store = Scratch(str(tmp_path), LIMIT)
    for number in range(9):
        store.make(name(number), [bytes(100_000)]).close()
    lock = tmp_path / ".touchfs-scratch.lock"
    lock.unlink() if damaged is None else lock.write_bytes(damaged)
    store.make(name(9), [bytes(300_000)]).close()
    said = account(tmp_path)
    assert said is not None and said.total == used(tmp_path) <= LIMIT
    assert store.find(name(0)) is None and store.find(name(8)) is not None


def test_what_is_removed_makes_room(tmp_path: Path) -> None:
    store = Scratch(str(tmp_path), LIMIT)
    held = [store.make(name(number), [bytes(450_000)]) for number in range(2)]
    store.remove([held[0].path, store.path(name(7))])
    store.make(name(2), [bytes(450_000)])
    assert held[1].exists and store.find(name(2)) is not None
