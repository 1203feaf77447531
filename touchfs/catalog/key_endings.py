"""Decide whether two keys of a dataset can have the same file name in `by-key/`, without reading the keys.

There the name of a file is its sample's key and a suffix. Files of two keys can have the same name only if the longer
key ends in the suffix of the shorter key's file, or in the part of that suffix before one of its dots: `a` with
`.b.wav`, and `a.b` with `.wav`. So each shard stores its suffixes, and whether a key ends like one of them. Nearly
always none does, and listing `by-key/` need not check names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from touchfs.core.names import SUFFIX_MAX

# A tar may have as many suffixes as members; more than this are not compared.
_SUFFIXES_MAX = 64


class Endings(NamedTuple):
    """Endings in one shard: its suffixes; whether a key has a dot (`dotted`), or ends like a suffix of the same shard
    (`clashing`).
    """

    suffixes: tuple[str, ...]
    dotted: bool
    clashing: bool


def parse_endings(value: Any) -> Endings:
    """Convert endings from their JSON value. Raises TypeError or ValueError."""
    suffixes, dotted, clashing = value
    return Endings(tuple(map(str, suffixes)), dotted=bool(dotted), clashing=bool(clashing))


NO_ENDINGS = Endings((), dotted=False, clashing=False)


def endings_of(keys: Iterable[str], extensions: Iterable[str | None]) -> Endings:
    """Return the endings of a shard from the keys that its samples are shown under, and its extensions."""
    suffixes = sorted(f".{extension}" for extension in set(extensions) if extension is not None)
    dotted = [key for key in keys if "." in key]
    if len(suffixes) > _SUFFIXES_MAX or any(len(suffix.encode(errors="replace")) > SUFFIX_MAX for suffix in suffixes):
        return Endings((), bool(dotted), bool(dotted))
    heads = tuple({suffix[:end] for suffix in suffixes for end in _ends(suffix)})
    return Endings(tuple(suffixes), bool(dotted), any(key.endswith(heads) for key in dotted))


def with_suffixes(endings: Endings, suffixes: Iterable[str]) -> Endings:
    """Return the endings of a shard that has more suffixes. Any key with a dot may end like one of them."""
    found = tuple(sorted({*endings.suffixes, *suffixes}))
    are_listed = bool(endings.suffixes) and len(found) <= _SUFFIXES_MAX
    return Endings(found if are_listed else (), endings.dotted, endings.clashing or endings.dotted)


def _ends(suffix: str) -> list[int]:
    """Return the offsets at which a suffix can end: before each of its dots except the first, and its length."""
    return [*(i for i, character in enumerate(suffix) if character == "." and i), len(suffix)]


def may_clash(shards: Iterable[Endings]) -> bool:
    """Return whether names in `by-key/` of a dataset with these shards may clash. If shards differ in their suffixes,
    any key with a dot may.
    """
    found = set(shards)
    if not any(each.dotted for each in found):
        return False
    return any(each.clashing for each in found) or len({each.suffixes for each in found}) > 1
