"""A check whether a text is a complete JSON value or the beginning of one, for values written in pieces.

A number at the end of the text counts as complete, although digits could follow: nobody writes single digits.
"""

from __future__ import annotations

import re
from typing import Literal

from touchfs.core.errors import FormatError

Outcome = Literal["blank", "prefix", "value"]

_CHARACTERS = r"""(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"""
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WORDS = ("true", "false", "null")
_CUT_WORDS = "|".join(word[:end] for word in _WORDS for end in range(1, len(word)))
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
        (?P<string>"{_CHARACTERS}")
        | (?P<scalar>{_NUMBER}(?![0-9.eE+-])|{"|".join(_WORDS)})
        | (?P<symbol>[\[\]{{}},:])
        | (?P<end>\Z)
        | (?P<cut>(?:"{_CHARACTERS}(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?
                  | -?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?)?)?
                  | {_CUT_WORDS})\Z)
    )""",
    re.VERBOSE,
)
_MOST_NESTED = 200

# The states of the parser: the token that is expected next.
_VALUE, _FIRST, _KEY, _FIRST_KEY, _COLON, _AFTER, _DONE = range(7)


def outcome_of(text: str) -> Outcome:
    """Return "value" for a complete value, "prefix" for the beginning of one, "blank" for whitespace.

    Raises FormatError, with the offset in characters, for anything else.
    """
    inside: list[str] = []
    expected, at = _VALUE, 0
    while True:
        token = _TOKEN.match(text, at)
        if token is None or (token["cut"] is not None and not _fits(token["cut"], expected)):
            raise _wrong(text, at)
        kind = token.lastgroup
        if kind == "end":
            if expected == _DONE:
                return "value"
            return "prefix" if text.strip() else "blank"
        if kind == "cut":
            return "prefix"
        start, at = token.start(kind or 0), token.end()
        if kind == "string" and expected in (_KEY, _FIRST_KEY):
            expected = _COLON
        elif kind in ("string", "scalar") and expected in (_VALUE, _FIRST):
            expected = _AFTER if inside else _DONE
        else:
            symbol = token["symbol"]
            if symbol == ":" and expected == _COLON:
                expected = _VALUE
            elif symbol == "," and expected == _AFTER:
                expected = _KEY if inside[-1] == "{" else _VALUE
            elif symbol in ("[", "{") and expected in (_VALUE, _FIRST) and len(inside) < _MOST_NESTED:
                inside.append(symbol)
                expected = _FIRST if symbol == "[" else _FIRST_KEY
            elif (symbol == "]" and expected in (_FIRST, _AFTER) and inside[-1] == "[") or (
                symbol == "}" and expected in (_FIRST_KEY, _AFTER) and inside[-1] == "{"
            ):
                inside.pop()
                expected = _AFTER if inside else _DONE
            else:
                raise _wrong(text, start)


def _fits(cut: str, expected: int) -> bool:
    return expected in (_VALUE, _FIRST) or (cut.startswith('"') and expected in (_KEY, _FIRST_KEY))


def _wrong(text: str, at: int) -> FormatError:
    at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n"))
    found = text[at : at + 20].rstrip()
    is_word = at > 0 and (found[:1].isalpha() or found[:1] in ("_", "'"))
    hint = ": names and texts need double quotes" if is_word else ""
    return FormatError(f"not JSON: {found!r} cannot be there{hint}", offset=at)
