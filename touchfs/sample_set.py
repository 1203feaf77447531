"""`SampleSet`: an iterator graph with methods that can be chained.

    train = SampleSet.from_file("train/").filter(is_long).shuffle(seed=7).map(augment)
    for sample in train: ...

A set only holds an iterator graph, `data` (`touchfs.node`); each method returns a new set with one more node. No sample
is read before iteration. Whether a set can be saved, restored or indexed depends on its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from touchfs import node
from touchfs.core.errors import ArgumentTypeError, UsageError
from touchfs.core.token import State
from touchfs.node.core.seed import Seed, SeedOrRng
from touchfs.node.graph.state import graph_of
from touchfs.node.leaf.shar import Fields, list_fields
from touchfs.peers.match import has_native_indexes, matches, why_sequential

if TYPE_CHECKING:
    from touchfs.loader import BatchLoader, ItemLoader

# Parameters of the order of samples that streams do not have.
_ORDER_OF_INDEX = ("shuffle", "partition", "tail", "global_batch", "window", "lanes")


class SampleSet:
    """The items of `data`: a node, another set, or any iterable."""

    __slots__ = ("data",)

    def __init__(self, data: Iterable[Any]) -> None:
        self.data: Any = node.resolve_iterator_source(data)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, indexed: bool | None = None, **order: Any) -> SampleSet:
        """Return the samples of a path as for `touchfs mount`, of `NAME.jsonl.gz`, or of `pipe:COMMAND`.

        `indexed=True` gives random access, and makes missing indexes; `order` then takes the parameters of
        `LazyIndexedManifestIterator` (shuffle, seed, rank, world_size, partition, tail, global_batch, window, lanes).
        `indexed=False` reads shards from start to end; `order` then takes those of `LazyManifestIterator`
        (shuffle_shards, seed, rank, world_size).
        By default the set is indexed if all files are plain and have their native indexes beside them
        (`touchfs.peers.match`).

        Raises UsageError if `indexed=True` is impossible, or needed for the `order`; NotFoundError, FormatError and
        SourceError for files that are missing, damaged or unreadable.
        """
        path = os.fspath(path)
        _refuse_sequential([path], indexed)
        if has_native_indexes(path) if indexed is None else indexed:
            return cls(node.LazyIndexedManifestIterator(path, **order))
        _refuse_order_of_index(path, order)
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
        """Return the cuts of a Lhotse Shar: of the directory `in_dir`, or of `fields`, a mapping from fields, including
        `cuts`, to files.

        `indexed` is as in `from_file`, for these fields; `order` takes the parameters of `LazyIndexedSharIterator` or
        `LazySharIterator`. With an index `shuffle_shards` shuffles samples. Raises as `from_file`.
        """
        listed = list_fields(fields, in_dir)
        paths = [path for each in listed.values() for path in each]
        _refuse_sequential(paths, indexed)
        if indexed is None:
            indexed = all(map(matches, paths)) if in_dir is None else has_native_indexes(os.fspath(in_dir))
        if not indexed:
            _refuse_order_of_index(paths[0], order)
            return cls(node.LazySharIterator(fields, in_dir, **order))
        if "shuffle_shards" in order:
            # Lhotse's name: with an index it shuffles samples.
            order["shuffle"] = order.pop("shuffle_shards")
        return cls(node.LazyIndexedSharIterator(fields, in_dir, **order))

    def filter(self, predicate: Callable[[Any], Any]) -> SampleSet:
        """Return the items for which `predicate(item)` is true (`LazyFilter`)."""
        return SampleSet(node.LazyFilter(self.data, predicate))

    def map(self, fn: Callable[[Any], Any], apply_fn: Callable[[Any], Any] | None = None) -> SampleSet:
        """Return `fn(item)` for each item, or only for those where `apply_fn(item)` is true (`LazyMapper`)."""
        return SampleSet(node.LazyMapper(self.data, fn, apply_fn))

    def prefetch(self, ahead: int = 16, threads: int = 8) -> SampleSet:
        """Make the next `ahead` items in threads, before they are taken, and fetch the files of samples
        (`LazyPrefetcher`). Items of a filter are made to be tested, so prefetch before it.
        """
        return SampleSet(node.LazyPrefetcher(self.data, ahead, threads))

    def flatten(self) -> SampleSet:
        """Return the items of each item, which must be iterable (`LazyFlattener`)."""
        return SampleSet(node.LazyFlattener(self.data))

    def repeat(self, times: int | None = None, preserve_id: bool = True) -> SampleSet:
        """Repeat the items `times` times, or without end if None (`LazyRepeater`).

        With `preserve_id=False` ids and keys get the suffix `_repeat0`, `_repeat1`, ….
        """
        return SampleSet(node.LazyRepeater(self.data, times, preserve_id))

    def shuffle(
        self,
        seed: SeedOrRng = 0,
        buffer_size: int | None = None,
        *,
        rng: Random | None = None,
        **order: Any,
    ) -> SampleSet:
        """Shuffle globally (needs an index), or approximately through a buffer of `buffer_size` items (any stream).

        The nodes are `LazyGlobalShuffle`, which `order` has more parameters of (rank, world_size, partition, tail,
        global_batch, window, lanes), and `LazyShuffler`. If `seed` is None, or `rng` is given, a seed is drawn. Raises
        UsageError if the items cannot be shuffled in this way.
        """
        if buffer_size is None:
            return SampleSet(node.LazyGlobalShuffle(self.data, seed, rng=rng, **order))
        if order:
            raise UsageError(f"a shuffle buffer has no {' and '.join(order)}: give that to what is shuffled")
        return SampleSet(node.LazyShuffler(self.data, buffer_size, seed, rng=rng))

    def chain(self, *others: Iterable[Any], **options: Any) -> SampleSet:
        """Append the items of others; `options` are those of `LazyIteratorChain`."""
        return SampleSet(node.LazyIteratorChain(self, *others, **options))

    def mux(
        self, *others: Iterable[Any], weights: Sequence[float] | None = None, stop_early: bool = False, seed: Seed = 0
    ) -> SampleSet:
        """Mix with others, drawing each item's source by weight (`LazyIteratorMultiplexer`).

        Write `a.mux(b)` or `SampleSet.mux(a, b)`. `weights` has a number above 0 for this set and each of `others`, by
        default all the same. `seed` is that of the draws. With `stop_early` the mix ends with its first source.
        """
        return SampleSet(node.LazyIteratorMultiplexer(self, *others, stop_early=stop_early, weights=weights, seed=seed))

    def mix(self, others: Iterable[Any], **options: Any) -> SampleSet:
        """Mix noise from `others` into the audio of each item; `options` are those of `LazyCutMixer`.

        Samples of a dataset become `touchfs.node.Sound`: their decoded recording, mixed.
        """
        from touchfs.node.audio.cut_mixer import LazyCutMixer

        return SampleSet(LazyCutMixer(self, others, **options))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, token: Any) -> Any:
        """Return the item of a token; `touchfs.node.get_graph_origin(item)` returns the token."""
        return self.data[token]

    def read(self, extension: str, tokens: Sequence[Any]) -> list[bytes]:
        """Return the bytes of the file with an extension of the samples of many `tokens`, in the order of these.

        For a dataset with an index, as `SampleSet.from_file(path, indexed=True)` has it, tokens are positions in the
        dataset, of shape (n,), and this is one call of `OpenDataset.read`; it raises the same errors. Any other graph
        makes the samples one by one, and raises UsageError if it cannot make them from tokens.
        """
        if isinstance(self.data, node.PairNode):
            return self.data.read(extension, tokens)
        return [self.data[token][extension] for token in tokens]

    def loader(self, *arguments: Any, **options: Any) -> BatchLoader | ItemLoader:
        """Return a PyTorch loader of the items. `OpenDataset.loader` has the same `arguments` and `options`."""
        from touchfs.loader import loader

        return loader(self.data, *arguments, **options)

    def state_dict(self) -> State:
        """Return the position of the iteration as JSON. Raises UsageError if the graph cannot be saved."""
        return node.collect_state_dict(self.data)

    def load_state_dict(self, state: State, extend: bool = False) -> None:
        """Make the next iteration start at a state from `state_dict`. `extend` is as for `OpenDataset.load_state_dict`.

        Raises FormatError or UsageError.
        """
        node.restore_state_dict(self.data, state, extend)

    def __repr__(self) -> str:
        return f"SampleSet({graph_of(self.data)})"


def _refuse_sequential(paths: Sequence[str], indexed: bool | None) -> None:
    for path in paths:
        if indexed and (why := why_sequential(path)):
            raise UsageError(f"cannot be indexed: {why}, or read it with indexed=False", path=path)


def _refuse_order_of_index(path: str, order: Mapping[str, Any]) -> None:
    for name in _ORDER_OF_INDEX:
        if name in order:
            problem = f"{name} needs indexed=True; shards that are read in order have shuffle_shards"
            raise ArgumentTypeError(problem, path=path)
