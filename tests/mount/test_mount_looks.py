"""Control files that only tell something: they write nothing, and no text of theirs goes on with another one."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from mounts import kill_workers_while, make_iterator, touchfs
from small_disks import fill, refused, small_disk
from touchnet import UINT8, write_modality

COUNT = 300
LOOKS = ("error", "position", "peek", "len", "epoch", "batch", "reset")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    """Keys of all lengths, so that a part of one in another shows."""
    path = tmp_path_factory.mktemp("numbers") / "shards"
    write_modality(path / "0", "metainfo", UINT8, [b'{"key": "%s"}' % key(number).encode() for number in range(COUNT)])
    return path


def key(number: int) -> str:
    return f"{number}-" + "abcdefghij"[number % 10] * (number % 37)


LOOKING = """
import json, os, sys
control, keys = sys.argv[1], set(json.loads(sys.argv[2]))
def look(path):
    descriptor, text = os.open(path, os.O_RDONLY), b""
    while byte := os.read(descriptor, 1):
        text += byte
    os.close(descriptor)
    return text.decode()
train = control + "/iterators/train"
readme, last = look(control + "/iterators/README"), 0
for turn in range(int(sys.argv[3])):
    peeked = look(train + "/peek")
    assert peeked == "" or peeked[:-1] in keys and peeked[-1] == "\\n", peeked
    position = look(train + "/position")
    assert position[-1] == "\\n" and 0 <= int(position) <= len(keys) and str(int(position)) == position[:-1], position
    error = look(train + "/error")
    assert error in ("", "spec: " + "x" * 50 + "\\n") or error.startswith("spec"), error
    if turn % 5 == 0:
        assert json.loads(look(control + "/info"))["samples"] == len(keys)
        assert look(control + "/iterators/README") == readme
"""


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_no_read_goes_on_with_another_text(mount, numbers, tmp_path, workers):
    """A byte at a time, while others step and workers are killed, so that each text is read through several of them."""
    mounted = mount(numbers, "--state-dir", tmp_path / "state", "--workers", workers)
    train = make_iterator(mounted, '{"shuffle": 7, "output": "key"}')
    looking = [
        sys.executable,
        "-S",
        "-c",
        LOOKING,
        train.parent.parent,
        json.dumps([key(n) for n in range(COUNT)]),
        "3",
    ]
    stepping = ["sh", "-c", "i=0; while [ $i -lt 100 ]; do cat next > /dev/null || exit 1; i=$((i + 1)); done"]

    def start() -> list[subprocess.Popen[str]]:
        commands = (looking, looking, stepping)
        return [subprocess.Popen(command, cwd=train, stderr=subprocess.PIPE, text=True) for command in commands]

    ended = kill_workers_while(start, mounted, 3, workers, least=4)
    assert {process.communicate()[1] for process in ended} == {""}
    assert {process.returncode for process in ended} == {0}
    assert mounted.info()["internal_errors"] == 0


def test_a_text_is_that_of_its_first_read_to_its_end(mount, numbers, tmp_path):
    mounted = mount(numbers, "--state-dir", tmp_path / "state")
    train = make_iterator(mounted, '{"output": "key"}')
    names = ("peek", "position", "next", "token")
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(train / name, "rb", 0)) for name in names}
        begun = {name: file.read(1) for name, file in files.items()}
        for _ in range(12):
            (train / "next").read_bytes()
        (worker,) = mounted.workers()
        os.kill(worker, 9)
        whole = {name: begun[name] + file.read() for name, file in files.items()}
    assert whole["peek"] == whole["next"] == f"{key(0)}\n".encode()
    assert whole["position"] == b"0\n"
    assert json.loads(whole["token"])["state"]["position"] == 1


def test_nothing_is_written_by_who_only_looks(mount, numbers, tmp_path):
    mounted = mount(numbers, "--state-dir", tmp_path / "state")
    train = make_iterator(mounted, "{}")
    (train / "next").read_bytes()
    (path,) = (tmp_path / "state").glob("*.sqlite")
    with closing(sqlite3.connect(path)) as connection:

        def version() -> int:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

        before = version()
        for _ in range(40):
            for name in LOOKS:
                (train / name).read_bytes()
            for name in ("info", "errors", "iterators/README"):
                (train.parent.parent / name).read_bytes()
            assert os.listdir(train.parent) == ["README", "train"]
        assert version() == before
        (train / "next").read_bytes()
        assert version() != before


@pytest.mark.parametrize("durability", ["os", pytest.param("fsync", marks=pytest.mark.variant)])
def test_a_full_state_directory_is_no_trouble_to_who_only_looks(mount, numbers, tmp_path, durability):
    with small_disk(tmp_path / "disk") as disk:
        mounted = mount(
            numbers, "--state-dir", disk, "--durability", durability, "--log-file", tmp_path / "log", "--workers", 2
        )
        train = make_iterator(mounted, '{"output": "key"}')
        (train / "next").read_bytes()

        def step() -> None:
            for _ in range(500):
                fill(disk)
                (train / "next").read_bytes()

        assert refused(step) == "ENOSPC"
        fill(disk)
        position = int((train / "position").read_text())
        for turn in range(20):
            assert mounted.info()["samples"] == COUNT
            assert "the disk is full" in (train.parent.parent / "errors").read_text()
            assert (train / "peek").read_text() == f"{key(position)}\n"
            assert int((train / "position").read_text()) == position
            assert "train/next" in (train.parent / "README").read_text()
            assert all((train / name).read_bytes() or name in ("reset", "error") for name in LOOKS)
            if turn == 10:
                os.kill(mounted.workers()[0], 9)
        assert refused(step) == "ENOSPC"
        assert "the disk is full" in (train / "error").read_text()
        position = int((train / "position").read_text())
        # A worker that ends may give room back: SQLite empties its log then. So nothing is filled from here on.
        assert touchfs("reload", mounted.path).returncode == 0
        assert int((train / "position").read_text()) == position
        assert (train / "peek").read_text() == f"{key(position)}\n"
        (disk / "filling").unlink()
        assert (train / "next").read_text() == f"{key(position)}\n"
        assert (train / "error").read_text() == ""
        mounted.end()
