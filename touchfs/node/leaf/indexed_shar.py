"""A Lhotse Shar with random access. A token is `(position, shar_epoch)`: a sample carries its epoch.

A token that is a plain integer means epoch 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from touchfs.containers.shar import files as shar_files
from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.dataset import Dataset
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples
from touchfs.dataset.shard import Shard
from touchfs.indexing import open_dataset
from touchfs.indexing.serving import warn_of_errors
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.lhotse_names import refuses
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.seed import Seed
from touchfs.node.leaf.dataloading import check_split, refuse_split, share_number
from touchfs.node.leaf.indexed_leaf import IndexedLeaf
from touchfs.node.leaf.shar import NOT_OF_SHAR, Fields, list_fields
from touchfs.node.order.order import Order, order_seed
from touchfs.node.order.partition import Partition
from touchfs.peers.match import why_sequential


class LazyIndexedSharIterator(IndexedLeaf):
    """A leaf over the cuts of a Lhotse Shar, read through an index, which is made if it is missing.

    Give a directory with all fields as `in_dir`, or `fields`: a mapping from each selected field, including `cuts`, to
    its files, one for each shard, all in one directory.

    `shuffle` orders the samples by `seed` + epoch, or by `seed` in each epoch with `stateful_shuffle=False`. Rank
    `rank` (from 0) of `world_size` visits its part, as `Partition(rank, world_size, partition, tail)`; with
    `split_for_dataloading` each process of a training job takes its own share instead
    (`touchfs.node.leaf.dataloading`). Items are samples (`Sample`) with `shar_epoch` set.

    Raises UsageError for compressed files and for fields that do not fit together; NotFoundError, FormatError and
    SourceError for files that are missing, damaged or unreadable.
    """

    @refuses(**NOT_OF_SHAR, lazy="a sample always reads its files on access")
    def __init__(
        self,
        fields: Fields | None = None,
        in_dir: str | os.PathLike[str] | None = None,
        *,
        shuffle: bool = False,
        seed: Seed = 42,
        rank: int = 0,
        world_size: int = 1,
        partition: str = "stride",
        tail: str = "keep",
        split_for_dataloading: bool = False,
        stateful_shuffle: bool = True,
    ) -> None:
        paths = list_fields(fields, in_dir)
        _refuse_compressed([path for each in paths.values() for path in each])
        dataset = open_dataset(os.path.dirname(paths[shar_files.CUTS][0]))
        if fields is None:
            # A compressed file is not needed if there is also a plain one.
            _refuse_compressed([name for shard in dataset.shards for name in shard.files if not _has_twin(name, shard)])
        self.fields = None if fields is None else sorted({shar_files.CUTS, *fields})
        self.samples = DatasetSamples(_subset(dataset, paths))
        warn_of_errors(self.samples.dataset)
        part = Partition(rank, world_size, partition, tail)
        self.split_for_dataloading = check_split(split_for_dataloading, part)
        seed = order_seed(shuffle, seed, part.world_size > 1 or split_for_dataloading)
        self.order = Order(len(self.samples), seed, part, stateful_shuffle)

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        if self.split_for_dataloading:
            return self.part(*share_number()).begin(epoch, saved)
        return super().begin(epoch, saved)

    def token_at(self, ordinal: int, epoch: int) -> Token:
        refuse_split(self)
        return super().token_at(ordinal, epoch)

    def pair_at(self, ordinal: int, epoch: int) -> Pair:
        return (ordinal, epoch), partial(self.sample, ordinal, epoch)

    def sample(self, position: int, epoch: int) -> Sample:
        """Return the sample at a position, marked with an epoch."""
        sample: Sample = self.samples[position]
        sample.shar_epoch = epoch
        return sample if self.fields is None else sample.only(self.fields)

    def token_of(self, ordinal: int, epoch: int) -> tuple[int, int]:
        return ordinal, epoch

    def ordinal_of(self, token: Token) -> int:
        return self._parts_of(token)[0]

    def make(self, token: Token) -> Sample:
        return self.sample(*self._parts_of(token))

    def locate(self, token: Token, epoch: int) -> State:
        if self._parts_of(token)[1] != epoch:
            raise UsageError(f"{token!r} is a token of epoch {self._parts_of(token)[1]}, and this is epoch {epoch}")
        return super().locate(token, epoch)

    def _parts_of(self, token: Token) -> tuple[int, int]:
        position, epoch = token if isinstance(token, tuple) and len(token) == 2 else (token, 0)
        if type(position) is not int or type(epoch) is not int or epoch < 0:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (position, shar_epoch), not {token!r}")
        if not 0 <= position < self.order.size:
            raise IndexError(f"sample {position} is out of range: {kind_of(self)} has {self.order.size}")
        return position, epoch

    def config(self) -> State:
        return {**self.order.config(), "fields": self.fields, "fingerprint": self.fingerprint}


def _refuse_compressed(paths: Iterable[str]) -> None:
    for path in paths:
        if why := why_sequential(path):
            raise UsageError(f"cannot be indexed: {why}, or stream it with LazySharIterator", path=path)


def _has_twin(name: str, shard: Shard) -> bool:
    return os.path.splitext(name)[0] in shard.files


def _subset(dataset: Dataset, fields: Mapping[str, Sequence[str]]) -> Dataset:
    """Return the dataset of only the shards that have these files."""
    by_path = {shard.path: shard for shard in dataset.shards}
    shards = []
    for position, cuts in enumerate(fields[shar_files.CUTS]):
        shard = by_path.get(cuts)
        for field, paths in fields.items():
            directory, name = os.path.split(paths[position])
            if shard is None or directory != os.path.dirname(cuts) or name not in shard.files:
                message = (
                    f"is not in the directory of {os.path.basename(cuts)} as its field: "
                    "only streaming (indexed=False) can read it"
                )
                raise UsageError(message, path=paths[position])
            if name.partition(".")[0] != field:
                raise UsageError(f"is not a file of the field {field!r}", path=paths[position])
        if shard is not None:
            shards.append(shard)
    reason = "an index of keys is of a whole dataset"
    return Dataset.of(dataset.source, shards, reason, dataset.limits, index_again=dataset.index_again)
