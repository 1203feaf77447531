"""Tokens and states as JSON.

A *token* rebuilds one sample: an integer, a string, or a tuple of tokens. A *state* resumes an iteration: a dict of
values that JSON represents exactly. Both have one canonical text (sorted keys, no spaces, ASCII), so equal values are
equal as text.

JSON has no tuples, so a parsed token contains lists; `read_token` turns them into tuples.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable
from typing import Any, NoReturn, TypeAlias

from touchfs.core.errors import FormatError, UsageError

Token: TypeAlias = "int | str | tuple[Token, ...]"
State: TypeAlias = dict[str, Any]

# Far deeper than any graph, and far below the interpreter's recursion limit, which hostile nesting would reach.
MOST_NESTED = 100


def normalize_graph_token(token: Any) -> Any:
    """Return what `read_token` does, and None, which is no token, for None: as Lhotse's function of this name."""
    return None if token is None else read_token(token)


def read_token(token: Any) -> Token:
    """Return the token with lists as tuples and NumPy integers as plain ones. Raises TypeError if it is not a token."""
    return token if type(token) is int else _normalize(token, MOST_NESTED)


def _normalize(token: Any, levels: int) -> Token:
    if isinstance(token, str):
        return str(token)
    if isinstance(token, (list, tuple)):  # `list | tuple` would create a union at each call
        if not levels:
            raise TypeError(f"a token is nested at most {MOST_NESTED} deep")
        return tuple([part if type(part) is int else _normalize(part, levels - 1) for part in token])
    try:
        if isinstance(token, bool):
            raise TypeError
        return operator.index(token)
    except TypeError:
        raise TypeError(
            f"a token is an integer, a string or a tuple (in JSON, a list) of tokens, not {token!r}"
        ) from None


def to_json(value: Any) -> str:
    """Return the canonical JSON text of a token or state. Raises UsageError for a value that JSON changes."""
    _check_plain(value, "", MOST_NESTED)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """Parse a token or state; tokens have lists in place of tuples. Raises FormatError."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error


def _check_plain(value: Any, where: str, levels: int) -> None:
    """Raise UsageError for a value that JSON changes: json.dumps accepts NaN, infinity and keys of other types."""
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return
    if isinstance(value, dict) and levels and all(isinstance(key, str) for key in value):
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list | tuple) and levels:
        parts = enumerate(value)
    else:
        raise UsageError(f"a state has only values that JSON represents exactly; {where or 'this'} is {value!r:.80}")
    for key, part in parts:
        _check_plain(part, f"{where}[{key!r}]", levels - 1)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return value
