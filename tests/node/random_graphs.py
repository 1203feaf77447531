"""Random graphs of every kind of node, each made of a seed, and what they promise.

Items carry no token where a leaf is streamed, so a graph has leaves of one sort: `Recipe.restores` says which. What a
graph promises follows from its recipe alone, not from what its nodes say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
from node import data
from node.graphs import Doubler, Thing, Things, odd, text

from touchfs.node import (
    BucketingSampler,
    DynamicSampler,
    IteratorNode,
    LazyBatcher,
    LazyCutMixer,
    LazyFilter,
    LazyFlattener,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyInfiniteApproximateMultiplexer,
    LazyInterleavedIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyJsonlIterator,
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
    resolve_iterator_source,
    supports_graph_restore,
)


class Part(Thing):
    """A collection too: of one or two."""

    def __iter__(self) -> Iterator[Part]:
        return iter([Part((self.value, i)) for i in range(1 + _number(self) % 2)])


class Heard(Part):
    """With audio, so that noise can be mixed in."""

    sampling_rate = 1000

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.id = text(value)
        self.audio = np.linspace(-1, 1, 60 + _number(value) % 50)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heard) and repr(self) == repr(other)

    __hash__ = Part.__hash__

    def __repr__(self) -> str:
        return f"Heard({self.id!r}, {crc32(self.audio.tobytes())})"


class Parts(Things):
    def __getitem__(self, ordinal: int) -> Part:
        return Part(ordinal)


class Delegating(IteratorNode):
    """Written elsewhere, as the contract's example is."""

    is_checkpointable = True

    def __init__(self, source: Any) -> None:
        self.source = resolve_iterator_source(source)

    @property
    def is_indexed(self) -> bool:
        return getattr(self.source, "is_indexed", False)

    @property
    def has_constant_time_access(self) -> bool:
        return supports_graph_restore(self.source)

    def __getitem__(self, token: Any) -> Any:
        token = normalize_graph_token(token)
        return attach_graph_origin(Part(self.source[token]), token)

    def __iter__(self) -> Iterator[Any]:
        for item in self.source:
            yield maybe_attach_graph_origin(Part(item), get_graph_origin(item))

    def state_dict(self) -> dict[str, Any]:
        return {"source": self.source.state_dict()} if getattr(self.source, "is_checkpointable", False) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "source" in state:
            self.source.load_state_dict(state["source"])


def _number(item: Any) -> int:
    return crc32(repr(item).encode())


def _seconds(item: Any) -> float:
    return 0.5 + _number(item) % 10 / 2


def _slow(item: Any) -> Any:
    time.sleep(0.0002)
    return item


def _samples(r: Random) -> Any:
    return LazyMapper(LazyInterleavedIterator(data.interleaved_reader(), r.random() < 0.5), _ids)


def _ids(batch: Any) -> Part:
    return Part(tuple(batch.table["sample_id"].unique().to_pylist()))


def _any(item: Any) -> bool:
    return True


def _leaf(random: Random) -> IteratorNode:
    return _leaf_of(random, random.randrange(8))


def _leaf_of(random: Random, size: int) -> IteratorNode:
    return LazyIndexedManifestIterator(Parts(size), random.random() < 0.5, random.randrange(4))


INDEXED: dict[str, Callable[[Random], Any]] = {
    "leaf": _leaf,
    "rank": lambda r: LazyIndexedManifestIterator(Parts(9), True, rank=r.randrange(2), world_size=2),
    "mixture": lambda r: LazyMixture(
        _leaf_of(r, 5),
        LazyMapper(_leaf_of(r, 3), Part),
        weights=[r.randrange(1, 4), 1],
        end=r.choice(["repeat", "stop"]),
    ),
    "batches by length": lambda r: LazyMapper(
        LazyLengthBatcher(_leaf_of(r, 9), max_tokens=6, pack=r.random() < 0.5, span=r.randrange(1, 9)), Part
    ),
    "shar": lambda r: LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=r.random() < 0.5),
}
STREAMED: dict[str, Callable[[Random], Any]] = {
    "lines": lambda r: LazyManifestIterator(data.lines(5)),
    "interleaved": _samples,
    "streamed shar": lambda r: LazySharIterator(in_dir=data.shar_directory(), shuffle_shards=r.random() < 0.5),
}
UNSAVED: dict[str, Callable[[Random], Any]] = {
    "jsonl": lambda r: LazyJsonlIterator(data.lines(5)),
    "list": lambda r: list(map(Part, range(r.randrange(1, 5)))),
}
LEAVES = INDEXED | STREAMED | UNSAVED

# Kinds over one source, made of it and of random numbers.
OVER_ONE: dict[str, Callable[[Any, Random], IteratorNode]] = {
    "mapper": lambda child, r: LazyMapper(child, Part, apply_fn=r.choice([None, odd])),
    "filter": lambda child, r: LazyFilter(child, odd),
    "slicer": lambda child, r: LazySlicer(child, r.randrange(2), 2),
    "shuffler": lambda child, r: LazyShuffler(child, r.choice([1, 3, 20]), r.randrange(4)),
    "global shuffle": lambda child, r: LazyGlobalShuffle(child, r.randrange(4)),
    "flattener": lambda child, r: LazyFlattener(child),
    "repeater": lambda child, r: LazyRepeater(child, r.randrange(1, 4)),
    "endless repeater": lambda child, r: LazyRepeater(child),
    "batcher": lambda child, r: LazyBatcher(child, r.randrange(1, 5), r.random() < 0.3),
    "prefetcher": lambda child, r: LazyPrefetcher(child, r.choice([1, 3, 16]), r.randrange(1, 3)),
    "prefetcher of slow items": lambda child, r: LazyPrefetcher(LazyMapper(child, _slow), 3, 1),
    "dynamic sampler": lambda child, r: DynamicSampler(
        child, 8, r.choice([None, 3]), r.random() < 0.5, r.randrange(4), r.random() < 0.3, _seconds, 4
    ),
    "bucketing sampler": lambda child, r: BucketingSampler(
        child, 8, r.choice([None, 3]), 3, r.choice([1, 6]), r.random() < 0.5, r.randrange(4), False, _seconds
    ),
    "mixer": lambda child, r: LazyCutMixer(
        LazyMapper(child, Heard), list(map(Heard, range(3))), mix_prob=0.7, random_mix_offset=True
    ),
    "foreign": lambda child, r: (Doubler if supports_graph_restore(child) and r.random() < 0.5 else Delegating)(child),
    "twice": lambda child, r: LazyIteratorMultiplexer(child, child, seed=r.randrange(4)),
}
OVER_THREE: dict[str, Callable[..., IteratorNode]] = {
    "chain": lambda *children, random: LazyIteratorChain(*children),
    "mux": lambda *children, random: LazyIteratorMultiplexer(*children, seed=random.randrange(4)),
    "mux that stops early": lambda *children, random: LazyIteratorMultiplexer(*children, stop_early=True),
    "infinite mux": lambda *children, random: LazyInfiniteApproximateMultiplexer(
        *children, max_open_streams=random.choice([None, 2])
    ),
}
SHUFFLE, SHUFFLED_CHAIN = "global shuffle", "shuffled chain"
SHUFFLES = [SHUFFLE, SHUFFLED_CHAIN]
# What can be below these two, at any depth.
ORDINAL_LEAVES = ["leaf", "shar"]
ORDINAL_KINDS = ["mapper", "mixer", *SHUFFLES]
COMPOSITES = [*OVER_ONE, *OVER_THREE, SHUFFLED_CHAIN]
HOLDING = {
    *("shuffler", "flattener", "prefetcher", "prefetcher of slow items", "dynamic sampler", "bucketing sampler"),
}


@dataclass(frozen=True)
class Recipe:
    """Calling it makes the graph, the same at each call."""

    kind: str
    children: tuple[Recipe, ...] = ()
    seed: int = 0

    def __call__(self) -> Any:
        random = Random(self.seed)
        children = [child() for child in self.children]
        if self.kind in LEAVES:
            return LEAVES[self.kind](random)
        if self.kind == "filter" and self.is_endless:
            return LazyFilter(children[0], _any)
        if self.kind in OVER_ONE:
            return OVER_ONE[self.kind](children[0], random)
        if self.kind == SHUFFLED_CHAIN:
            return LazyIteratorChain(*children, shuffle_iters=True, seed=random.randrange(4))
        return OVER_THREE[self.kind](*children, random=random)

    @property
    def kinds(self) -> Iterator[str]:
        yield self.kind
        for child in self.children:
            yield from child.kinds

    @property
    def restores(self) -> bool:
        """Tokens rebuild its items."""
        if self.kind in LEAVES:
            return self.kind in INDEXED
        return self.kind != "infinite mux" and all(child.restores for child in self.children)

    @property
    def saves(self) -> bool:
        """States resume it."""
        if self.kind == "infinite mux" or self.kind in UNSAVED:
            return False
        return all(child.saves and (child.restores or self.kind not in HOLDING) for child in self.children)

    @property
    def has_ordinals(self) -> bool:
        """It can be below a shuffled chain."""
        if self.kind in ORDINAL_KINDS:
            return all(child.has_ordinals for child in self.children)
        return self.kind in ORDINAL_LEAVES

    @property
    def is_endless(self) -> bool:
        return not {"endless repeater", "infinite mux"}.isdisjoint(self.kinds)


def over(kind: str, lower: Recipe, random: Random) -> Recipe | None:
    """A graph of that kind directly over another, or None where there can be none."""
    leaves = sorted(INDEXED if lower.restores else {*lower.kinds} & {*LEAVES})
    if kind in SHUFFLES:
        if not lower.has_ordinals:
            return None
        leaves = ORDINAL_LEAVES
    count = 1 if kind in OVER_ONE else 3
    children = [lower] + [Recipe(random.choice(leaves), (), random.randrange(99)) for _ in range(count - 1)]
    random.shuffle(children)
    return Recipe(kind, tuple(children), random.randrange(99))


def random_graph(random: Random, depth: int = 5) -> Recipe:
    sort = random.choice([INDEXED, INDEXED, INDEXED, STREAMED, UNSAVED])
    kinds = [kind for kind in COMPOSITES if sort is INDEXED or kind not in SHUFFLES]
    return _composite(random, sorted(sort), kinds, depth)


def _composite(random: Random, leaves: list[str], kinds: list[str], depth: int) -> Recipe:
    kind = random.choice(kinds)
    if kind in SHUFFLES:
        leaves, kinds = ORDINAL_LEAVES, ORDINAL_KINDS
    count = 1 if kind in OVER_ONE else 3
    children = tuple(_below(random, leaves, kinds, depth - 1) for _ in range(count))
    return Recipe(kind, children, random.randrange(1 << 30))


def _below(random: Random, leaves: list[str], kinds: list[str], depth: int) -> Recipe:
    if depth == 1 or random.random() < 0.15:
        return Recipe(random.choice(leaves), (), random.randrange(1 << 30))
    return _composite(random, leaves, kinds, depth)


GRAPHS_OF_PAIRS: list[tuple[str, str]] = [(kind, lower) for kind in COMPOSITES for lower in [*LEAVES, *COMPOSITES]]


def graphs_of_pair(kind: str, lower: str) -> list[Recipe]:
    """Graphs in which one kind is directly over the other, over indexed data and over streams."""
    random = Random(f"{kind} {lower}")
    if lower in LEAVES:
        below: list[Recipe | None] = [Recipe(lower, (), random.randrange(99))]
    else:
        make = partial(over, lower, random=random)
        below = [make(Recipe(leaf, (), random.randrange(99))) for leaf in ("leaf", "lines")]
    made = [over(kind, each, random) for each in below if each is not None]
    return [each for each in made if each is not None]
