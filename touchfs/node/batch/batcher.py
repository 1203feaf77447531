"""Batches of a fixed number of items."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.foreign import extended, maker
from touchfs.node.core.iteration import Make, Pair
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.core.transform import TransformIteration, TransformNode, refuse_drained


class LazyBatcher(TransformNode):
    """Lists of `batch_size` items of `source`. The token of a batch is the tuple of its items' tokens.

    `drop_last` drops the last batch if it is not full. Raises UsageError for a batch size below 1.
    """

    def __init__(self, source: Any, batch_size: int, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise UsageError(f"a batch has 1 or more items, not {batch_size}")
        super().__init__(source)
        self.batch_size = batch_size
        self.drop_last = drop_last

    def iteration(self, epoch: int, saved: Saved) -> BatcherIteration:
        return BatcherIteration(self, epoch, saved)

    def make(self, token: Token) -> list[Any]:
        if not isinstance(token, tuple) or not 0 < len(token) <= self.batch_size:
            raise TypeError(
                f"{kind_of(self)} expects tokens shaped like (source_token, …), 1 to {self.batch_size}, not {token!r}"
            )
        return list(map(maker(self.source), token))

    def extended(self, saved: Saved) -> State:
        refuse_drained(saved)
        return {**saved.fields(), "source": extended(self.source, saved.child("source"))}

    def config(self) -> State:
        return {"batch_size": self.batch_size, "drop_last": self.drop_last}


class BatcherIteration(TransformIteration):
    """`drained` means that the source has ended, and that its state is that of its next epoch."""

    node: LazyBatcher

    def __init__(self, node: LazyBatcher, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.drained = saved.flag("drained")

    def walk(self) -> Iterator[Pair]:
        size = self.node.batch_size
        while not self.drained:
            batch = list(islice(self.source.pairs, size))
            self.drained = len(batch) < size
            if not self.drained or (batch and not self.node.drop_last):
                yield _batch(batch)

    def position(self) -> State:
        return {**super().position(), "drained": self.drained}


def _batch(pairs: list[Pair]) -> Pair:
    tokens = tuple(token for token, _ in pairs if token is not None)
    return tokens if len(tokens) == len(pairs) else None, partial(_make_all, [make for _, make in pairs])


def _make_all(makes: list[Make]) -> list[Any]:
    return [make() for make in makes]
