"""The graphs whose states are kept, over the dataset beside this file. Names and parameters are fixed for ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from touchfs import SampleSet
from touchfs.node import (
    BucketingSampler,
    DynamicSampler,
    IteratorNode,
    LazyBatcher,
    LazyFilter,
    LazyFlattener,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyManifestIterator,
    LazyMapper,
    LazyPrefetcher,
    LazyRepeater,
    LazySharIterator,
    LazyShuffler,
    LazySlicer,
)


def is_short(item: Any) -> bool:
    return key_of(item)[-1] in "02468ace"


def twice(item: Any) -> list[Any]:
    return [item, item]


def length(item: Any) -> float:
    return 1.0 + int(key_of(item)[-1], 16)


def key_of(item: Any) -> str:
    """The key of a sample or of a cut; of a batch, the keys of what is in it."""
    if isinstance(item, list):
        return "+".join(map(key_of, item))
    return str(item["id"] if isinstance(item, dict) else item.key)


def graphs(dataset: Path, shar: Path) -> dict[str, Callable[[], IteratorNode]]:
    lines, tar = dataset / "lines.jsonl", dataset / "words.tar"
    leaf = partial(LazyIndexedManifestIterator, str(dataset))
    part = partial(LazyIndexedManifestIterator, str(lines))
    other = partial(LazyIndexedManifestIterator, str(tar))
    return {
        "leaf": leaf,
        "leaf, shuffled": lambda: leaf(shuffle=True, seed=7),
        "leaf, a rank": lambda: leaf(shuffle=True, seed=7, rank=1, world_size=3, partition="block", tail="pad"),
        "sample set": lambda: SampleSet.from_file(dataset, indexed=True).data,
        "sample set, shuffled": lambda: SampleSet.from_file(dataset, indexed=True).shuffle(seed=7).data,
        "sample set, a rank": lambda: (
            SampleSet.from_file(dataset, indexed=True).shuffle(seed=7, rank=1, world_size=2).data
        ),
        "sample set, a buffer": lambda: SampleSet.from_file(dataset, indexed=True).shuffle(3, buffer_size=4).data,
        "chain": lambda: LazyIteratorChain(part(), other(shuffle=True, seed=1)),
        "chain, shuffled": lambda: LazyIteratorChain(part(), other(), shuffle_iters=True, seed=5),
        "mux": lambda: LazyIteratorMultiplexer(part(), other(shuffle=True), weights=[0.3, 0.7], seed=1),
        "repeater": lambda: LazyRepeater(part(shuffle=True, seed=2), 3),
        "endless repeater": lambda: LazyRepeater(part(shuffle=True, seed=2)),
        "filter and mapper": lambda: LazyMapper(LazyFilter(leaf(shuffle=True, seed=3), is_short), key_of),
        "flattener": lambda: LazyFlattener(LazyMapper(part(), twice)),
        "slicer": lambda: LazySlicer(leaf(), 1, 3),
        "batcher": lambda: LazyBatcher(leaf(shuffle=True, seed=3), 3),
        "shuffler": lambda: LazyShuffler(leaf(), 4, seed=1),
        "prefetcher": lambda: LazyPrefetcher(leaf(shuffle=True, seed=9), ahead=3, threads=2),
        "dynamic sampler": lambda: DynamicSampler(leaf(), max_duration=20, duration=length),
        "bucketing sampler": lambda: BucketingSampler(
            leaf(shuffle=True), max_duration=20, num_buckets=2, buffer_size=6, shuffle=True, seed=2, duration=length
        ),
        "stream": lambda: LazyManifestIterator(lines),
        "shar": lambda: LazySharIterator(in_dir=shar),
        "shar by index": lambda: LazyIndexedSharIterator(in_dir=shar, shuffle=True, seed=4),
    }


LOADERS = ("iterable, 0 workers", "iterable, 2 workers", "sampler, 0 workers", "sampler, 2 workers")


def loader(name: str, node: IteratorNode) -> Any:
    """A StatefulDataLoader of keys."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    from touchfs.torch import NodeDataset, NodeIterableDataset, NodeSampler

    kind, workers = name.removesuffix(" workers").split(", ")
    options: dict[str, Any] = {"batch_size": None, "collate_fn": key_of, "num_workers": int(workers)}
    if kind == "iterable":
        return StatefulDataLoader(NodeIterableDataset(node), **options)
    return StatefulDataLoader(NodeDataset(node), sampler=NodeSampler(node), **options)


SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffled": {"shuffle": 7},
    "rank": {"shuffle": 7, "rank": 1, "world_size": 3, "batch": 2},
    "segments": {"source": "segments", "shuffle": 1},
    "merged": {"source": "merged/max=30,gap=1", "output": "key"},
    "where": {"where": "text exists", "shuffle": 2, "batch": 2, "output": "relpath"},
    "repeat": {"shuffle": 3, "repeat": True, "batch": 5},
    "mux": {"mux": [{"source": "samples", "weight": 3}, {"source": "segments"}], "shuffle": 5},
}
