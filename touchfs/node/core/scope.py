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

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import kind_of


class Track:
    """The epoch that begins next, the iteration to use instead once (`loaded`), and the latest iteration.

    In a copy that was unpickled the state of `loaded` is `unbegun`, until the node is used.
    """

    __slots__ = ("epoch", "latest", "loaded", "unbegun")

    def __init__(self, epoch: int = 0, unbegun: State | None = None) -> None:
        self.epoch = epoch
        self.unbegun = unbegun
        self.loaded: Iteration | None = None
        self.latest: Iteration | None = None

    def next_start(self) -> tuple[int, State | None]:
        """Return the epoch that begins next, and the state of `loaded` if there is one."""
        return self.epoch, self.unbegun if self.loaded is None else self.loaded.own_state()


class TrackedPairs:
    """The pairs of an iteration, which records itself on the node's track so that the node knows its position."""

    __slots__ = ("_iteration", "_track")

    def __init__(self, iteration: Iteration, track: Track) -> None:
        self._iteration = iteration
        self._track = track

    def __iter__(self) -> TrackedPairs:
        return self

    def __next__(self) -> Pair:
        iteration, track = self._iteration, self._track
        track.latest = iteration
        try:
            return next(iteration.pairs)
        except StopIteration:
            if not iteration.ended:
                # A generator that raised is exhausted, which would look like the end of the epoch.
                raise UsageError(
                    f"an iteration of {kind_of(iteration.node)} failed at an earlier item: start another from a state"
                ) from None
            # Two iterations that end the same epoch end it once.
            track.epoch = max(track.epoch, iteration.epoch + 1)
            raise


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
