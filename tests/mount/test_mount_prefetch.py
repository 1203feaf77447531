"""An iterator has the files of its next steps read ahead."""

import json
import random
from itertools import islice
from pathlib import Path

import pytest
from range_server import range_server
from tars import write_tar
from waiting import wait_until

from touchfs.node import LazyIndexedManifestIterator
from touchfs.source.remote.blocks import BLOCK

FILES = {f"s{number:03}.bin": random.Random(number).randbytes(300_000) for number in range(24)}
# Of samples of unknown size no more are asked for at the first step: `iterators/prefetch.py` takes each for 8 MiB.
STEPS = 5


@pytest.fixture
def tar(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    return write_tar(tmp_path / "made" / "one.tar", FILES).read_bytes()


def is_here(scratch: Path, tar: bytes, *names: str) -> bool:
    """Whether the scratch store has all blocks with bytes of these files."""
    starts = [tar.index(FILES[name]) for name in names]
    blocks = {place // BLOCK for start in starts for place in (start, start + 300_000 - 1)}
    kept = [path.read_bytes() for path in scratch.glob("*.value")]
    return all(any(tar[block * BLOCK :][:BLOCK] in each for each in kept) for block in blocks)


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_what_comes_next_is_here_before_it_is_read(mount, tar, tmp_path, workers):
    with range_server() as server:
        options = ("--prefetch-steps", STEPS, "--workers", workers, "--revalidate", 3600)
        mounted = mount(server.put("/one.tar", tar), *options)
        iterator = mounted.path / ".touchfs" / "iterators" / "train"
        iterator.mkdir()
        (iterator / "spec").write_text(json.dumps({"shuffle": 7, "output": "relpath"}))
        first = (iterator / "next").read_text().strip()
        following = LazyIndexedManifestIterator(tmp_path / "made/one.tar", True, 7)
        ahead = [f"{sample.key}.bin" for sample in islice(following, STEPS + 1)]
        wait_until(lambda: is_here(tmp_path / "scratch", tar, *ahead))
        server.fault = lambda: "500"  # from now on nothing can be fetched
        for path in [first, *((iterator / "next").read_text().strip() for _ in range(STEPS))]:
            assert (mounted.path / path).read_bytes() == FILES[path.rpartition("/")[2]]
        server.fault = lambda: None


def test_nothing_is_read_ahead_that_nobody_could_read(mount, tmp_path, monkeypatch):
    """Where the disk has no room: steps are made by another process than reads. Samples lie in two blocks each."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    size, count = 1 << 20, 40
    noise = random.Random(1).randbytes(size + count)
    files = {f"s{number:03}.bin": noise[number : number + size] for number in range(count)}
    with range_server() as server:
        tar = server.put("/one.tar", write_tar(tmp_path / "one.tar", files).read_bytes())
        options = ("--prefetch-steps", 1000, "--revalidate", 3600, "--scratch-size", "1M", "--timeout", 20)
        mounted = mount(tar, *options)
        iterator = mounted.path / ".touchfs" / "iterators" / "train"
        iterator.mkdir()
        (iterator / "spec").write_text(json.dumps({"shuffle": 7, "output": "relpath"}))
        del server.ranges[:]
        for _ in range(count):
            path = (iterator / "next").read_text().strip()
            assert (mounted.path / path).read_bytes() == files[path.rpartition("/")[2]]
        assert sum(stop - start for _, start, stop in server.ranges) < 2 * count * size
