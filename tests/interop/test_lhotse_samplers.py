"""Where Lhotse's batches keep within their limit, ours are the same; where they do not, ours do."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from lhotse import CutSet, MonoCut
from lhotse.dataset.sampling import DynamicBucketingSampler, DynamicCutSampler

from touchfs.node import BucketingSampler, DynamicSampler, LazyIndexedManifestIterator

# Of a small buffer, of cuts in memory.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lhotse")

COUNT = 600


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("cuts") / "cuts.jsonl")
    durations = np.random.default_rng(1).gamma(4, 2, COUNT).round(3)
    CutSet.from_cuts(MonoCut(f"cut-{i}", 0, float(d), 0) for i, d in enumerate(durations)).to_file(path)
    return path


@cache
def cuts(manifest: str) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(list(CutSet.from_file(manifest)))


def ids(batches: Any) -> list[list[str]]:
    return [[cut.id for cut in batch] for batch in batches]


def cost(batch: Any) -> float:
    return float(len(batch) * max(cut.duration for cut in batch))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("max_cuts", [1, 7, 64])
def test_counted(manifest: str, max_cuts: int, drop_last: bool) -> None:
    theirs = DynamicCutSampler(CutSet.from_file(manifest, indexed=True), max_cuts=max_cuts, drop_last=drop_last)
    assert ids(DynamicSampler(cuts(manifest), max_items=max_cuts, drop_last=drop_last)) == ids(theirs)


def test_by_duration(manifest: str) -> None:
    """Compared from each batch on, as one that differs shifts all after it."""
    whole = list(CutSet.from_file(manifest))
    batches, start, same = list(DynamicSampler(cuts(manifest), max_duration=80)), 0, 0
    for batch in batches:
        theirs = next(iter(DynamicCutSampler(CutSet.from_cuts(whole[start:]), max_duration=80)))
        mine = [cut.id for cut in batch]
        if cost(theirs) <= 80:
            assert mine == [cut.id for cut in theirs]
            same += 1
        else:
            # Its last one makes it too long.
            assert mine == [cut.id for cut in theirs][:-1]
        start += len(batch)
    assert start == COUNT
    assert 20 < same < len(batches)
    assert max(map(cost, batches)) <= 80


@pytest.mark.parametrize("max_cuts", [3, 10])
def test_buckets(manifest: str, max_cuts: int) -> None:
    """Which bucket comes next is drawn with other random numbers. What comes out of each is the same."""
    bins = [4.0, 7.0, 10.5]
    theirs = DynamicBucketingSampler(
        CutSet.from_file(manifest, indexed=True), max_cuts=max_cuts, duration_bins=bins, buffer_size=200
    )
    ours = BucketingSampler(cuts(manifest), max_items=max_cuts, boundaries=bins, buffer_size=200)
    assert sorted(ids(ours)) == sorted(ids(theirs))


def test_none_is_lost_where_a_bucket_is_never_full(manifest: str) -> None:
    """With a buffer that is too small Lhotse ends the epoch there."""
    theirs = DynamicBucketingSampler(
        CutSet.from_file(manifest, indexed=True), max_cuts=30, duration_bins=[4, 7, 10], buffer_size=20, drop_last=True
    )
    assert ids(theirs) == []
    ours = BucketingSampler(cuts(manifest), max_items=30, boundaries=[4, 7, 10], buffer_size=20, drop_last=True)
    assert sum(map(len, ours)) > COUNT - 4 * 30
