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
from typing import Any, Protocol, TypeAlias

from touchfs.core.token import State, Token
from touchfs.node.core.iterator_node import kind_of, refuse_state
from touchfs.node.core.seed import DrawnSeed, plain_seed

Make: TypeAlias = Callable[[], Any]
Pair: TypeAlias = "tuple[Token | None, Make]"

# The field of a state of the start of an epoch which says that the pass before it has ended, and is to end once more.
ENDED = "ended"


class IteratedNode(Protocol):
    """What an iteration asks of its node, a `PairNode`: whether and how it is saved, and its next epoch."""

    @property
    def is_checkpointable(self) -> bool: ...

    def obstacle(self) -> str | None: ...

    def config(self) -> State: ...

    def drawn_seeds(self) -> list[DrawnSeed]: ...

    def begin(self, epoch: int) -> Iteration: ...


class Iteration(ABC):
    """One pass over a node. Iterate it through `pairs`; `ended` becomes True at the end of the epoch."""

    def __init__(self, node: IteratedNode, epoch: int) -> None:
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

    def __init__(self, node: IteratedNode, epoch: int) -> None:
        super().__init__(node, epoch)
        self.ended = True

    def walk(self) -> Iterator[Pair]:
        yield from ()

    def position(self) -> State:
        raise NotImplementedError


def same(item: Any) -> Any:
    """Return the item: `partial(same, item)` is the `Make` of an existing item."""
    return item
