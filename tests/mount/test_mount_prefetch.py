"""An iterator has the files of its next steps read ahead."""

import json
import random
import time

import pytest
from range_server import range_server
from tars import write_tar

FILES = {f"s{number:03}.bin": random.Random(number).randbytes(300_000) for number in range(60)}
STEPS = 24


@pytest.fixture
def tar(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    return write_tar(tmp_path / "made" / "one.tar", FILES).read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_comes_next_is_here_before_it_is_read(mount, tar, workers):
    with range_server() as server:
        options = ("--prefetch-steps", STEPS, "--workers", workers, "--revalidate", 3600)
        mounted = mount(server.put("/one.tar", tar), *options)
        iterator = mounted.path / ".touchfs" / "iterators" / "train"
        iterator.mkdir()
        (iterator / "spec").write_text(json.dumps({"shuffle": 7, "output": "relpath"}))
        first = (iterator / "next").read_text().strip()
        asked = 0
        while asked != len(server.ranges):  # until nothing is asked for any more
            asked = len(server.ranges)
            time.sleep(1)
        assert asked >= STEPS
        server.fault = lambda: "500"  # from now on nothing can be fetched
        for path in [first, *((iterator / "next").read_text().strip() for _ in range(STEPS))]:
            assert (mounted.path / path).read_bytes() == FILES[path.rpartition("/")[2]]
        server.fault = lambda: None
