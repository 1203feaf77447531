"""A Shar that is split for dataloading comes once, over workers and ranks, whatever shares it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from touchfs import SampleSet
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.core.errors import UsageError
from touchfs.node import LazyShuffler
from touchfs.torch import NodeDataset, NodeIterableDataset, NodeSampler

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",
    "ignore:.*multi-threaded, use of fork:DeprecationWarning",
)
COUNT = 22


@pytest.fixture(scope="module")
def shar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight shards."""
    path: Path = tmp_path_factory.mktemp("shar")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with SharWriter(path, {"lang": "jsonl"}, shard_size=3, compress_jsonl=False) as writer:
            for i in range(COUNT):
                writer.write({"id": f"cut{i:02d}", "duration": 1.0}, {"lang": "en"})
    return path


ALL = [f"cut{i:02d}" for i in range(COUNT)]


def cuts(shar: Path, indexed: bool, **options: Any) -> Any:
    order = {"shuffle_shards": True, "seed": 3, "split_for_dataloading": True, **options}
    return SampleSet.from_shar(in_dir=shar, indexed=indexed, **order)


class Plain(IterableDataset[str]):
    """As somebody's own, which knows nothing of nodes."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Any:
        return (item.key for item in self.items)


def keys(dataset: Any, workers: int) -> list[str]:
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=workers, collate_fn=key)
    return list(loader)


def key(item: Any) -> str:
    return item if isinstance(item, str) else item.key


DATASETS = {
    "a graph's": lambda items: NodeIterableDataset(items),
    "a graph's, through a buffer": lambda items: NodeIterableDataset(LazyShuffler(items, 4)),
    "somebody's": Plain,
}


# Each dataset with an index and without one, and with workers and without.
FIRST = [
    ("a graph's", 0, True),
    ("a graph's", 2, False),
    ("a graph's, through a buffer", 0, False),
    ("a graph's, through a buffer", 1, True),
    ("somebody's", 0, False),
    ("somebody's", 1, True),
]
MORE = [
    pytest.param(name, 3, indexed, marks=pytest.mark.variant)
    for name, indexed in zip(DATASETS, (True, False, False), strict=True)
]


@pytest.mark.parametrize(("name", "workers", "indexed"), FIRST + MORE)
def test_each_sample_once_over_ranks_and_workers(
    shar: Path, monkeypatch: pytest.MonkeyPatch, name: str, workers: int, indexed: bool
) -> None:
    assert sorted(keys(DATASETS[name](cuts(shar, indexed)), workers)) == ALL
    taken = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        share = keys(DATASETS[name](cuts(shar, indexed)), workers)
        assert 0 < len(share) < COUNT
        taken += share
    assert sorted(taken) == ALL


def test_ranks_that_are_asked_for_are_the_same_ranks(shar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        taken += keys(NodeIterableDataset(cuts(shar, True), distributed=True), 2)
        part = cuts(shar, True, split_for_dataloading=False, rank=0, world_size=2)
        with pytest.raises(UsageError, match="one rank's already"):
            NodeIterableDataset(cuts(shar, True).chain(part))
    assert sorted(taken) == ALL


def test_samplers_of_the_main_process_have_their_ranks_share(shar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        samples = cuts(shar, True)
        loader: Any = DataLoader(
            NodeDataset(samples), sampler=NodeSampler(samples), batch_size=None, num_workers=2, collate_fn=key
        )
        taken += list(loader)
    assert sorted(taken) == ALL
