"""The graphs of the iterators that a process has used last, each ready to step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from touchfs.iterators.live_graph import LiveGraph
from touchfs.select.selection import Selector
from touchfs.store.patience import current_patience

_GRAPHS_KEPT = 256

T = TypeVar("T")


class UnbuiltError(Exception):
    """The graph of this spec has to be built, outside of the transaction: that may take its time."""

    def __init__(self, iterator: int, spec: str) -> None:
        super().__init__(spec)
        self.iterator = iterator
        self.spec = spec


class Graphs:
    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._graphs: OrderedDict[int, LiveGraph] = OrderedDict()

    def get(self, iterator: int) -> LiveGraph | None:
        """Return the graph that an iterator had last, if it is kept."""
        return self._graphs.get(iterator)

    def of(self, iterator: int, spec: str) -> LiveGraph:
        """Return the graph of an iterator with this spec. Raises UnbuiltError."""
        graph = self._graphs.get(iterator)
        if graph is None or graph.spec_text != spec:
            raise UnbuiltError(iterator, spec)
        return graph

    def with_built(self, act: Callable[[], T]) -> T:
        """Act, and once more whenever a graph had to be built first. Others may use the store meanwhile."""
        while True:
            try:
                return act()
            except UnbuiltError as missing:
                with current_patience().working():
                    graph = LiveGraph(missing.spec, self._selector)
                self._graphs[missing.iterator] = graph
                if len(self._graphs) > _GRAPHS_KEPT:
                    with suppress(KeyError):  # other threads drop some too
                        self._graphs.popitem(last=False)
