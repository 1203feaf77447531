"""Parse JSON text of data: by orjson where it is installed (the extra `fast`), else by the standard library.

What is parsed never depends on which parser is there, because a catalog must not. So a text that orjson refuses goes
through the standard library, whose values and errors count: it accepts NaN, 1e999, lone surrogates, UTF-16 and a byte
order mark. So does a text with 19 digits in a row, points left out: orjson makes a float of an integer over 64 bits.
The depth of nesting has one limit, our own, because each parser has another one (`touchfs.json_text.nesting`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from touchfs.json_text.nesting import check_nesting

# Integers of 18 digits fit into 64 bits.
_LONG_NUMBER = b"0" * 19
# Digits become zeros, to find long numbers.
_DIGITS = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))

_Parser = Callable[[bytes], Any]


def parse_json(data: bytes, encoding: str = "") -> Any:
    """Parse a JSON text as `json.loads` does, which finds out its encoding unless one is given.

    Raises ValueError, and RecursionError if it is nested over `nesting.DEPTH_MAX` levels.
    """
    check_nesting(data)
    fast = _fast_parser()
    if fast is not None and _LONG_NUMBER not in data.translate(_DIGITS, b"."):
        try:
            return fast(data)
        except ValueError:
            pass  # the standard library accepts more, and its errors are ours
    return json.loads(str(data, encoding) if encoding else data)


@cache
def _fast_parser() -> _Parser | None:
    """The parser of orjson, None if that is not installed. Importing it takes longer than most commands parse."""
    try:
        import orjson
    except ImportError:
        return None
    parser: _Parser = orjson.loads
    return parser
