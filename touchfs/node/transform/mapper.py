"""A function applied to each item. It must depend on the item alone: rebuilding from a token calls it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.description import recorded
from touchfs.node.core.foreign import extended, locate
from touchfs.node.core.iteration import Make, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.lhotse_names import also_named
from touchfs.node.core.pair_node import name_of
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.core.transform import TransformIteration, TransformNode
from touchfs.node.order.ordered_node import OrderedNode


class LazyMapper(TransformNode):
    """`fn(item)` for each item of `source`. With `apply_fn`, items for which it is false pass unchanged.

    Tokens are those of the source. `fn` is called when an item is made, not when it is skipped.
    """

    @also_named(iterator="source")
    def __init__(self, source: Any, fn: Callable[[Any], Any], apply_fn: Callable[[Any], Any] | None = None) -> None:
        super().__init__(source)
        self.fn = fn
        self.apply_fn = apply_fn

    def iteration(self, epoch: int, saved: Saved) -> MapperIteration:
        return MapperIteration(self, epoch, saved)

    def apply(self, make: Make) -> Any:
        """Return the item that `make()` makes with the function applied to it."""
        item = make()
        return self.fn(item) if self.apply_fn is None or self.apply_fn(item) else item

    def make(self, token: Token) -> Any:
        return self.apply(partial(super().make, token))

    def config(self) -> State:
        return {"fn": name_of(self.fn), "apply_fn": name_of(self.apply_fn)}

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        return {"source": ranks.source()}

    def extended(self, saved: Saved) -> State:
        return {**saved.fields(), "source": extended(self.source, saved.child("source"))}

    def locate(self, token: Token, epoch: int) -> State:
        return {**self.begin(epoch).state(), "source": locate(self.source, token, epoch)}

    def __len__(self) -> int:
        return len(self.source)

    def token_at(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal of the source in an epoch, for a global shuffle above."""
        token: Token = self.source.token_at(ordinal, epoch)
        return token

    def ordinal_of(self, token: Token) -> int:
        """Return the source's ordinal of a token."""
        return int(self.source.ordinal_of(token))


class MapperIteration(TransformIteration):
    """Passes the source's tokens on."""

    node: LazyMapper

    def walk(self) -> Iterator[Pair]:
        apply = self.node.apply
        for token, make in self.source.pairs:
            yield token, partial(apply, make)


def below_maps(source: Any) -> Any:
    """Return the node that a source is a map of; the source itself if it is not a map."""
    node = recorded(source)
    while isinstance(node, LazyMapper):
        node = recorded(node.source)
    return node


def described_order(source: Any, description: Saved) -> Saved:
    """Return the description of `below_maps(source)` in one of a source. Raises FormatError."""
    node = recorded(source)
    while isinstance(node, LazyMapper):
        (description,) = description.children("sources", 1)
        node = recorded(node.source)
    return description


def mapped_order(source: Any, what: str) -> OrderedNode:
    """Return the node whose order a source has, which may be a map of it. An error calls the source `what`.

    Raises UsageError for a source without a known order, and for one rank's part.
    """
    node = below_maps(source)
    if not isinstance(node, OrderedNode) or not node.has_order:
        raise UsageError(
            f"{what} has a known order, and a {kind_of(node)} has none: take datasets, shuffled and mapped as you "
            "like, and filter them with where"
        )
    if node.is_part:
        raise UsageError(f"{what} is not partitioned: give rank and world_size to what is above it alone")
    return node
