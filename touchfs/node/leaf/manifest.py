"""The leaf over any sequence or indexed dataset. Its tokens are ordinals.

A token needs no seed and no epoch: an ordinal is the same sample in any order. Every state records the length of the
sequence, and its `fingerprint` if it has one: a string that differs if the data differs. Of a sequence that has the
methods `paths(ordinals)` and `read(extension, ordinals)`, as samples of a dataset do, many samples take one call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.caches.backends.protocol import StorageBackend
from touchfs.caches.backends.rows import BackendRows
from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples, Samples
from touchfs.indexing import open_dataset
from touchfs.indexing.serving import warn_of_errors, warn_of_global_shuffle
from touchfs.node.core.iteration import Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.lhotse_names import INDEX_PATH, also_named, refuses
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed
from touchfs.node.leaf.decoded import DecodedSamples, OnError, SkippingIteration, warn_of
from touchfs.node.leaf.indexed_leaf import IndexedLeaf
from touchfs.node.order.batches import part_of
from touchfs.node.order.order import Order, order_seed, window_of
from touchfs.node.order.ordered_node import OrderIteration


class Indexed(Protocol):
    """The interface of a leaf's data: a list, a range, a shard, a dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, ordinal: int, /) -> Any: ...


class LazyIndexedManifestIterator(IndexedLeaf):
    """A leaf over a sequence or an indexed dataset. A token is the ordinal of a sample.

    `samples` may be a path: it is opened as a dataset, and shards without an index are indexed now. The items of a
    storage backend (`touchfs.backend`) are its rows. With `shuffle` each epoch has a new order, the global permutation
    of `seed` + epoch. Rank `rank` (from 0) of `world_size` visits its part of each epoch, as
    `Partition(rank, world_size, partition, tail)`. `global_batch`, `window` and `lanes` are as for a
    `LazyGlobalShuffle`.

    `decode` receives the object parsed from a sample's `.json` and returns the item. With `skip_decode_errors`,
    iterating skips samples whose JSON cannot be parsed or decoded, and warns or calls
    `decode_error_callback(error, ordinal, path)`; such a token still raises, and lengths count such samples.

    Raises UsageError for arguments that do not fit together, and as `touchfs.indexing.open_dataset` for a path.
    """

    @also_named(path="samples")
    @refuses(index_path=INDEX_PATH)
    def __init__(
        self,
        samples: Indexed | Dataset | StorageBackend | str | os.PathLike[str],
        shuffle: bool = False,
        seed: Seed = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        partition: str = "stride",
        tail: str = "keep",
        global_batch: int | None = None,
        window: int | None = None,
        lanes: int = 1,
        decode: Callable[[Any], Any] | None = None,
        skip_decode_errors: bool = False,
        decode_error_callback: OnError | None = None,
    ) -> None:
        if decode_error_callback is not None and not skip_decode_errors:
            raise UsageError("decode_error_callback is called for skipped samples only: give skip_decode_errors=True")
        self.samples = _open_samples(samples)
        self.path = self.samples.dataset.source if isinstance(self.samples, Samples) else ""
        if decode is not None or skip_decode_errors:
            self.samples = DecodedSamples(self.samples, decode)
        self.on_decode_error = (decode_error_callback or warn_of) if skip_decode_errors else None
        self._lengths: dict[str, NDArray[np.int64]] = {}
        seed = order_seed(shuffle, seed, world_size > 1)
        part = part_of(rank, world_size, partition, tail, global_batch, lanes)
        self.order = Order(len(self.samples), seed, part, window=window_of(seed, window, lanes))
        if seed is not None and window is None:
            warn_of_global_shuffle(self.samples)

    def iteration(self, epoch: int, saved: Saved) -> OrderIteration:
        if self.on_decode_error is None:
            return super().iteration(epoch, saved)
        return SkippingIteration(self, epoch, saved, self.path, self.on_decode_error)

    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        return ordinal, partial(self.samples.__getitem__, ordinal)

    def token_of(self, ordinal: int, epoch: int) -> int:
        return ordinal

    def lengths_at(self, ordinals: NDArray[np.int64], epoch: int, measure: str) -> NDArray[np.int64]:
        found = self._lengths.get(measure)
        if found is None:
            if not hasattr(self.samples, "lengths"):
                return super().lengths_at(ordinals, epoch, measure)
            found = self._lengths[measure] = self.samples.lengths(measure)
        return found[ordinals]

    def tokens_of(self, ordinals: list[int], epoch: int) -> list[Token | None]:
        return cast("list[Token | None]", ordinals)

    def ordinal_of(self, token: Token) -> int:
        return cast(int, token)

    def make(self, token: Token) -> Any:
        if type(token) is not int:
            raise TypeError(f"{kind_of(self)} expects tokens that are integers, the ordinal of a sample, not {token!r}")
        if not 0 <= token < self.order.size:
            raise IndexError(f"sample {token} is out of range: {kind_of(self)} has {self.order.size}")
        return self.samples[token]

    def paths(self, tokens: Sequence[Token]) -> list[bytes]:
        paths: Callable[[Sequence[Token]], list[bytes]] = getattr(self.samples, "paths", super().paths)
        return paths(tokens)

    def read(self, extension: str, tokens: Sequence[Any]) -> list[bytes]:
        read: Callable[[str, Sequence[Any]], list[bytes]] = getattr(self.samples, "read", super().read)
        return read(extension, tokens)

    def config(self) -> State:
        return {**self.order.config(), "fingerprint": self.fingerprint}


def _open_samples(samples: Indexed | Dataset | StorageBackend | str | os.PathLike[str]) -> Indexed:
    if isinstance(samples, str | os.PathLike):
        dataset = open_dataset(os.fspath(samples))
        samples = DatasetSamples(dataset)
        warn_of_errors(dataset)
    if isinstance(samples, StorageBackend):
        return BackendRows(samples)
    return DatasetSamples(samples) if isinstance(samples, Dataset) else samples
