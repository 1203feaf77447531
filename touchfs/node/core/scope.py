"""Where the iterations of a node are remembered, for those who ask the node.

The contract asks the *node* for its state, but position lives in iterators, of which a node may have many. So each
node has a `Track`: its latest iteration, or the one that was loaded and not begun, and the epoch to begin next.

A node written elsewhere iterates its source with `iter(self.source)` and saves it with `self.source.state_dict()`.
When such a node occurs twice in a graph (`mux(a, a)`), or in two live iterations, one track for its source would mix
them up. So whoever drives such a node does it inside a `Scope` of that iteration, and what happens to a node inside a
scope is noted on a track of that scope. Outside of all scopes a node's own track counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from touchfs.node.core.base import Iteration


class Track:
    """`epoch` begins next; `loaded` is where the next iteration begins instead, once."""

    __slots__ = ("epoch", "latest", "loaded")

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.loaded: Iteration | None = None
        self.latest: Iteration | None = None


class Scope:
    __slots__ = ("_epoch", "_tracks")

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        # The node is kept with its track, or another could get its id.
        self._tracks: dict[int, tuple[object, Track]] = {}

    def track(self, node: object) -> Track:
        entry = self._tracks.get(id(node))
        if entry is None:
            entry = self._tracks[id(node)] = (node, Track(self._epoch))
        return entry[1]

    def adopt_epoch(self) -> int:
        """The epoch of what was loaded, in which all else begins then too."""
        self._epoch = min((track.epoch for _, track in self._tracks.values()), default=self._epoch)
        return self._epoch

    @contextmanager
    def entered(self) -> Iterator[None]:
        before = current_scope.set(self)
        try:
            yield
        finally:
            current_scope.reset(before)


current_scope: ContextVar[Scope | None] = ContextVar("current_scope", default=None)
