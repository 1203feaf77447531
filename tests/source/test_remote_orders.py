"""What passes in different orders fetch of a remote dataset whose cache holds a quarter of it, counted in bytes."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from range_server import RangeServer, range_server
from tars import add

import touchfs
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.node import LazyIndexedManifestIterator, LazyPrefetcher
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.counts import COUNTS, share
from touchfs.source.remote import read_ahead
from touchfs.source.remote.kept import KEPT, TURNOVER
from touchfs.source.scratch import turnover

SHARDS, SAMPLES, SIZE = 4, 500, 60_000


@pytest.fixture(scope="module")
def far() -> Iterator[RangeServer]:
    with range_server() as server:
        yield server


def shard(number: int) -> bytes:
    noise, file = np.random.default_rng(number), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in range(SAMPLES):
            add(tar, f"{number}-{sample:05}.bin", noise.bytes(SIZE))
    return file.getvalue()


@pytest.fixture
def samples(
    request: pytest.FixtureRequest, far: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatasetSamples]:
    """Those of so many shards. The memory of a process holds as much as its cache."""
    for number in range(request.param):
        if (path := f"/t-{number}.tar") not in far.files:
            far.files[path] = shard(number), f'"{number}"'
    samples = DatasetSamples(open_dataset(f"{far.url}/t-{{0..{request.param - 1}}}.tar"))
    assert len(samples) == request.param * SAMPLES
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    held = len(samples) * SIZE // 4
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", str(held))
    monkeypatch.setattr(KEPT, "_memory", BoundedCache(held, len))
    monkeypatch.setattr(TURNOVER, "_memory", held)
    monkeypatch.setattr(turnover, "_LEAST_BLOCKS", 4)
    KEPT.forget()
    TURNOVER.forget()
    yield samples
    KEPT.forget()
    TURNOVER.forget()


def fetched(far: RangeServer, samples: DatasetSamples, **order: Any) -> float:
    """Bytes that a pass asks for, for each byte of a sample."""
    far.ranges.clear()
    read = sum(len(sample["bin"]) for sample in LazyPrefetcher(LazyIndexedManifestIterator(samples, **order), 16, 8))
    return sum(stop - start for _, start, stop in far.ranges) / read


@pytest.mark.variant
@pytest.mark.parametrize("samples", [SHARDS], indirect=True)
def test_a_windowed_order_fetches_each_part_about_once(far: RangeServer, samples: DatasetSamples) -> None:
    """By how far its threads are apart, 1.6 to 2.0 times."""
    assert fetched(far, samples, shuffle=True, seed=3, window=len(samples) // 10) < 2.5


@pytest.mark.parametrize("samples", [2], indirect=True)
def test_prefetching_beyond_the_cache_asks_for_no_more(
    far: RangeServer, samples: DatasetSamples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a thousand samples would push each other out of it: with exact ranges, four times the requests. A
    window, a quarter of the cache, and a block for each thread fit into it.
    """
    asked, moved = [], []
    for ahead in (16, 2 * SAMPLES):
        monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / str(ahead)))
        KEPT.forget()
        TURNOVER.forget()
        far.ranges.clear()
        order = LazyIndexedManifestIterator(samples, True, 3, window=len(samples) // 10)
        assert sum(len(sample["bin"]) for sample in LazyPrefetcher(order, ahead, 2)) == len(samples) * SIZE
        asked.append(len(far.ranges))
        moved.append(sum(stop - start for _, start, stop in far.ranges))
    assert moved[1] < 1.3 * moved[0]
    assert asked[1] < 3 * asked[0]


@pytest.mark.parametrize("samples", [2], indirect=True)
def test_a_global_shuffle_fetches_exact_ranges_once_blocks_are_evicted_unread(
    far: RangeServer, samples: DatasetSamples, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks move several times the bytes of the samples."""
    cells = [0] * len(COUNTS)
    share(cells)
    try:
        assert fetched(far, samples, shuffle=True, seed=3) < 2
    finally:
        share([0] * len(COUNTS))
    assert len(samples) // 2 < dict(zip(COUNTS, cells, strict=True))["exact_ranges"] < len(samples)
    (told,) = (record.getMessage() for record in caplog.records if "global shuffle" in record.getMessage())
    assert "holds 15 of 6" in told and 'shuffle(seed, window="7M")' in told
    # Blocks come again when they are read as a whole.
    monkeypatch.setattr(read_ahead, "AHEAD_MAX", len(samples) * SIZE // 8)  # half of the memory, as it is by default
    in_order = sum(fetched(far, samples) for _ in range(2)) / 2
    assert in_order < 1.3
    assert not TURNOVER.is_wasteful


def size_of(sample: Any) -> int:
    return len(sample["bin"])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("samples", [2], indirect=True)
def test_two_workers_fetch_together_what_one_would(
    far: RangeServer, samples: DatasetSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both need each block of a window, and have one scratch store, which holds two windows. Each by itself would make
    it 1.6 times as much; on a busy machine one is at times so far ahead that the other fetches a block again.
    """
    urls, total = samples.dataset.source, len(samples)
    moved = []
    for workers in (1, 2):
        far.ranges.clear()
        KEPT.forget()
        TURNOVER.forget()
        order = touchfs.open(urls).shuffle(3, window=total // 10).map(size_of).prefetch(16, 8)
        assert sum(sum(batch) for batch in order.loader(64, workers, collate_fn=list)) == total * SIZE
        moved.append(sum(stop - start for _, start, stop in far.ranges))
        shutil.rmtree(os.environ["TOUCHFS_SCRATCH_DIR"])
    assert moved[1] < 1.35 * moved[0]


@pytest.mark.variant
@pytest.mark.parametrize("samples", [SHARDS], indirect=True)
def test_ranks_that_divide_the_lanes_fetch_their_own_part_about_once(far: RangeServer, samples: DatasetSamples) -> None:
    for rank in range(4):
        order = {"window": len(samples) // 5, "lanes": 4, "partition": "batches", "global_batch": 64}
        assert fetched(far, samples, shuffle=True, seed=3, rank=rank, world_size=4, **order) < 2.5
