"""The leaf over data without an index: shards one after the other, each read from its start.

The state is the shard and a cursor in it, so resuming opens one shard and seeks to the cursor: directly if the format
allows it, otherwise by skipping everything before it without decoding. There are no tokens: rebuilding a sample needs
an index, and `LazyIndexedManifestIterator`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.limits import LIMITS, Limits
from touchfs.node.core.iteration import Iteration, Make, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.lhotse_names import INDEX_PATH, refuses
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, plain_seed
from touchfs.node.leaf.dataloading import is_split
from touchfs.node.order.epoch import ordinals_of
from touchfs.node.order.order import Order, order_seed
from touchfs.node.order.partition import Partition
from touchfs.node.order.partitioned_node import PartitionedNode
from touchfs.shard.options import Options
from touchfs.stream.base import Stream, fingerprint_of
from touchfs.stream.open import open_streams


class StreamNode(PartitionedNode):
    """A leaf over streams of shards. Ranks share the shards; `shuffle_shards` gives them a new order in each epoch."""

    def __init__(
        self,
        streams: Sequence[Stream],
        shuffle_shards: bool = False,
        seed: Seed = 0,
        rank: int = 0,
        world_size: int = 1,
        stateful_shuffle: bool = True,
    ) -> None:
        self.streams = streams
        part = Partition(rank, world_size)
        has_ranks = world_size > 1 or is_split(self)
        self.order = Order(len(streams), order_seed(shuffle_shards, seed, has_ranks), part, stateful_shuffle)
        self.fingerprint = fingerprint_of(streams)

    def iteration(self, epoch: int, saved: Saved) -> StreamIteration:
        return StreamIteration(self, epoch, saved)

    @abstractmethod
    def present(self, make: Make, epoch: int) -> Make:
        """Return the function that makes an item of an epoch, given `make`, which makes the sample."""

    def make(self, token: Token) -> Any:
        raise UsageError(f"{kind_of(self)} cannot rebuild an item from a token: its data has no index")

    def config(self) -> State:
        order = {"shards": self.order.size, "seed": plain_seed(self.seed), "partition": self.order.partition.as_json()}
        return {**order, **self.order.shuffle_config(), "fingerprint": self.fingerprint}


class StreamIteration(Iteration):
    """`shard` counts this rank's finished shards; `place` is the cursor in the shard after those."""

    node: StreamNode

    def __init__(self, node: StreamNode, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch)
        self.order = node.order
        self.shard = saved.integer("shard", self.order.count())
        self.place = saved.integers("place")

    def walk(self) -> Iterator[Pair]:
        node = self.node
        for position in ordinals_of(self.order.whole(self.epoch), self.order.partition, self.shard):
            for place, make in node.streams[position].samples(self.place):
                self.place = place
                yield None, node.present(make, self.epoch)
            self.shard, self.place = self.shard + 1, []

    def position(self) -> State:
        return {"shard": self.shard, "place": list(self.place)}


class LazyManifestIterator(StreamNode):
    """A leaf over the samples of shards of any kind, of `NAME.jsonl.gz`, or of the JSON lines of `pipe:COMMAND`.

    `path` is a source as for `touchfs mount`, or one of these. With `shuffle_shards` each epoch has a new order of the
    shards, that of `seed` + epoch. Rank `rank` (from 0) of `world_size` visits every world_size-th shard. `limits` are
    the limits of parsing. Raises NotFoundError, FormatError and SourceError for shards that are missing, damaged or
    unreadable.
    """

    @refuses(index_path=INDEX_PATH)
    def __init__(
        self,
        path: str | os.PathLike[str],
        shuffle_shards: bool = False,
        seed: Seed = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        limits: Limits = LIMITS,
    ) -> None:
        self.path = os.fspath(path)
        super().__init__(open_streams(self.path, Options(limits=limits)), shuffle_shards, seed, rank, world_size)

    def present(self, make: Make, epoch: int) -> Make:
        return make
