"""`touchfs index` and `touchfs meta put` with several processes, killed at any moment: the same command goes on.

The same of `pack` and `convert` is in `test_convert_command.py` and `tests/bulk/test_pack_resume.py`.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from command import TOUCHFS
from killing import go_on, kill_when, tree
from touchnet import UINT8, write_shard

KILLS = 1
SHARDS, SAMPLES = 12, 400


def lines(version: int) -> list[bytes]:
    """One for each sample of all shards."""
    made = [{"key": f"k{number}", "txt": f"{version} " * (number % 9)} for number in range(SHARDS * SAMPLES)]
    return [json.dumps(line).encode() for line in made]


@pytest.fixture
def data(here: Path) -> Path:
    stored = lines(0)
    for number in range(SHARDS):
        write_shard(here / f"data/{number:09d}", metainfo=(UINT8, stored[number * SAMPLES :][:SAMPLES]))
    return here / "data"


def test_index(touchfs, data, here, monkeypatch):
    def index() -> dict[str, bytes]:
        found = tree(here / "cache")
        return {name: data for name, data in found.items() if not os.path.basename(name).startswith(".")}

    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    assert touchfs("index", "--jobs", "1", "data").stdout.endswith(b"; 12 indexed now\n")
    whole = index()
    assert len(whole) >= SHARDS + 2, "with the index of keys and the dataset file"
    (here / "cache").rename(here / "whole")
    draw = random.Random(2)
    for _ in range(KILLS):
        wanted = len(list(here.glob("cache/**/*.arrow"))) + draw.randint(0, 4)
        kill_when(
            [TOUCHFS, "index", "--jobs", "2", "data"],
            lambda wanted=wanted: len(list(here.glob("cache/**/*.arrow"))) >= wanted,
        )
        assert index().items() <= whole.items()
    before = {path: path.stat().st_ino for path in here.glob("cache/**/*.arrow")}
    done = touchfs("index", "--jobs", "2", "data")
    assert (done.returncode, done.stderr) == (0, b"")
    assert index() == whole
    assert before == {path: path.stat().st_ino for path in before}
    assert touchfs("index", "--jobs", "2", "data").stdout.endswith(b"; indexed already\n")


def test_meta_put(touchfs, data, here):
    (here / "new").write_bytes(b"\n".join(lines(1)))
    before = tree(data)
    for number in range(SHARDS):
        write_shard(here / f"whole/{number:09d}", metainfo=(UINT8, lines(1)[number * SAMPLES :][:SAMPLES]))
    expected = tree(here / "whole")
    draw = random.Random(3)

    def written() -> int:
        return sum((data / name).read_bytes() == expected[name] for name in expected if name.endswith(".bin"))

    def put() -> subprocess.CompletedProcess[bytes]:
        with open(here / "new", "rb") as new:
            return touchfs("meta", "put", "--jobs", "2", "data", stdin=new)

    partial = 0
    while partial < KILLS:
        if written() == SHARDS:  # its workers go on for a moment: on a busy machine to the end
            for name, stored in before.items():
                (data / name).write_bytes(stored)
        with open(here / "new", "rb") as new:
            wanted = written() + draw.randint(1, 3)
            kill_when(
                [TOUCHFS, "meta", "put", "--jobs", "2", "data"], lambda wanted=wanted: written() >= wanted, stdin=new
            )
        partial += 0 < written() < SHARDS
        for name, stored in tree(data).items():
            if not name.startswith(".touchfs-tmp-"):
                assert stored in (before[name], expected[name])
    done = go_on(put)
    assert (done.returncode, done.stderr) == (0, b"")
    assert tree(data) == expected
    with open(here / "new", "rb") as new:
        assert touchfs("meta", "put", "data", stdin=new).stdout == b"data: 0 samples changed in 0 shards\n"
