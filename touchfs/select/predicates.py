"""The operators of filter expressions: each is a function, compiled once and called for every sample.

Values have the types that JSON parses to. A comparison between different types is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


class Bounds(NamedTuple):
    """What is known of many samples, by their keys alone: which ones surely pass, and which ones may; bool[n] each."""

    must: NDArray[np.bool_]
    may: NDArray[np.bool_]


OfKeys: TypeAlias = Callable[[PackedBytes], Bounds]
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


def tested(path: Path, test: _Test) -> Predicate:
    """Return a predicate: the test holds for the field."""
    get = getter(path)
    return lambda facts: test(get(facts))


def inverted(predicate: Predicate) -> Predicate:
    """Return the "not" of a predicate."""
    return lambda facts: not predicate(facts)


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


def tested_of_keys(have: Callable[[PackedBytes], NDArray[np.bool_]]) -> OfKeys:
    """Return what a test of keys alone says."""

    def of_keys(keys: PackedBytes) -> Bounds:
        passed = have(keys)
        return Bounds(passed, passed)

    return of_keys


def inverted_of_keys(inner: OfKeys | None) -> OfKeys | None:
    """Return what "not" before an expression says by keys."""
    if inner is None:
        return None

    def of_keys(keys: PackedBytes) -> Bounds:
        must, may = inner(keys)
        return Bounds(~may, ~must)

    return of_keys


def joined_of_keys(end: bool, clauses: Sequence[OfKeys | None]) -> OfKeys | None:
    """Return what the "or" of clauses says by keys, if `end` is True, and their "and" if it is False. A clause that is
    None says nothing.
    """
    known = [each for each in clauses if each is not None]
    if not known:
        return None
    combine, has_unknown = np.any if end else np.all, len(known) < len(clauses)

    def of_keys(keys: PackedBytes) -> Bounds:
        must, may = (combine(each, axis=0) for each in zip(*(clause(keys) for clause in known), strict=True))
        if has_unknown and end:
            may = np.ones_like(may)
        elif has_unknown:
            must = np.zeros_like(must)
        return Bounds(must, may)

    return of_keys


ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
TESTS: Mapping[str, Callable[[Literal], _Test]] = {"==": one_of, "!=": _not_equal, "contains": _containing}
