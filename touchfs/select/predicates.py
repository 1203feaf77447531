"""The operators of filter expressions: each is a function, compiled once and called for every sample.

Values have the types that JSON parses to. A comparison between different types is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntFlag
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.packed_bytes import PackedBytes


class Named(NamedTuple):
    """A number with a name, as the label of a class: it compares as the number with numbers, as the name with texts."""

    number: int
    name: str


Path: TypeAlias = tuple[str, ...]
Literal: TypeAlias = str | int | float | None
Predicate: TypeAlias = Callable[[Mapping[str, Any]], bool]
# Whether each of many samples passes, by their keys: bool[n].
OfKeys: TypeAlias = Callable[[PackedBytes], NDArray[np.bool_]]
_Get: TypeAlias = Callable[[Mapping[str, Any]], Any]
_Test: TypeAlias = Callable[[Any], bool]

_MISSING = object()
_NUMBERS = frozenset({int, float})
_SCALARS = frozenset({str, int, float, bool, type(None)})


def has_field(path: Path) -> Predicate:
    """Return a predicate: the sample has the field."""
    get = getter(path)
    return lambda facts: get(facts) is not _MISSING


def getter(path: Path) -> _Get:
    """Return a function from the facts of a sample to the value of a field, or to `_MISSING`."""
    name, *inner = path
    if not inner:
        return lambda facts: facts.get(name, _MISSING)

    def get(facts: Mapping[str, Any]) -> Any:
        value = facts.get(name, _MISSING)
        for part in inner:
            if not isinstance(value, dict):
                return _MISSING
            value = value.get(part, _MISSING)
        return value

    return get


def one_of(*literals: Literal) -> _Test:
    """Return a test: the value equals one of the literals."""
    # Python's True equals 1, so the key includes the type.
    accepted = frozenset((type(literal) is bool, literal) for literal in literals)

    def test(value: Any) -> bool:
        if type(value) is Named:
            return not accepted.isdisjoint({(False, value.number), (False, value.name)})
        return type(value) in _SCALARS and (type(value) is bool, value) in accepted

    return test


def _not_equal(literal: Literal) -> _Test:
    equal = one_of(literal)
    return lambda value: value is not _MISSING and not equal(value)


def _containing(literal: Literal) -> _Test:
    equal = one_of(literal)

    def test(value: Any) -> bool:
        if isinstance(value, list):
            return any(map(equal, value))
        if isinstance(value, Named):
            value = value.name
        return isinstance(value, str) and isinstance(literal, str) and literal in value

    return test


def ordered(compare: Callable[[Any, Any], bool], literal: Literal) -> _Test:
    """Return a test: the value has the literal's type, and `compare(value, literal)` is true."""
    is_text = isinstance(literal, str)
    types = frozenset({str}) if is_text else _NUMBERS

    def test(value: Any) -> bool:
        if type(value) is Named:
            value = value.name if is_text else value.number
        return type(value) in types and compare(value, literal)

    return test


class Kinds(IntFlag):
    """Kinds of values that can be compared with each other."""

    TEXT = 1
    NUMBER = 2
    BOOL = 4
    NULL = 8
    LIST = 16
    OBJECT = 32

    def spelled(self) -> str:
        """The names of these kinds for users: `a text or a number`."""
        return " or ".join(_KIND_NAMES[kind] for kind in Kinds if kind in self)


_KIND_NAMES = {
    Kinds.TEXT: "a text",
    Kinds.NUMBER: "a number",
    Kinds.BOOL: "true or false",
    Kinds.NULL: "null",
    Kinds.LIST: "a list",
    Kinds.OBJECT: "an object",
}
_KINDS = {
    str: Kinds.TEXT,
    int: Kinds.NUMBER,
    float: Kinds.NUMBER,
    bool: Kinds.BOOL,
    type(None): Kinds.NULL,
    list: Kinds.LIST,
    dict: Kinds.OBJECT,
    Named: Kinds.TEXT | Kinds.NUMBER,
}


def kinds_of(value: Any) -> Kinds:
    """The kinds of a value, or of a literal; none of a field that a sample lacks."""
    return _KINDS.get(type(value), Kinds(0))


def until(end: bool, predicates: Iterable[Predicate]) -> Predicate:
    """Combine predicates: their "or" if `end` is True, their "and" if it is False. Evaluation stops at `end`."""
    each = tuple(predicates)

    def matches(facts: Mapping[str, Any]) -> bool:
        for predicate in each:
            if predicate(facts) is end:
                return end
        return not end

    return matches


ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
TESTS: Mapping[str, Callable[[Literal], _Test]] = {"==": one_of, "!=": _not_equal, "contains": _containing}
