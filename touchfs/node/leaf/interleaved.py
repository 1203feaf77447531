"""The leaf over batches of interleaved samples: the partitions of a reader, one after the other.

The state is the partition and the reader's cursor in it, so resuming reads nothing of what came before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.names import hex_digest
from touchfs.core.token import State, Token
from touchfs.node.core.iteration import Iteration, Pair, same
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.core.seed import Seed, plain_seed
from touchfs.node.order.epoch import ordinals_of
from touchfs.node.order.order import Order, order_seed
from touchfs.node.order.partition import Partition
from touchfs.node.order.partitioned_node import PartitionedNode


class SteppedReader(Protocol):
    """A reader of interleaved samples whose partitions can be resumed at any batch (`touchfs.interleaved`)."""

    def partitions(self) -> Sequence[Any]:
        """Return the partitions, in order. Each has `files`, their paths, and `size`, their bytes."""
        ...

    def steps(self, partition: Any, cursor: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield the batches after a cursor, each with the cursor after it, which is JSON. None is before the first.

        Raises FormatError for a cursor that is not of this partition.
        """
        ...

    def describe(self) -> Any:
        """Return the parameters as JSON."""
        ...


class LazyInterleavedIterator(PartitionedNode):
    """A leaf over the batches (`InterleavedBatch`) of a reader of `touchfs.interleaved`.

    With `shuffle_shards` each epoch has a new order of the reader's partitions, that of `seed` + epoch. Rank `rank`
    (from 0) of `world_size` visits every world_size-th partition. Filters go above it, as `LazyMapper(leaf, filter)`.
    There are no tokens. Raises the errors of the reader.
    """

    def __init__(
        self,
        reader: SteppedReader,
        shuffle_shards: bool = False,
        seed: Seed = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.reader = reader
        self.partitions = list(reader.partitions())
        seed = order_seed(shuffle_shards, seed, world_size > 1)
        self.order = Order(len(self.partitions), seed, Partition(rank, world_size))
        files = [[[path.rpartition("/")[2] for path in each.files], each.size] for each in self.partitions]
        self.fingerprint = hex_digest(json.dumps([files, reader.describe()]).encode())

    def iteration(self, epoch: int, saved: Saved) -> Iteration:
        return _BatchIteration(self, epoch, saved)

    def make(self, token: Token) -> Any:
        raise UsageError(f"{kind_of(self)} cannot rebuild a batch from a token: only a state can be restored")

    def config(self) -> State:
        order = {"shards": self.order.size, "seed": plain_seed(self.seed), "partition": self.order.partition.as_json()}
        return {**order, **self.order.shuffle_config(), "fingerprint": self.fingerprint}


class _BatchIteration(Iteration):
    """`shard` counts this rank's finished partitions; `cursor` is the reader's in the partition after those.

    A state has the cursor as a text of JSON, as all states of a graph have the same fields.
    """

    node: LazyInterleavedIterator

    def __init__(self, node: LazyInterleavedIterator, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch)
        self.order = node.order
        self.shard = saved.integer("shard", self.order.count())
        self.cursor = None if saved.fresh else _parse(saved.get("cursor"))

    def walk(self) -> Iterator[Pair]:
        node = self.node
        for number in ordinals_of(self.order.whole(self.epoch), self.order.partition, self.shard):
            for batch, cursor in node.reader.steps(node.partitions[number], self.cursor):
                self.cursor = cursor
                yield None, partial(same, batch)
            self.shard, self.cursor = self.shard + 1, None

    def position(self) -> State:
        return {"shard": self.shard, "cursor": json.dumps(self.cursor)}


def _parse(cursor: object) -> Any:
    """Return the cursor in a state, which the reader checks. Raises FormatError if it is not JSON."""
    try:
        return json.loads(cursor)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"the cursor of interleaved samples is damaged: {cursor!r:.80}") from error
