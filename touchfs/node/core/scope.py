"""Tracks: how a node finds its current iteration.

The contract asks the *node* for its state, but the position belongs to an iteration, of which a node may have many. So
each node has a `Track`: its latest iteration, or the one that was loaded and not begun, and the epoch to begin next.

A foreign node iterates its source with `iter(self.source)` and saves it with `self.source.state_dict()`. If such a
node occurs twice in a graph (`mux(a, a)`) or has two live iterations, a single track for its source would mix them up.
So each iteration of a foreign node runs inside a `Scope` of its own, and nodes used inside a scope are recorded on
tracks of that scope. Outside of all scopes a node uses its own track.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from touchfs.token import State

if TYPE_CHECKING:
    from touchfs.node.core.iteration import Iteration


class Track:
    """The epoch that begins next, the iteration to use instead once (`loaded`), and the latest iteration."""

    __slots__ = ("epoch", "latest", "loaded")

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.loaded: Iteration | None = None
        self.latest: Iteration | None = None

    def next_start(self) -> tuple[int, State | None]:
        """Return the epoch that begins next, and the state of `loaded` if there is one."""
        return self.epoch, None if self.loaded is None else self.loaded.own_state()


class Scope:
    """The tracks of all nodes used below one iteration of a foreign node."""

    __slots__ = ("_epoch", "_tracks")

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        # Keep a reference to the node, or another object could get its id.
        self._tracks: dict[int, tuple[object, Track]] = {}

    def track(self, node: object) -> Track:
        """Return the track of a node in this scope."""
        entry = self._tracks.get(id(node))
        if entry is None:
            entry = self._tracks[id(node)] = (node, Track(self._epoch))
        return entry[1]

    def adopt_epoch(self) -> int:
        """Return the earliest epoch that was loaded, and begin all other nodes of the scope in it."""
        self._epoch = min((track.epoch for _, track in self._tracks.values()), default=self._epoch)
        return self._epoch

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the current scope of the context."""
        before = current_scope.set(self)
        try:
            yield
        finally:
            current_scope.reset(before)


current_scope: ContextVar[Scope | None] = ContextVar("current_scope", default=None)
