"""A plugin of pytest that puts our nodes in the place of Lhotse's, in all modules of Lhotse: see lhotse_suite.py.

`LazyCutMixer` stays Lhotse's, over our nodes: ours mixes samples.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import lhotse.checkpoint
import lhotse.dataset
import lhotse.lazy
from lhotse.serialization import deserialize_item

from touchfs import node


def decoded(make: Callable[[], Any], decode: Callable[[Any], Any] = deserialize_item) -> Any:
    sample = make()
    return decode(json.loads(sample[sample.json_name]))


class LazyIndexedManifestIterator(node.LazyIndexedManifestIterator):
    def __init__(self, path: Any, *args: Any, decode: Any = None, **options: Any) -> None:
        super().__init__(path, *args, decode=decode or deserialize_item, **options)


class LazyIndexedSharIterator(node.LazyIndexedSharIterator):
    def sample(self, position: int, epoch: int) -> Any:
        return decoded(partial(super().sample, position, epoch))


class LazyManifestIterator(node.LazyManifestIterator):
    def present(self, make: Any, epoch: int) -> Any:
        return partial(decoded, make)


class LazySharIterator(node.LazySharIterator):
    def present(self, make: Any, epoch: int) -> Any:
        return partial(decoded, make)


class LazyJsonlIterator(node.LazyManifestIterator):
    """Lhotse's says that it has no state, and has one, with which its tests try the nodes above. Ours has none."""

    def present(self, make: Any, epoch: int) -> Any:
        return partial(decoded, make, dict)


class LazyRepeater(node.LazyRepeater):
    def __init__(self, iterator: Any, times: int | None = None, preserve_id: bool = False) -> None:
        super().__init__(iterator, times, preserve_id)


OURS = {
    each.__name__: each
    for each in (
        LazyIndexedManifestIterator,
        LazyIndexedSharIterator,
        LazyJsonlIterator,
        LazyManifestIterator,
        LazyRepeater,
        LazySharIterator,
        node.LazyFilter,
        node.LazyFlattener,
        node.LazyInfiniteApproximateMultiplexer,
        node.LazyIteratorChain,
        node.LazyIteratorMultiplexer,
        node.LazyMapper,
        node.LazyShuffler,
        node.LazySlicer,
        node.attach_graph_origin,
        node.get_graph_origin,
        node.maybe_attach_graph_origin,
        node.normalize_graph_token,
        node.supports_graph_restore,
    )
}
lhotse.lazy.IteratorNode.register(node.IteratorNode)
for name in [name for name in sys.modules if name.partition(".")[0] == "lhotse"]:
    module = sys.modules[name]
    for found in OURS.keys() & vars(module).keys():
        setattr(module, found, OURS[found])
