"""Where the public names of `touchfs.node` are defined, so that each is imported at its first use."""

from __future__ import annotations

# The kinds of nodes. States have these names, and `merge_states` is given no node.
NODE_MODULES = {
    "BucketingSampler": "touchfs.node.batch.bucketing_sampler",
    "DynamicSampler": "touchfs.node.batch.sampler",
    "LazyBatcher": "touchfs.node.batch.batcher",
    "LazyCutMixer": "touchfs.node.audio.cut_mixer",
    "LazyFilter": "touchfs.node.transform.filter",
    "LazyFlattener": "touchfs.node.transform.flattener",
    "LazyGlobalShuffle": "touchfs.node.transform.global_shuffle",
    "LazyIndexedManifestIterator": "touchfs.node.leaf.manifest",
    "LazyIndexedSharIterator": "touchfs.node.leaf.indexed_shar",
    "LazyInfiniteApproximateMultiplexer": "touchfs.node.transform.infinite_multiplexer",
    "LazyInterleavedIterator": "touchfs.node.leaf.interleaved",
    "LazyIteratorChain": "touchfs.node.transform.chain",
    "LazyIteratorMultiplexer": "touchfs.node.transform.multiplexer",
    "LazyJsonlIterator": "touchfs.node.leaf.jsonl",
    "LazyLengthBatcher": "touchfs.node.batch.length_batcher",
    "LazyManifestIterator": "touchfs.node.leaf.manifest_stream",
    "LazyMapper": "touchfs.node.transform.mapper",
    "LazyMixture": "touchfs.node.transform.mixture",
    "LazyPrefetcher": "touchfs.node.transform.prefetcher",
    "LazyRepeater": "touchfs.node.transform.repeater",
    "LazySharIterator": "touchfs.node.leaf.shar",
    "LazyShuffler": "touchfs.node.transform.shuffler",
    "LazySlicer": "touchfs.node.transform.slicer",
}
MODULES = NODE_MODULES | {
    "IteratorNode": "touchfs.node.core.iterator_node",
    "PairNode": "touchfs.node.core.pair_node",
    "Partition": "touchfs.node.order.partition",
    "Sound": "touchfs.node.audio.sound",
    "attach_graph_origin": "touchfs.node.core.origin",
    "collect_state_dict": "touchfs.node.graph.state",
    "get_graph_origin": "touchfs.node.core.origin",
    "load_state": "touchfs.node.graph.state",
    "maybe_attach_graph_origin": "touchfs.node.core.origin",
    "merge_states": "touchfs.node.graph.merge",
    "normalize_graph_token": "touchfs.core.token",
    "resolve_iterator_source": "touchfs.node.core.iterator_node",
    "restore_state_dict": "touchfs.node.graph.state",
    "save_state": "touchfs.node.graph.state",
    "share_of": "touchfs.node.graph.share",
    "state_at": "touchfs.node.graph.state",
    "supports_graph_restore": "touchfs.node.core.iterator_node",
}
