"""The iterator graph: nodes that can be resumed exactly anywhere, and rebuild any item from its token.

    graph                           whole graphs: states, shares, merged states, steps
    public_names                    the table of all kinds of nodes
    batch, transform, audio, leaf   the kinds of nodes
    order                           ordinals in an order that ranks share, and the base classes of nodes with one
    core                            the contract: nodes, iterations and their tracks, states, tokens, seeds, sources

A module imports from rooms below its own only. `merge_states` is given states and no graph, so it asks the table.

A node is imported at its first use: a mount needs few of them, and none before its first iterator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from touchfs.node.public_names import MODULES

__all__ = [
    "BucketingSampler",
    "DynamicSampler",
    "IteratorNode",
    "LazyBatcher",
    "LazyCutMixer",
    "LazyFilter",
    "LazyFlattener",
    "LazyGlobalShuffle",
    "LazyIndexedManifestIterator",
    "LazyIndexedSharIterator",
    "LazyInfiniteApproximateMultiplexer",
    "LazyInterleavedIterator",
    "LazyIteratorChain",
    "LazyIteratorMultiplexer",
    "LazyJsonlIterator",
    "LazyLengthBatcher",
    "LazyManifestIterator",
    "LazyMapper",
    "LazyMixture",
    "LazyPrefetcher",
    "LazyRepeater",
    "LazySharIterator",
    "LazyShuffler",
    "LazySlicer",
    "PairNode",
    "Partition",
    "Sound",
    "attach_graph_origin",
    "collect_state_dict",
    "get_graph_origin",
    "load_state",
    "maybe_attach_graph_origin",
    "merge_states",
    "normalize_graph_token",
    "resolve_iterator_source",
    "restore_state_dict",
    "save_state",
    "share_of",
    "state_at",
    "supports_graph_restore",
]

if TYPE_CHECKING:
    from touchfs.core.token import normalize_graph_token
    from touchfs.node.audio.cut_mixer import LazyCutMixer
    from touchfs.node.audio.sound import Sound
    from touchfs.node.batch.batcher import LazyBatcher
    from touchfs.node.batch.bucketing_sampler import BucketingSampler
    from touchfs.node.batch.length_batcher import LazyLengthBatcher
    from touchfs.node.batch.sampler import DynamicSampler
    from touchfs.node.core.iterator_node import IteratorNode, resolve_iterator_source, supports_graph_restore
    from touchfs.node.core.origin import attach_graph_origin, get_graph_origin, maybe_attach_graph_origin
    from touchfs.node.core.pair_node import PairNode
    from touchfs.node.graph.merge import merge_states
    from touchfs.node.graph.share import share_of
    from touchfs.node.graph.state import collect_state_dict, load_state, restore_state_dict, save_state, state_at
    from touchfs.node.leaf.indexed_shar import LazyIndexedSharIterator
    from touchfs.node.leaf.interleaved import LazyInterleavedIterator
    from touchfs.node.leaf.jsonl import LazyJsonlIterator
    from touchfs.node.leaf.manifest import LazyIndexedManifestIterator
    from touchfs.node.leaf.manifest_stream import LazyManifestIterator
    from touchfs.node.leaf.shar import LazySharIterator
    from touchfs.node.order.partition import Partition
    from touchfs.node.transform.chain import LazyIteratorChain
    from touchfs.node.transform.filter import LazyFilter
    from touchfs.node.transform.flattener import LazyFlattener
    from touchfs.node.transform.global_shuffle import LazyGlobalShuffle
    from touchfs.node.transform.infinite_multiplexer import LazyInfiniteApproximateMultiplexer
    from touchfs.node.transform.mapper import LazyMapper
    from touchfs.node.transform.mixture import LazyMixture
    from touchfs.node.transform.multiplexer import LazyIteratorMultiplexer
    from touchfs.node.transform.prefetcher import LazyPrefetcher
    from touchfs.node.transform.repeater import LazyRepeater
    from touchfs.node.transform.shuffler import LazyShuffler
    from touchfs.node.transform.slicer import LazySlicer
else:

    def __getattr__(name: str) -> object:
        if name in MODULES:
            return getattr(importlib.import_module(MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
