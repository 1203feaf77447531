"""One limit of how deep JSON may be nested, checked before it is parsed.

Without it the limit would be the parser's: orjson has 1,024 levels, and the standard library as many as the stack has
room for, about 900. Nearly all texts have fewer brackets than the limit, so two counts are all that checking costs.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate

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
