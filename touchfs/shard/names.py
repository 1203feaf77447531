"""From keys to file names: legal, stable, and never two samples under one name.

A key is a path: `/` makes directories. A component that POSIX or a line-based list cannot hold is quoted like a URL:

    "" -> %2F     "." -> %2E     ".." -> %2E%2E     bytes under 0x20, and 0x7F -> %XX
    bytes that are not UTF-8 -> %XX     % before two hex digits or ~ -> %25

and a name over 255 bytes is cut and ends in `%~` and a hash of the whole. A component `.touchfs` is quoted. Quoting is
injective: `%` before two hex digits or `~` never stands for itself.

Names are given in ordinal order and then stored, so they never change. A name that is taken gets `~2`, `~3`, …
before its extension, skipping names that any sample has by nature; of a file and a directory of one name, the file
is the one renamed. All files of a sample carry the same number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

NAME_MAX = 255
_HASH_DIGITS = 16

_QUOTED = re.compile(r"[\x00-\x1f\x7f/\ud800-\udfff]|%(?=[0-9A-Fa-f]{2}|~)")
_WHOLE = {"": b"%2F", ".": b"%2E", "..": b"%2E%2E", ".touchfs": b"%2Etouchfs"}


def quote(component: str) -> bytes:
    """A component of a key as a file name, of any length."""
    return _WHOLE.get(component) or _QUOTED.sub(_quote_character, component).encode()


def _quote_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    # U+DC80 to U+DCFF is how Python holds a byte that was not UTF-8; other lone surrogates JSON can spell out.
    data = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def shorten(name: bytes, suffix: bytes) -> bytes:
    """`name + suffix`, with the name cut and hashed where both together are over 255 bytes."""
    if len(name) + len(suffix) <= NAME_MAX:
        return name + suffix
    digest = hashlib.blake2b(name, digest_size=_HASH_DIGITS // 2).hexdigest().encode()
    kept = name[: NAME_MAX - len(suffix) - _HASH_DIGITS - 2]
    # Not in the middle of a character, nor of a %XX.
    kept = kept.decode("utf-8", "ignore").encode()
    kept = re.sub(rb"%[0-9A-Fa-f]?$", b"", kept)
    return kept + b"%~" + digest + suffix


def assign(
    keys: Sequence[str], extensions: Iterable[Sequence[str]], reserved: Iterable[bytes] = ()
) -> Iterator[tuple[bytes, list[bytes]]]:
    """For each sample in order: its directory path and the names of its files, one an extension.

    An extension is without its dot; "" makes a name without one (a directory of the sample). `reserved` paths are
    nobody's.
    """
    stems = [_split(key) for key in keys]
    suffixes = [list(each) for each in extensions]
    directories = set()
    for directory, _ in set((directory, b"") for directory, _ in stems):
        while directory and directory not in directories:
            directories.add(directory)
            directory = directory.rpartition(b"/")[0]
    natural = [
        [_join(directory, _name(stem, extension, 1)) for extension in each]
        for (directory, stem), each in zip(stems, suffixes, strict=True)
    ]
    everyones = {path for paths in natural for path in paths}
    taken = set(reserved)
    for (directory, stem), each, paths in zip(stems, suffixes, natural, strict=True):
        number = 1
        while any(path in taken or path in directories or (number > 1 and path in everyones) for path in paths):
            number += 1
            paths = [_join(directory, _name(stem, extension, number)) for extension in each]
        taken.update(paths)
        yield directory, [path[len(directory) + 1 if directory else 0 :] for path in paths]


def _split(key: str) -> tuple[bytes, str]:
    """The directory of a key, quoted, and its last component as it is."""
    if "/" not in key:
        return b"", key
    *parents, last = key.split("/")
    return b"/".join(shorten(quote(parent), b"") for parent in parents), last


def _name(stem: str, extension: str, number: int) -> bytes:
    suffix = f".{extension}" if extension else ""
    # The extension is not doubled when the key already ends in it.
    if suffix and len(stem) > len(suffix):
        stem = stem.removesuffix(suffix)
    mark = b"~%d" % number if number > 1 else b""
    return shorten(quote(stem), mark + quote(suffix) if suffix else mark)


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
