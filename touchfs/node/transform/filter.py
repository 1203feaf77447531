"""A filter. Its predicate must depend on the item alone, otherwise states and tokens are invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.foreign import extended, locate
from touchfs.node.core.iteration import Pair, same
from touchfs.node.core.lhotse_names import also_named
from touchfs.node.core.pair_node import name_of
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.core.transform import TransformIteration, TransformNode


class LazyFilter(TransformNode):
    """The items of `source` for which `predicate(item)` is true. Tokens are those of the source.

    The token of a dropped item raises UsageError.
    """

    @also_named(iterator="source")
    def __init__(self, source: Any, predicate: Callable[[Any], Any]) -> None:
        super().__init__(source)
        self.predicate = predicate

    def iteration(self, epoch: int, saved: Saved) -> FilterIteration:
        return FilterIteration(self, epoch, saved)

    def make(self, token: Token) -> Any:
        item = super().make(token)
        if not self.predicate(item):
            raise UsageError(f"LazyFilter drops the item of token {token!r}: it is a token of another graph")
        return item

    def config(self) -> State:
        return {"predicate": name_of(self.predicate)}

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        # Each rank takes another number of items from its source until one passes.
        ranks.refuse_lock_step()
        return {"source": ranks.source()}

    def extended(self, saved: Saved) -> State:
        return {**saved.fields(), "source": extended(self.source, saved.child("source"))}

    def locate(self, token: Token, epoch: int) -> State:
        self.make(token)
        return {**self.begin(epoch).state(), "source": locate(self.source, token, epoch)}


class FilterIteration(TransformIteration):
    """Makes each item to test it, and yields the made item."""

    node: LazyFilter

    def walk(self) -> Iterator[Pair]:
        predicate = self.node.predicate
        for token, make in self.source.pairs:
            item = make()
            if predicate(item):
                yield token, partial(same, item)
