"""`SampleSet`: samples to iterate over, made of others by chaining what is to be done with them.

    train = SampleSet.from_file("train/").filter(is_long).shuffle(seed=7).map(augment)
    for sample in train: ...

It only holds an iterator graph, `data` (`touchfs.node`), and each method makes another one with a node more. Nothing is
read before it is iterated. What the graph promises, saving and restoring included, is the nodes' to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from touchfs import node
from touchfs.errors import UsageError
from touchfs.node.core.seed import Seed, SeedOrRng
from touchfs.node.core.state import graph_of
from touchfs.node.leaf.shar import Fields, list_fields
from touchfs.node.transform.global_shuffle import global_shuffle
from touchfs.peers.match import has_native_indexes, matches, why_sequential
from touchfs.token import State


class SampleSet:
    """Of a node, or of anything iterable."""

    __slots__ = ("data",)

    def __init__(self, data: Iterable[Any]) -> None:
        self.data: Any = node.resolve_iterator_source(data)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, indexed: bool | None = None, **order: Any) -> SampleSet:
        """All samples of a source of `touchfs mount`, or of `NAME.jsonl.gz` or `pipe:COMMAND`.

        `indexed=True` gives random access, and indexes what is not indexed yet; `order` is then that of
        `LazyIndexedManifestIterator` (shuffle, seed, rank, world_size, partition, tail). `indexed=False` reads shards
        from start to end, in the order of `LazyManifestIterator` (shuffle_shards, seed, rank, world_size). By default
        it is what the data was prepared for: indexed if all files are plain and have their native indexes beside them
        (`touchfs.peers.match`).
        """
        path = os.fspath(path)
        _refuse_sequential([path], indexed)
        if has_native_indexes(path) if indexed is None else indexed:
            return cls(node.LazyIndexedManifestIterator(path, **order))
        return cls(node.LazyManifestIterator(path, **order))

    @classmethod
    def from_shar(
        cls,
        fields: Fields | None = None,
        in_dir: str | os.PathLike[str] | None = None,
        *,
        indexed: bool | None = None,
        **order: Any,
    ) -> SampleSet:
        """The cuts of a Lhotse Shar: a directory, or for each field that is wanted, and for `cuts`, its files.

        `indexed` as in `from_file`, of the wanted fields; `order` is that of `LazyIndexedSharIterator` or
        `LazySharIterator`; `shuffle_shards` shuffles samples where there is an index.
        """
        listed = list_fields(fields, in_dir)
        paths = [path for each in listed.values() for path in each]
        _refuse_sequential(paths, indexed)
        if indexed is None:
            indexed = all(map(matches, paths)) if in_dir is None else has_native_indexes(os.fspath(in_dir))
        if not indexed:
            return cls(node.LazySharIterator(fields, in_dir, **order))
        if "shuffle_shards" in order:
            # Lhotse's name: with an index it shuffles samples.
            order["shuffle"] = order.pop("shuffle_shards")
        return cls(node.LazyIndexedSharIterator(fields, in_dir, **order))

    def filter(self, predicate: Callable[[Any], Any]) -> SampleSet:
        return SampleSet(node.LazyFilter(self.data, predicate))

    def map(self, fn: Callable[[Any], Any], apply_fn: Callable[[Any], Any] | None = None) -> SampleSet:
        return SampleSet(node.LazyMapper(self.data, fn, apply_fn))

    def flatten(self) -> SampleSet:
        """The items of collections."""
        return SampleSet(node.LazyFlattener(self.data))

    def repeat(self, times: int | None = None, preserve_id: bool = True) -> SampleSet:
        """Without end, unless `times` are said."""
        return SampleSet(node.LazyRepeater(self.data, times, preserve_id))

    def shuffle(
        self,
        seed: SeedOrRng = 0,
        buffer_size: int | None = None,
        *,
        rng: Random | None = None,
        rank: int = 0,
        world_size: int = 1,
        partition: str = "stride",
        tail: str = "keep",
    ) -> SampleSet:
        """Shuffle globally, which needs an index, or approximately through a buffer of `buffer_size` items, any stream.

        A global shuffle can be the part of one of several ranks. If `seed` is None, or there is an `rng`, one is drawn.
        """
        if rng is not None:
            seed = rng
        if buffer_size is None:
            return SampleSet(global_shuffle(self.data, seed, node.Partition(rank, world_size, partition, tail)))
        if world_size != 1:
            raise UsageError("a shuffle buffer has no ranks: give rank and world_size to what is shuffled")
        return SampleSet(node.LazyShuffler(self.data, buffer_size, seed))

    def chain(self, *others: Iterable[Any], **options: Any) -> SampleSet:
        """This and then the others; `options` are those of `LazyIteratorChain`."""
        return SampleSet(node.LazyIteratorChain(self, *others, **options))

    def mux(
        self, *others: Iterable[Any], weights: Sequence[float] | None = None, stop_early: bool = False, seed: Seed = 0
    ) -> SampleSet:
        """This and others mixed: `a.mux(b)`, or `SampleSet.mux(a, b)`."""
        return SampleSet(node.LazyIteratorMultiplexer(self, *others, stop_early=stop_early, weights=weights, seed=seed))

    def mix(self, others: Iterable[Any], **options: Any) -> SampleSet:
        """Each with others added to its sound, as noise; `options` are those of `LazyCutMixer`.

        Samples of a dataset come as `touchfs.node.Sound`: their recording decoded, and mixed.
        """
        from touchfs.node.audio.cut_mixer import LazyCutMixer

        return SampleSet(LazyCutMixer(self, others, **options))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        """Raises TypeError where it is not known before iterating."""
        return len(self.data)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, token: Any) -> Any:
        """The item of a token, which `touchfs.node.get_graph_origin` tells."""
        return self.data[token]

    def state_dict(self) -> State:
        """Where the iteration is, to be saved."""
        return node.collect_state_dict(self.data)

    def load_state_dict(self, state: State) -> None:
        """The next iteration begins where the state says."""
        node.restore_state_dict(self.data, state)

    def __repr__(self) -> str:
        return f"SampleSet({graph_of(self.data)})"


def _refuse_sequential(paths: Sequence[str], indexed: bool | None) -> None:
    for path in paths:
        if indexed and (why := why_sequential(path)):
            raise UsageError(f"cannot be indexed: {why}, or read it with indexed=False", path=path)
