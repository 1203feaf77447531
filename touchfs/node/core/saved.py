"""Reading a state. A state may come from anywhere, so every value is checked before it is used.

A `Saved` without fields reads as zeros everywhere, which is the state before the first item of an epoch. So beginning
and resuming share their code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import Token, read_token

# Counts and sizes fit into NumPy's integers, and sums of two do.
LARGEST = 1 << 62


class Saved:
    """The state of one node. `where` is its path in the whole state, such as `state.source`, for error messages.

    The readers raise FormatError for a missing field or a value of the wrong type or range.
    """

    __slots__ = ("_fields", "where")

    def __init__(self, fields: object, where: str = "state") -> None:
        self.where = where
        if fields is not None and not isinstance(fields, Mapping):
            self._damaged("an object", fields)
        self._fields = fields

    @property
    def fresh(self) -> bool:
        """True if there is no state: the iteration begins an epoch."""
        return self._fields is None

    def fields(self) -> dict[str, Any]:
        """Return all fields, unchecked."""
        return dict(self._fields or {})

    def has(self, name: str) -> bool:
        """Return True if there is a field of this name."""
        return self._fields is not None and name in self._fields

    def refuse_others(self, known: Iterable[str]) -> None:
        """Raise FormatError if there are fields other than these."""
        if others := sorted(self.fields().keys() - set(known)):
            raise FormatError(f"{self.where} has {others[0]!r:.80} too: it is not a state of this graph, or damaged")

    def only(self, *names: str) -> bool:
        """Return True if these are all the fields."""
        return self._fields is not None and set(self._fields) == set(names)

    def get(self, name: str) -> Any:
        """Return a field, unchecked; None if fresh."""
        if self._fields is None:
            return None
        if name not in self._fields:
            raise FormatError(f"{self.where} lacks {name!r}: it is not a state of this graph, or damaged")
        return self._fields[name]

    def integer(self, name: str, most: int = LARGEST) -> int:
        """Return an integer in [0, most]; 0 if fresh."""
        value = 0 if self.fresh else self.get(name)
        if type(value) is not int or not 0 <= value <= most:
            self._at(name)._damaged(f"within 0 and {most}", value)
        return value

    def seed(self, name: str) -> int:
        """Return a seed, which may be negative. Raises UsageError if the pass was not shuffled."""
        value = self.get(name)
        if value is None:
            raise UsageError(f"{self.where} is of a pass that was not shuffled: resume without shuffle")
        if type(value) is not int or abs(value) >= LARGEST:
            self._at(name)._damaged(f"an integer below {LARGEST}", value)
        return int(value)

    def flag(self, name: str) -> bool:
        """Return a boolean; False if fresh."""
        value = False if self.fresh else self.get(name)
        if type(value) is not bool:
            self._at(name)._damaged("true or false", value)
        return value

    def flags(self, name: str, count: int) -> list[bool]:
        """Return a list of `count` booleans; all False if fresh."""
        values = [False] * count if self.fresh else self.get(name)
        if not isinstance(values, list) or len(values) != count or any(type(value) is not bool for value in values):
            self._at(name)._damaged(f"a list of {count} times true or false", values)
        return list(values)

    def integers(self, name: str) -> list[int]:
        """Return a list of integers of 0 or more; empty if fresh."""
        values = [] if self.fresh else self.get(name)
        if not isinstance(values, list) or any(type(value) is not int or value < 0 for value in values):
            self._at(name)._damaged("a list of integers of 0 or more", values)
        return list(values)

    def token(self, name: str) -> Token | None:
        """Return a token or None; None if fresh."""
        value = self.get(name)
        return None if value is None else self._token(name, value)

    def tokens(self, name: str, most: int) -> list[Token]:
        """Return a list of at most `most` tokens; empty if fresh."""
        values = [] if self.fresh else self.get(name)
        if not isinstance(values, list) or len(values) > most:
            self._at(name)._damaged(f"a list of at most {most} tokens", values)
        return [self._token(name, value) for value in values]

    def child(self, name: str) -> Saved:
        """Return the state inside a field; a fresh one if fresh."""
        if self.fresh:
            return self
        child = self._at(name)
        if self.get(name) is None:
            child._damaged("an object", None)
        return Saved(self.get(name), child.where)

    def children(self, name: str, count: int | None = None) -> list[Saved]:
        """Return the states in a list, of `count` elements if given; that many fresh ones if fresh."""
        if self.fresh:
            return [self] * (count or 0)
        values = self.get(name)
        if not isinstance(values, list) or len(values) != (len(values) if count is None else count):
            self._at(name)._damaged("a list" if count is None else f"a list of {count}", values)
        for value in values:
            if value is None:
                self._at(name)._damaged("a list of objects", values)
        return [Saved(value, f"{self.where}.{name}[{i}]") for i, value in enumerate(values)]

    def _token(self, name: str, value: Any) -> Token:
        try:
            return read_token(value)
        except TypeError as error:
            raise FormatError(f"{self.where}.{name}: {error}") from error

    def _at(self, name: str) -> Saved:
        return Saved(None, f"{self.where}.{name}")

    def _damaged(self, expected: str, value: object) -> NoReturn:
        raise FormatError(f"{self.where} must be {expected}, not {value!r:.80}: the state is damaged")


FRESH = Saved(None)
