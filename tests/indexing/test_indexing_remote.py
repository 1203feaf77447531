"""Indexing data of another store reads headers and footers, and not the data between them."""

import io
import random
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from range_server import range_server
from tars import tar_of, write_tar

from touchfs.indexing import open_dataset
from touchfs.source.remote.blocks import BLOCK
from touchfs.source.remote.kept import KEPT

BODY = 5 * BLOCK + 100
BODIES = 6


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    KEPT.forget()
    with range_server() as server:
        yield server


def bytes_asked(server):
    return sum(stop - start for _, start, stop in server.ranges)


def test_a_tar_of_large_members_by_its_headers(server):
    data = random.Random(3).randbytes(BODY)
    tar = tar_of({f"long/{'x' * 120}{number}.bin": data for number in range(BODIES)})
    url = server.put("/a.tar", tar)
    dataset = open_dataset(url)
    assert dataset.samples == BODIES
    # A header may lie over the end of a block.
    assert bytes_asked(server) <= 2 * BLOCK * (BODIES + 1) < BODIES * BODY / 2
    content = dataset.shards[0].source("a.tar")
    assert content.read(BODY // 2, 10) == tar[BODY // 2 : BODY // 2 + 10]


def test_a_tar_of_small_members_in_few_requests(server):
    tar = tar_of({f"{number}.txt": bytes(700) for number in range(4000)})
    url = server.put("/b.tar", tar)
    assert open_dataset(url).samples == 4000
    assert len(server.ranges) <= 2 * len(tar) / BLOCK


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_parquet_file_by_its_footer(server, compression):
    noise = np.random.default_rng(1)
    table = pa.table({"key": [str(i) for i in range(24)], "audio": [noise.bytes(BLOCK) for _ in range(24)]})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=8, compression=compression, use_dictionary=False, write_page_index=True)
    url = server.put("/c.parquet", file.getvalue())
    assert open_dataset(url).samples == 24
    assert bytes_asked(server) < len(file.getvalue()) / 2


def test_an_arrow_file_by_the_headers_of_its_messages(server):
    noise = np.random.default_rng(1)
    table = pa.table({"key": [str(i) for i in range(8)], "audio": [noise.bytes(4 * BLOCK) for _ in range(8)]})
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    url = server.put("/d.arrow", file.getvalue())
    assert open_dataset(url).samples == 8
    assert bytes_asked(server) < len(file.getvalue()) / 2


@pytest.fixture
def small(server, tmp_path):
    """The URL of small shards, of which one is no tar."""
    for number in range(12):
        data = write_tar(tmp_path / "one.tar", {f"{number}.txt": b"text"}).read_bytes()
        server.put(f"/set/{number:02}.tar", b"no tar" * 1000 if number == 5 else data)
    return f"{server.url}/set/"


def facts_of(dataset):
    return [(shard.name, shard.samples, shard.report, list(shard.files)) for shard in dataset.shards]


def test_small_shards_are_indexed_at_once(server, small, monkeypatch, tmp_path):
    """Each answer waits until four are wanted. What is wrong with a shard costs itself only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    monkeypatch.setenv("TOUCHFS_REQUESTS", "1")
    one_by_one = facts_of(open_dataset(small))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "several"))
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("TOUCHFS_REQUESTS", "4")
    KEPT.forget()
    together, first = threading.Barrier(4), iter(range(4))

    def wait_for_others() -> None:
        if next(first, None) is not None:
            together.wait(20)

    server.fault = wait_for_others
    assert facts_of(open_dataset(small)) == one_by_one
    assert not together.broken, "they were asked for at once"
    assert [name for name, _, report, _ in one_by_one if report] == ["05"]


def test_what_lies_beside_all_shards_is_asked_for_once(server, small):
    for _ in range(2):  # what reads ahead while the shards are indexed may still ask at the end of the first
        open_dataset(small)
    begun = len(server.requests)
    open_dataset(small)
    assert len(server.requests) - begun <= 12 + 4
