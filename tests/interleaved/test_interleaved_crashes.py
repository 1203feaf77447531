"""A writer of interleaved samples is killed at any point: its file is the old one or the new one, and complete."""

import json
import os
import signal
import tempfile
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from interleaved.interleaved_crash_writer import BATCHES, append_for_ever, write_generation, write_until
from own_forkserver import preloaded
from written_items import PNG, read_tar

STEPS_MAX = 300


@pytest.fixture(scope="module")
def processes():
    # pyarrow imports pandas where it is installed, for its first array. The server does not find modules of tests.
    with preloaded("touchfs.interleaved.write", "fsspec.implementations.local", "pandas") as context:
        yield context


@pytest.fixture
def out():
    """In memory where there is such a place: a killed process loses nothing, and flushing hundreds of times is slow."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory, "out")


def generation_of(path):
    """Which generation a file is of. It has all that one has, and nothing of another one."""
    if path.suffix == ".parquet":
        rows = parquet.read_table(path).to_pylist()
        assert [row["binary_content"] for row in rows[1::2]] == [PNG + bytes(10_000)] * BATCHES
        texts = [row["text_content"] for row in rows[::2]]
    else:
        members = read_tar(path)
        assert len(members) == 2 * BATCHES
        texts = [json.loads(data)["texts"][0] for name, data in members.items() if name.endswith("json")]
    assert len(texts) == BATCHES
    (text,) = set(texts)
    return int(text.removeprefix("of "))


@pytest.mark.parametrize(
    ("kind", "in_store", "every"),
    [
        *(("parquet", False, 4), ("tar", True, 4)),
        *(pytest.param(*each, marks=pytest.mark.variant) for each in (("parquet", True, 1), ("tar", False, 1))),
    ],
)
def test_killed_before_each_operation(out, processes, kind, in_store, every):
    step, generation = 0, 0
    path = None
    while True:
        assert step < STEPS_MAX
        process = processes.Process(target=write_until, args=(kind, in_store, out, generation + 1, step))
        process.start()
        process.join(60)
        found = [each for each in out.iterdir() if not each.name.startswith(".touchfs-tmp-")] if out.exists() else []
        assert len(found) <= 1
        if found:
            (path,) = found
            assert generation_of(path) in (generation, generation + 1)
            generation = generation_of(path)
        else:
            assert path is None
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        step += every
    assert step > 5
    assert generation == generation_of(path)


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_killed_while_it_appends(out, processes, kind):
    """Row groups and members are on the disk by then, and nothing has the name of the file."""
    ready = processes.Semaphore(0)
    process = processes.Process(target=append_for_ever, args=(kind, out, ready))
    process.start()
    for _ in range(12):
        assert ready.acquire(timeout=60)
    process.kill()
    process.join(60)
    (left,) = out.iterdir()
    assert left.name.startswith(".touchfs-tmp-")
    assert sum(each.stat().st_size for each in left.rglob("*")) > 64 * 2**20
    path = Path(write_generation(kind, False, out, 7))
    assert generation_of(path) == 7
    assert list(out.iterdir()) == [path]
