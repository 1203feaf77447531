"""A cache of graphs: those of the iterators that this process used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from touchfs.iterators.live_graph import LiveGraph
from touchfs.select.selector import Selector
from touchfs.store.patience import current_patience

_GRAPHS_KEPT = 256

T = TypeVar("T")


class UnbuiltError(Exception):
    """The graph of this spec must be built first, outside of the transaction, because that may take long."""

    def __init__(self, iterator: int, spec: str) -> None:
        super().__init__(spec)
        self.iterator = iterator
        self.spec = spec


class Graphs:
    """The graphs by the id of their iterator, at most 256."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._graphs: OrderedDict[int, LiveGraph] = OrderedDict()

    def get(self, iterator: int) -> LiveGraph | None:
        """Return the graph that an iterator had last, or None if it is not cached."""
        return self._graphs.get(iterator)

    def of(self, iterator: int, spec: str) -> LiveGraph:
        """Return the graph of an iterator with this spec. Raises UnbuiltError if it is not cached."""
        graph = self._graphs.get(iterator)
        if graph is None or graph.spec_text != spec:
            raise UnbuiltError(iterator, spec)
        return graph

    def with_built(self, act: Callable[[], T]) -> T:
        """Call `act`, and repeat after building each missing graph. Others may use the store during the build."""
        while True:
            try:
                return act()
            except UnbuiltError as missing:
                with current_patience().working():
                    graph = LiveGraph(missing.spec, self._selector)
                self._graphs[missing.iterator] = graph
                if len(self._graphs) > _GRAPHS_KEPT:
                    with suppress(KeyError):  # another thread may have emptied it
                        self._graphs.popitem(last=False)
