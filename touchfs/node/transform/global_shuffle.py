"""The node that shuffles all items of a source together."""

from __future__ import annotations

from typing import Any

from touchfs.errors import UsageError
from touchfs.node.core.seed import DrawnSeed, SeedOrRng, resolve_seed
from touchfs.node.leaf.indexed_leaf import IndexedLeaf
from touchfs.node.order.order import OrderedNode
from touchfs.node.order.partition import Partition
from touchfs.node.transform.chain import LazyIteratorChain


def global_shuffle(source: Any, seed: SeedOrRng, partition: Partition) -> OrderedNode:
    """A leaf goes through its ordinals in that order itself: so it is the node that `shuffle=True` makes, and a spec.
    Any other graph is shuffled by a chain above it. UsageError where the source is not indexed, or is one rank's.
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
