"""Whether two keys can make one name in `by-key/`, without a look at any key.

There a sample's files are called by its key and their suffixes. The file of the shorter of two keys has the name that a
file of the longer one has, or could have, only if the longer key ends in the suffix of the shorter one's file, or in
what is before one of its dots: `a` with `.b.wav`, and `a.b` with `.wav`. So it is enough to know of each shard its
suffixes, and whether a key ends like one of them. Nearly always none does, and listing `by-key/` need not check names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from touchfs.names import SUFFIX_MAX

# A tar may have as many as it has members; from here on they are not compared.
_SUFFIXES_MAX = 64


class Endings(NamedTuple):
    """Of one shard. `dotted`: a key has a dot at all. `clashing`: one ends like a suffix of the same shard."""

    suffixes: tuple[str, ...]
    dotted: bool
    clashing: bool


def parse_endings(value: Any) -> Endings:
    """From what JSON made of it. Raises TypeError or ValueError."""
    suffixes, dotted, clashing = value
    return Endings(tuple(map(str, suffixes)), dotted=bool(dotted), clashing=bool(clashing))


NO_ENDINGS = Endings((), dotted=False, clashing=False)


def endings_of(keys: Iterable[str], extensions: Iterable[str | None]) -> Endings:
    """Of the keys that samples are shown under, and all extensions there are."""
    suffixes = sorted(f".{extension}" for extension in set(extensions) if extension is not None)
    dotted = [key for key in keys if "." in key]
    if len(suffixes) > _SUFFIXES_MAX or any(len(suffix.encode(errors="replace")) > SUFFIX_MAX for suffix in suffixes):
        return Endings((), bool(dotted), bool(dotted))
    heads = tuple({suffix[:end] for suffix in suffixes for end in _ends(suffix)})
    return Endings(tuple(suffixes), bool(dotted), any(key.endswith(heads) for key in dotted))


def _ends(suffix: str) -> list[int]:
    """Where it can end: before each of its dots but the first one, and at its end."""
    return [*(i for i, character in enumerate(suffix) if character == "." and i), len(suffix)]


def may_clash(shards: Iterable[Endings]) -> bool:
    """Of a whole dataset. Where shards have other suffixes than each other, any dot will do."""
    found = set(shards)
    if not any(each.dotted for each in found):
        return False
    return any(each.clashing for each in found) or len({each.suffixes for each in found}) > 1
