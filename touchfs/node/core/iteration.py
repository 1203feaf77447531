"""An iteration: one pass over a node, with a position that can be saved at any item.

The position belongs to the iteration, not to the node. `PairNode.begin` returns an `Iteration`: its `pairs` yield
(token, function that makes the item), and its `state()` may be called between any two pairs. Items are made only when
needed: a buffer holds tokens, and a slicer decodes nothing it skips. A token is None if nothing can rebuild the item.

An epoch is a number, not a leftover in a node: a parent in epoch e begins its children in epoch e. A node restored from
a state of the end of a pass yields nothing once, as its iterator would have; then it begins the next epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from touchfs.errors import UsageError
from touchfs.node.core.iterator_node import kind_of, refuse_state
from touchfs.node.core.scope import Track
from touchfs.node.core.seed import plain_seed
from touchfs.token import State, Token

if TYPE_CHECKING:
    from touchfs.node.core.pair_node import PairNode

Make: TypeAlias = Callable[[], Any]
Pair: TypeAlias = "tuple[Token | None, Make]"

# The field of a state of the start of an epoch which says that the pass before it has ended, and is to end once more.
ENDED = "ended"


class Iteration(ABC):
    """One pass over a node. Iterate it through `pairs`; `ended` becomes True at the end of the epoch."""

    def __init__(self, node: PairNode, epoch: int) -> None:
        self.node = node
        self.epoch = epoch
        # A copy: the node may later take another seed from a state.
        self.seed: Any = getattr(node, "seed", None)
        self.ended = False
        self._can_be_saved = False  # computed once, on the first `state()`: it inspects the whole graph below
        self.pairs = self._until_the_end()

    def _until_the_end(self) -> Iterator[Pair]:
        yield from self.walk()
        self.ended = True

    @abstractmethod
    def walk(self) -> Iterator[Pair]:
        """Yield the remaining pairs. Before each yield, the fields of the iteration must hold the next position."""

    def take(self, count: int) -> list[Token | None]:
        """Return the tokens of the next `count` pairs, fewer at the end. Do not mix with reading `pairs`."""
        return [token for token, _ in islice(self.pairs, count)]

    @abstractmethod
    def position(self) -> State:
        """Return the fields of the position as JSON, always under the same names."""

    def state(self) -> State:
        """Return the state whose next item is that of this pass, or after its end, the first one of the next epoch.

        Raises UsageError if the graph cannot be saved.
        """
        self._can_be_saved = self._can_be_saved or self.node.is_checkpointable
        if not self._can_be_saved:
            refuse_state(self.node, self.node.obstacle())
        if self.ended:
            return self.node.begin(self.epoch + 1).state()
        config, state = self.node.config(), self.position()
        if "seed" in config:
            config["seed"] = plain_seed(self.seed)
        for seed in self.node.drawn_seeds():
            if seed.differs_by_rank:
                state["given_seed"] = seed.given
        return {"node": kind_of(self.node), "config": config, "epoch": self.epoch, **state}

    def own_state(self) -> State:
        """Return the state that resumes this very pass: after its end, it says so. Raises as `state`."""
        return {**self.state(), ENDED: True} if self.ended else self.state()


class EndOfPass(Iteration):
    """The end of a pass, which has been resumed there: nothing is left."""

    def __init__(self, node: PairNode, epoch: int) -> None:
        super().__init__(node, epoch)
        self.ended = True

    def walk(self) -> Iterator[Pair]:
        yield from ()

    def position(self) -> State:
        raise NotImplementedError


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


def same(item: Any) -> Any:
    """Return the item: `partial(same, item)` is the `Make` of an existing item."""
    return item
