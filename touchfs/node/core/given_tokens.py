"""Check the tokens of a foreign node: one token must not stand for two different items.

A state would list the token twice and restore the same item for both. The same item may come twice. A token is
compared with the previous one and with those of items that are still referenced, for example by a shuffle buffer or
an unfinished batch. So the check itself keeps only the last item alive.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from touchfs.core.errors import UsageError
from touchfs.core.token import Token

# How deep the comparison of two items goes.
LEVELS = 10


class GivenTokens:
    """The recent tokens of one foreign node, whose class name `kind` appears in errors."""

    __slots__ = ("_kind", "_last", "_live")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._last: tuple[Token, Any] | None = None
        self._live: WeakValueDictionary[Token, Any] = WeakValueDictionary()

    def add(self, token: Token, make: partial[Any]) -> None:
        """Note the token of the item, which is the argument of `make`. Raises UsageError if a different item has it."""
        (item,) = make.args
        earlier = self._find(token)
        if earlier is not None and not are_alike(earlier, item):
            raise UsageError(
                f"{self._kind} gives two different items the token {token!r:.80}, {earlier!r:.80} and {item!r:.80}: "
                "give each a token of its own, such as (token, number)"
            )
        self._last = token, item
        try:
            self._live[token] = item
        except TypeError:  # no weak references to integers and tuples
            self._live[token] = make

    def _find(self, token: Token) -> Any:
        if self._last is not None and self._last[0] == token:
            return self._last[1]
        found = self._live.get(token)
        return found.args[0] if isinstance(found, partial) else found


def are_alike(one: Any, other: Any, levels: int = LEVELS) -> bool:
    """Return True if two objects were made from the same data, or if that cannot be decided."""
    if one is other or not levels:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(partial(are_alike, levels=levels - 1), one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_alike(one[key], other[key], levels - 1) for key in one)
    try:
        if hasattr(one, "shape"):
            return bool(one.shape == other.shape and _equal_or_nan(one, other).all())
        if _equal_or_nan(one, other):
            return True
        compares: Any = type(one).__eq__
        by_value = compares is not object.__eq__
    except (TypeError, ValueError, RuntimeError):  # an array in it has no truth value
        by_value = False
    if hasattr(one, "__dict__") and (is_dataclass(one) or not by_value):
        ours, theirs = ({**vars(each), "_graph_origin": None} for each in (one, other))
        return are_alike(ours, theirs, levels - 1)
    return not by_value


def _equal_or_nan(one: Any, other: Any) -> Any:
    return (one == other) | ((one != one) & (other != other))
