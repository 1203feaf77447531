"""Global batches of MosaicML Streaming, and ours beside them: neither depends on workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

import touchfs
from touchfs.write import TarWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)
COUNT, BATCH = 96, 8
# Ranks, and workers of each.
SOME, MORE = ((1, 2), (2, 1), (4, 0)), ((2, 3),)


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> touchfs.OpenDataset:
    source = tmp_path_factory.mktemp("tars")
    for shard in range(4):
        with TarWriter(source / f"{shard}.tar") as tar:
            for number in range(shard * COUNT // 4, (shard + 1) * COUNT // 4):
                tar.add(f"s{number:02d}", {"txt": b"%d" % number})
    return touchfs.open(source)


@pytest.fixture(scope="module")
def theirs(ds: touchfs.OpenDataset, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, int, list[list[int]]]]:
    """Ranks, workers, and their batches of the same samples."""
    command = [sys.executable, Path(__file__).with_name("mosaicml_batches.py"), tmp_path_factory.mktemp("mds") / "data"]
    done = subprocess.run(
        command, input=json.dumps([number_of(sample) for sample in ds]), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return list(map(tuple, json.loads(done.stdout)))


def number_of(sample: Any) -> int:
    return int(sample["txt"])


def ours(make: Callable[[touchfs.OpenDataset], Any], ds: touchfs.OpenDataset, ranks: int, workers: int) -> Any:
    samples = make(ds).map(number_of)
    loaders = [
        samples.loader(global_batch=BATCH, num_workers=workers, rank=rank, world_size=ranks) for rank in range(ranks)
    ]
    return [[number for part in step for number in part.tolist()] for step in zip_longest(*loaders)]


def test_their_global_batches_depend_on_neither(theirs: list[tuple[int, int, list[list[int]]]]) -> None:
    (_, _, loaded), (_, _, expected), *others = theirs
    assert loaded == expected, "what is converted is what their loader gives"
    assert sorted(chain(*expected)) == list(range(COUNT))
    assert len(others) == 8
    for ranks, workers, batches in others:
        assert [sorted(batch) for batch in batches] == [sorted(batch) for batch in expected], (ranks, workers)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda ds: ds.shuffle(7), id="shuffled"),
        pytest.param(lambda ds: ds.shuffle(7, window=32, lanes=4), id="windowed"),
        pytest.param(lambda ds: touchfs.mux([(ds.shuffle(1), 3), (ds.shuffle(2), 1)]), id="a mixture"),
    ],
)
@pytest.mark.parametrize("loaders", [SOME, pytest.param(MORE, marks=pytest.mark.variant)], ids=["some", "more"])
def test_nor_do_ours(
    make: Callable[[touchfs.OpenDataset], Any], ds: touchfs.OpenDataset, loaders: tuple[tuple[int, int], ...]
) -> None:
    expected = ours(make, ds, 1, 0)
    for ranks, workers in loaders:
        assert ours(make, ds, ranks, workers) == expected, (ranks, workers)
