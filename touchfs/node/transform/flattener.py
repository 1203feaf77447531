"""Flattening: the items of the collections that a source yields, in sequence.

A token is `(outer, inner)`: the source's token of the collection, and an ordinal in it. The state holds the token of
the current collection, so resuming makes only that collection again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.iteration import Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.core.transform import BufferingNode, TransformIteration


class LazyFlattener(BufferingNode):
    """The items of each collection (any iterable) that `source` yields. A token is `(source_token, ordinal in it)`."""

    def iteration(self, epoch: int, saved: Saved) -> FlattenerIteration:
        return FlattenerIteration(self, epoch, saved)

    def make(self, token: Token) -> Any:
        if not isinstance(token, tuple) or len(token) != 2 or type(token[1]) is not int:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (source_token, ordinal), not {token!r}")
        outer, inner = token[0], token[1]
        collection = self.collection(outer)
        if not 0 <= inner < len(collection):
            raise IndexError(f"{inner} is out of range: the collection of token {outer!r} has {len(collection)}")
        return collection[inner]

    def collection(self, outer: Token) -> Sequence[Any]:
        """Return the collection whose token is `outer` in the source."""
        return _sequence(super().make(outer))


class FlattenerIteration(TransformIteration):
    """`outer` is the token of the current collection, and `inner` how many of its items were taken."""

    node: LazyFlattener

    def __init__(self, node: LazyFlattener, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.outer: Token | None = saved.token("outer")
        self.inner = saved.integer("inner", 0 if self.outer is None else LARGEST)

    def walk(self) -> Iterator[Pair]:
        if self.outer is not None:
            collection = self.node.collection(self.outer)
            if self.inner > len(collection):
                raise UsageError(
                    f"the collection of token {self.outer!r} has {len(collection)} items, and {self.inner} were taken "
                    "from it: the state is of another graph or dataset"
                )
            yield from self._inside(collection)
        for outer, make in self.source.pairs:
            self.outer, self.inner = outer, 0
            yield from self._inside(_sequence(make()))

    def _inside(self, collection: Sequence[Any]) -> Iterator[Pair]:
        outer = self.outer
        for inner in range(self.inner, len(collection)):
            self.inner = inner + 1
            yield None if outer is None else (outer, inner), partial(collection.__getitem__, inner)

    def position(self) -> State:
        return {**super().position(), "outer": self.outer, "inner": self.inner}


def _sequence(collection: Any) -> Sequence[Any]:
    return collection if isinstance(collection, Sequence) else list(collection)
