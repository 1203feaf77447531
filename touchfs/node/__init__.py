"""The iterator graph: nodes that can be resumed exactly anywhere, and rebuild any item from its token."""

from touchfs.node.base import IteratorNode, PairNode, resolve_iterator_source, supports_graph_restore
from touchfs.node.batcher import LazyBatcher
from touchfs.node.bucketing_sampler import BucketingSampler
from touchfs.node.chain import LazyIteratorChain
from touchfs.node.cut_mixer import LazyCutMixer
from touchfs.node.elastic import merge_states
from touchfs.node.filter import LazyFilter
from touchfs.node.flattener import LazyFlattener
from touchfs.node.indexed_shar import LazyIndexedSharIterator
from touchfs.node.infinite_multiplexer import LazyInfiniteApproximateMultiplexer
from touchfs.node.jsonl import LazyJsonlIterator
from touchfs.node.manifest import LazyIndexedManifestIterator
from touchfs.node.manifest_stream import LazyManifestIterator
from touchfs.node.mapper import LazyMapper
from touchfs.node.multiplexer import LazyIteratorMultiplexer
from touchfs.node.origin import attach_graph_origin, get_graph_origin, maybe_attach_graph_origin
from touchfs.node.partition import Partition
from touchfs.node.prefetcher import LazyPrefetcher
from touchfs.node.repeater import LazyRepeater
from touchfs.node.sampler import DynamicSampler
from touchfs.node.shar import LazySharIterator
from touchfs.node.share import share_of
from touchfs.node.shuffler import LazyShuffler
from touchfs.node.slicer import LazySlicer
from touchfs.node.sound import Sound
from touchfs.node.state import collect_state_dict, load_state, restore_state_dict, save_state, state_at
from touchfs.token import normalize_graph_token

__all__ = [
    "BucketingSampler",
    "DynamicSampler",
    "IteratorNode",
    "LazyBatcher",
    "LazyCutMixer",
    "LazyFilter",
    "LazyFlattener",
    "LazyIndexedManifestIterator",
    "LazyIndexedSharIterator",
    "LazyInfiniteApproximateMultiplexer",
    "LazyIteratorChain",
    "LazyIteratorMultiplexer",
    "LazyJsonlIterator",
    "LazyManifestIterator",
    "LazyMapper",
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
