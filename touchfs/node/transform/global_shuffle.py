"""Global shuffle: a permutation of all items of a source."""

from __future__ import annotations

from typing import Any

from touchfs.errors import UsageError
from touchfs.node.core.seed import DrawnSeed, SeedOrRng, resolve_seed
from touchfs.node.leaf.indexed_leaf import IndexedLeaf
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.order.partition import Partition
from touchfs.node.transform.chain import LazyIteratorChain


def global_shuffle(source: Any, seed: SeedOrRng, partition: Partition) -> OrderedNode:
    """Return a node that yields the items of an indexed source in globally shuffled order.

    A leaf gets the order itself, as with `shuffle=True` and in the specs of iterators. Any other graph gets a chain
    above it. Raises UsageError for a source that is not indexed, or is one rank's part.
    """
    seed = resolve_seed(seed, partition.world_size > 1, takes_rng=True)
    if isinstance(seed, DrawnSeed) and partition.world_size > 1:
        raise UsageError("rng is each rank's own, and ranks of one shuffle need one seed: give an integer")
    if isinstance(source, IndexedLeaf):
        return source.reordered(seed, partition)
    return LazyIteratorChain(
        source,
        shuffle_iters=True,
        seed=seed,
        rank=partition.rank,
        world_size=partition.world_size,
        partition=partition.kind,
        tail=partition.tail,
    )
