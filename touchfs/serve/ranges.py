"""Requests for parts of a file, and conditions on its version: RFC 9110, sections 13 and 14.

Conditions with times are not evaluated, which the RFC allows: a time cannot tell two versions within a second apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# More of them are a mistake or an attack. The whole file answers them, too.
RANGES_MAX = 64
_RANGE = re.compile(r"([0-9]*)-([0-9]*)", re.ASCII)
# Behind the end of any file. Python refuses to make a number of thousands of digits.
_DIGITS_MAX = 18
_ETAG = re.compile(r'(?:W/)?("[^"]*")')

Span = tuple[int, int]


def parse_ranges(header: str, size: int) -> list[Span] | None:
    """The parts `(offset, length)` that a header `Range` asks of a file of `size` bytes, in its order.

    None if the header counts as absent: it is malformed, or asks for too many parts or for bytes several times over.
    Empty if no part is in the file.
    """
    unit, separator, texts = header.partition("=")
    parts = texts.split(",", RANGES_MAX)
    if unit.strip().lower() != "bytes" or not separator or len(parts) > RANGES_MAX:
        return None
    spans = []
    for part in parts:
        match = _RANGE.fullmatch(part.strip())
        if match is None or match[0] == "-":
            return None
        if match[1]:
            first, last = _number(match[1]), _number(match[2]) if match[2] else size - 1
            if match[2] and last < first:
                return None
        else:
            first, last = max(size - _number(match[2]), 0), size - 1
        last = min(last, size - 1)
        if first <= last:
            spans.append((first, last + 1 - first))
    return None if sum(length for _, length in spans) > size else spans


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX


def is_listed(etag: str, header: str) -> bool:
    """True if a header `If-Match` or `If-None-Match` names this version of the file."""
    return header.strip() == "*" or etag in _ETAG.findall(header)


def asked_ranges(environ: Mapping[str, str], etag: str, size: int) -> list[Span] | None:
    """Like `parse_ranges` for a request; None if it asks for no range, or for one of another version."""
    header = environ.get("HTTP_RANGE")
    if header is None or environ.get("HTTP_IF_RANGE", etag).strip() != etag:
        return None
    return parse_ranges(header, size)
