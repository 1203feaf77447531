"""Parse JSON text of data: by orjson where it is installed (the extra `fast`), else by the standard library.

What is parsed never depends on which parser is there, because a catalog must not. So a text that orjson refuses goes
through the standard library, whose values and errors count: it accepts NaN, 1e999, lone surrogates, UTF-16 and a byte
order mark. So does a text with 19 digits in a row, points left out: orjson makes a float of an integer over 64 bits.

The depth of nesting has one limit, our own, checked before a text is parsed. Without it the limit would be the
parser's: orjson has 1,024 levels, and the standard library as many as the stack has room for, about 900. Nearly all
texts have fewer brackets than the limit, so two counts are all that checking costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any

# Integers of 18 digits fit into 64 bits.
_LONG_NUMBER = b"0" * 19
# Digits become zeros, to find long numbers.
_DIGITS = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))

_Parser = Callable[[bytes], Any]


def parse_json(data: bytes, encoding: str = "") -> Any:
    """Parse a JSON text as `json.loads` does, which finds out its encoding unless one is given.

    Raises ValueError, and RecursionError if it is nested over `DEPTH_MAX` levels.
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


# Below Python's default recursion limit of 1,000 with room for the 170 calls that may lead to the parser.
DEPTH_MAX = 820

_KEPT = b'[]{}"'
_OTHERS = bytes(set(range(256)) - set(_KEPT))
_STRING = re.compile(b'"[^"]*"?')
# As signed bytes: 1 for an opening bracket, -1 for a closing one.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def check_nesting(data: bytes) -> None:
    """Raise RecursionError if a JSON text is nested over `DEPTH_MAX` levels, and UnicodeDecodeError if such a text is
    not of its encoding.

    Of a text that is not JSON the brackets outside of strings are counted.
    """
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _depth(data) > DEPTH_MAX:
        raise RecursionError(f"it is nested over {DEPTH_MAX} levels")


def _depth(data: bytes) -> int:
    encoding = json.detect_encoding(data)
    if not encoding.startswith("utf-8"):  # a byte of UTF-16 may look like a bracket
        data = str(data, encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes in a row are a string without brackets, or lie between two strings, which become one.
    brackets = _STRING.sub(b"", unescaped.translate(None, _OTHERS).replace(b'""', b""))
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0)
