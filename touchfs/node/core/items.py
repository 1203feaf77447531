"""From pairs to items that carry their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from touchfs.node.core.origin import CannotCarryError, attach_graph_origin
from touchfs.token import Token


class Items:
    """The items of pairs, each with its token attached.

    Not a generator: a generator ends when an item raises, and this must continue with the next item.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterator[tuple[Token | None, Callable[[], Any]]]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> Any:
        token, make = next(self._pairs)
        return with_token(make(), token)


def with_token(item: Any, token: Token | None) -> Any:
    """Attach a token to an item, unless the token is None or the item cannot carry one."""
    if token is None:
        return item
    try:
        return attach_graph_origin(item, token)
    except CannotCarryError:
        return item
