"""Graphs for tests: one of each kind of node and some that were hard, and the means to make random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from node import data
from numpy.typing import NDArray

from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.interleaved import InterleavedBatch
from touchfs.node import (
    IteratorNode,
    LazyBatcher,
    LazyFilter,
    LazyFlattener,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyInterleavedIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyLengthBatcher,
    LazyManifestIterator,
    LazyMapper,
    LazyMixture,
    LazyPrefetcher,
    LazyRepeater,
    LazySharIterator,
    LazyShuffler,
    LazySlicer,
    attach_graph_origin,
    get_graph_origin,
    maybe_attach_graph_origin,
    normalize_graph_token,
)
from touchfs.view.plan import parse_plan

Make = Callable[[], IteratorNode]


class Thing:
    """A sample with room for a token."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Thing({self.value!r})"


class Things:
    """A dataset that makes a sample anew each time it is asked, and counts."""

    def __init__(self, count: int, fingerprint: str = "one") -> None:
        self.count = count
        self.fingerprint = fingerprint
        self.made: list[int] = []

    def __len__(self) -> int:
        return self.count

    def lengths(self, measure: str) -> NDArray[np.int64]:
        return 1 + np.arange(self.count) * 5 % 4

    def __getitem__(self, ordinal: int) -> Thing:
        self.made.append(ordinal)
        return Thing(ordinal)


def leaf(count: int = 7, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Things(count), **options)


def shuffled(count: int = 7, **options: Any) -> LazyIndexedManifestIterator:
    return leaf(count, shuffle=True, seed=3, **options)


def numbers(count: int = 7) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(100, 100 + count), shuffle=True)


def text(thing: Any) -> str:
    return repr(thing)


def several(thing: Thing) -> list[Thing]:
    """A collection of 0 to 3."""
    return [Thing((thing.value, i)) for i in range(thing.value % 4)]


def odd(thing: Any) -> bool:
    return sum(map(ord, repr(thing))) % 2 == 1


def nothing(thing: Any) -> bool:
    return False


def none_at_104(number: int) -> int | None:
    return None if number == 104 else number


class Doubler(IteratorNode):
    """Written as outside of this package, with nothing but the contract."""

    is_checkpointable = True
    is_indexed = True
    has_constant_time_access = True

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        for item in self.source:
            yield maybe_attach_graph_origin([item, item], get_graph_origin(item))

    def __getitem__(self, token: Any) -> Any:
        token = normalize_graph_token(token)
        return attach_graph_origin([self.source[token]] * 2, token)

    def state_dict(self) -> dict[str, Any]:
        return {"source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.source.load_state_dict(state["source"])


def twice(kind: Callable[..., IteratorNode], node: Make) -> IteratorNode:
    """The same node object in two places."""
    same = node()
    return kind(same, leaf(2), same)


GRAPHS: dict[str, Make] = {
    "leaf": leaf,
    "leaf, shuffled": shuffled,
    "leaf, empty": partial(shuffled, 0),
    "leaf, one sample": partial(shuffled, 1),
    "leaf, one rank of three": partial(shuffled, 10, rank=1, world_size=3),
    "leaf, global batches of one rank of two": partial(
        shuffled, 15, rank=1, world_size=2, partition="batches", global_batch=4
    ),
    "leaf, in windows": partial(shuffled, 15, window=6, lanes=2),
    "batches by length": lambda: LazyLengthBatcher(LazyMapper(shuffled(15), text), max_tokens=6, span=8),
    "packed batches of one rank of two": lambda: LazyLengthBatcher(
        shuffled(15), max_tokens=6, pack=True, span=8, rank=1, world_size=2, global_batch=4, tail="pad"
    ),
    "mixture": lambda: LazyMixture(shuffled(), LazyMapper(leaf(3), text), weights={0: [3, 1], 5: [1, 1]}, seed=2),
    "mixture that stops": lambda: LazyMixture(shuffled(), leaf(3), weights=[1, 2], end="stop"),
    "leaf, a padded block": partial(shuffled, 10, rank=2, world_size=3, partition="block", tail="pad"),
    "mapper": lambda: LazyMapper(shuffled(), text),
    "mapper of some": lambda: LazyMapper(shuffled(), text, apply_fn=odd),
    "filter": lambda: LazyFilter(shuffled(9), odd),
    "filter that drops all": lambda: LazyFilter(shuffled(), nothing),
    "slicer": lambda: LazySlicer(shuffled(8), 1, 3),
    "slicer of a filter": lambda: LazySlicer(LazyFilter(shuffled(9), odd), 0, 2),
    "chain": lambda: LazyIteratorChain(shuffled(3), LazyFilter(leaf(), odd), leaf(0), shuffled(2)),
    "chain of none": LazyIteratorChain,
    "chain, shuffled": lambda: LazyIteratorChain(
        leaf(3), LazyIteratorChain(leaf(2), LazyMapper(leaf(3), text)), leaf(0), leaf(2), shuffle_iters=True, seed=5
    ),
    "chain, shuffled, one rank of two": lambda: LazyIteratorChain(
        leaf(5), leaf(4), shuffle_iters=True, rank=1, world_size=2
    ),
    "mux": lambda: LazyIteratorMultiplexer(shuffled(3), leaf(6), weights=[0.3, 0.7], seed=1),
    "mux that stops early": lambda: LazyIteratorMultiplexer(shuffled(3), leaf(6), stop_early=True, seed=1),
    "mux of one node twice": lambda: twice(LazyIteratorMultiplexer, shuffled),
    "global shuffle": lambda: LazyGlobalShuffle(leaf(), 3),
    "global shuffle of a mapper": lambda: LazyGlobalShuffle(LazyMapper(leaf(), text), 3),
    "filter of a global shuffle, twice": lambda: twice(
        LazyIteratorChain, lambda: LazyFilter(LazyGlobalShuffle(leaf(), 3), odd)
    ),
    "shuffler": lambda: LazyShuffler(shuffled(9), 4, seed=1),
    "shuffler with room for all": lambda: LazyShuffler(leaf(5), 50),
    "shuffler of numbers and None": lambda: LazyShuffler(LazyMapper(numbers(11), none_at_104), 3),
    "flattener": lambda: LazyFlattener(LazyMapper(shuffled(6), several)),
    "flattener of a shuffler": lambda: LazyFlattener(LazyShuffler(LazyMapper(leaf(6), several), 3)),
    "repeater": lambda: LazyRepeater(shuffled(4), 3),
    "repeater of a shuffler": lambda: LazyRepeater(LazyShuffler(leaf(6), 4), 3),
    "repeater of a chain": lambda: LazyRepeater(LazyIteratorChain(leaf(2), shuffled(3), shuffle_iters=True), 2),
    "batcher": lambda: LazyBatcher(shuffled(7), 3),
    "batcher of full ones": lambda: LazyBatcher(shuffled(7), 3, drop_last=True),
    "batcher of batches": lambda: LazyBatcher(LazyBatcher(numbers(), 2), 2),
    "prefetcher": lambda: LazyPrefetcher(LazyMapper(LazyFilter(shuffled(9), odd), text), ahead=3, threads=2),
    "foreign": lambda: Doubler(shuffled()),
    "foreign of numbers": lambda: Doubler(Doubler(numbers())),
    "foreign twice in a chain": lambda: twice(LazyIteratorChain, lambda: Doubler(LazyRepeater(shuffled(2), 2))),
    "foreign twice in a mux": lambda: twice(LazyIteratorMultiplexer, lambda: Doubler(LazyFilter(shuffled(), odd))),
    "shuffler of a mux of foreigns": lambda: LazyShuffler(LazyIteratorMultiplexer(Doubler(leaf(4)), shuffled(3)), 3),
}


def ids_of(batch: InterleavedBatch) -> list[str]:
    ids: list[str] = batch.table["sample_id"].to_pylist()
    return ids


DATA_GRAPHS: dict[str, Make] = {
    "samples": lambda: LazyIndexedManifestIterator(data.speech()),
    "samples, shuffled": lambda: LazyIndexedManifestIterator(data.speech(), shuffle=True, seed=3),
    "segments": lambda: LazyIndexedManifestIterator(SegmentSamples(open_dataset(str(data.speech()))), shuffle=True),
    "merged segments": lambda: LazyIndexedManifestIterator(merged_speech()),
    "lines by index": lambda: LazyIndexedManifestIterator(data.lines(), shuffle=True),
    "lines": lambda: LazyManifestIterator(data.lines()),
    "lines, compressed": lambda: LazyManifestIterator(f"{data.lines()}.gz"),
    "lines of a command": lambda: LazyManifestIterator(f"pipe:cat {data.lines()}"),
    "shards": lambda: LazyManifestIterator(data.speech()),
    "shards, shuffled, one rank of two": lambda: LazyManifestIterator(data.speech(), True, 3, rank=1, world_size=2),
    "filter of streamed shards": lambda: LazyFilter(LazyManifestIterator(data.speech()), is_first),
    "repeater of streamed lines": lambda: LazyRepeater(LazyManifestIterator(data.lines(3)), 2),
    "shar": lambda: LazySharIterator(in_dir=data.shar_directory()),
    "shar, compressed, shuffled": lambda: LazySharIterator(in_dir=data.shar_directory(True), shuffle_shards=True),
    "shar, some fields": lambda: LazySharIterator(data.shar_fields(True, "lang")),
    "shar by index": lambda: LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=True),
    "shar by index, one rank of two": lambda: LazyIndexedSharIterator(
        data.shar_fields(False, "lang"), shuffle=True, rank=1, world_size=2
    ),
    "interleaved samples": lambda: LazyMapper(LazyInterleavedIterator(data.interleaved_reader(), True, 3), ids_of),
    "repeater of a shar": lambda: LazyRepeater(LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=True), 2),
    "chain of shars, shuffled": lambda: LazyIteratorChain(
        LazyIndexedSharIterator(in_dir=data.shar_directory()),
        LazyMapper(LazyIndexedSharIterator(data.shar_fields(False, "lang")), list),
        shuffle_iters=True,
    ),
}


def merged_speech() -> MergedSamples:
    return MergedSamples(open_dataset(str(data.speech())), parse_plan("max=0.05"))


def is_first(sample: Any) -> bool:
    return bool(sample.ordinal == 0)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything in a state that can be replaced."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])
