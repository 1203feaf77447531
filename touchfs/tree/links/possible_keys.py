"""The keys that a name in `by-key/` may have been made of, all of them quoted as in names of files.

The name `a.b~2.wav` may be one of the keys `a`, `a.b~2` and `a.b~2.wav`, or of the second sample with the key `a.b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from touchfs.core.names import HASH_DIGITS, hash_of, quote

_CUT = re.compile(rb"%%~([0-9a-f]{%d})" % HASH_DIGITS)
_WHOLE = {key.encode(): quote(key) for key in (".", "..", ".touchfs")}  # quoted only if they are the whole key
_MARK = re.compile(rb"~[0-9]+")


def unnumbered_keys(name: bytes) -> Iterator[bytes]:
    """The keys that produce a name without a number: the whole name, and the part before each of its dots."""
    yield name
    dot = name.rfind(b".")
    while dot > 0:
        yield name[:dot]
        dot = name.rfind(b".", 0, dot)


def possible_hashes(name: bytes) -> set[int]:
    return set(map(hash_of_key, possible_keys(name)))


def possible_keys(name: bytes) -> Iterator[bytes]:
    """All keys, full or truncated, that can produce a name, with or without a number."""
    for key in unnumbered_keys(name):
        yield key
        start = key.rfind(b"~")
        if start > 0 and _MARK.fullmatch(key, start):
            yield key[:start]


def plain_key(key: bytes) -> bytes:
    """A key as it is shown: `names.plain_path` for keys that are quoted."""
    plain = b"%2F".join(component for component in key.split(b"%2F") if component not in (b"", b".")) or b"."
    return _WHOLE.get(plain, plain)


def hash_of_key(key: bytes) -> int:
    """The hash of a key. A truncated key has it at its end."""
    cut = _CUT.fullmatch(key[-HASH_DIGITS - 2 :])
    return int(cut[1], 16) if cut is not None else hash_of(key)
