"""From keys to file names: legal, stable, and never two samples under one name.

A key is a path: `/` makes directories. A component that POSIX or a line-based list cannot hold is quoted like a URL:

    "" -> %2F     "." -> %2E     ".." -> %2E%2E     control characters (U+0000 to 1F, 7F to 9F) -> %XX
    bytes that are not UTF-8 -> %XX     % before two hex digits or ~ -> %25

and a name over 255 bytes is cut and ends in `%~` and a hash of the whole. An extension that leaves no room for a name
is cut likewise. A component `.touchfs` is quoted. Quoting text is injective: `%` before two hex digits or `~` never
stands for itself. A key too long for a path is one name, its slashes quoted.

Names are given in ordinal order and then stored, so they never change. The nth holder of a key gets `~n` before its
extension, and so does a sample that finds a name taken, skipping names that any sample has by nature; of a file and a
directory of one name, the file is the one renamed. All files of a sample carry the same number.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

NAME_MAX = 255
# Beside it fit the mark of the 2**32th holder of a name, the hash of a key, and 26 bytes of the key itself.
SUFFIX_MAX = 200
# Of PATH_MAX, 4096 bytes, the mount point takes some; and many programs recurse, a level of the stack a directory.
DIRECTORY_MAX = 1024
HASH_DIGITS = 16

_QUOTED = re.compile(r"[\x00-\x1f\x7f-\x9f/\ud800-\udfff]|%(?=[0-9A-Fa-f]{2}|~)")
_WHOLE = {"": b"%2F", ".": b"%2E", "..": b"%2E%2E", ".touchfs": b"%2Etouchfs"}


def quote(component: str) -> bytes:
    """A component of a key as a file name, of any length."""
    return _WHOLE.get(component) or _quote_characters(component)


def _quote_characters(text: str) -> bytes:
    return _QUOTED.sub(_quote_character, text).encode()


def _quote_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    # U+DC80 to U+DCFF is how Python holds a byte that was not UTF-8; other lone surrogates JSON can spell out.
    data = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def hash_of(name: bytes) -> int:
    """64 bits: what a name that was cut ends in, and what keys are found by."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=HASH_DIGITS // 2).digest(), "big")


def shorten(name: bytes, suffix: bytes) -> bytes:
    """`name + suffix`, with the name cut and hashed where both together are over 255 bytes."""
    fits = len(name) + len(suffix) <= NAME_MAX
    return name + suffix if fits else _cut(name, NAME_MAX - len(suffix)) + suffix


def _cut(name: bytes, size: int) -> bytes:
    """At most `size` bytes: the beginning of a name, and the hash of all of it."""
    kept = name[: size - HASH_DIGITS - 2]
    # Not in the middle of a character, nor of a %XX.
    kept = kept.decode("utf-8", "ignore").encode()
    kept = re.sub(rb"%[0-9A-Fa-f]?$", b"", kept)
    return kept + b"%%~%0*x" % (HASH_DIGITS, hash_of(name))


def plain_path(key: str) -> str:
    """A key that is a path of an archive, without the components that mean nothing there."""
    if "/" not in key:
        return key
    return "/".join(component for component in key.split("/") if component not in ("", ".")) or "."


def assign(keys: Sequence[str], extensions: Sequence[Sequence[str | None]]) -> Iterator[tuple[bytes, list[bytes]]]:
    """For each sample in order: its directory path and the names of its files, one an extension.

    Extensions are without their dot, and a sample has each once. "" makes a name that ends in a dot, None one without
    an extension (a directory of the sample).
    """
    natural: list[list[bytes]] = []
    everyones: set[bytes] = set()
    contested: set[bytes] = set()
    directories: set[bytes] = set()
    for key, each in zip(keys, extensions, strict=True):
        directory, stem = _split(key)
        paths = _paths(directory, stem, each, 1)
        natural.append(paths)
        for path in paths:
            (contested if path in everyones else everyones).add(path)
        while directory and directory not in directories:
            directories.add(directory)
            directory = directory.rpartition(b"/")[0]
    contested |= directories

    numbers: dict[str, int] = {}  # of the last sample with a key; so the millionth does not try a million
    taken: set[bytes] = set()  # among the contested, and the names with numbers
    for key, each, paths in zip(keys, extensions, natural, strict=True):
        directory, stem = _split(key)
        number = numbers.get(key, 0) + 1
        if number > 1 or not contested.isdisjoint(paths):
            paths = _paths(directory, stem, each, number)
            while any(path in taken or path in directories or (number > 1 and path in everyones) for path in paths):
                number += 1
                paths = _paths(directory, stem, each, number)
            taken.update(paths)
        numbers[key] = number
        yield directory, [path[len(directory) + 1 :] for path in paths] if directory else paths


def _split(key: str) -> tuple[bytes, str]:
    """The directory of a key, quoted, and its last component as it is."""
    if "/" not in key:
        return b"", key
    *parents, last = key.split("/")
    directory = b"/".join(shorten(quote(parent), b"") for parent in parents)
    return (directory, last) if len(directory) <= DIRECTORY_MAX else (b"", key)


def _paths(directory: bytes, stem: str, extensions: Sequence[str | None], number: int) -> list[bytes]:
    whole = quote(stem)
    mark = b"~%d" % number if number > 1 else b""
    start = directory + b"/" if directory else b""
    paths = []
    for extension in extensions:
        suffix, quoted = _suffix(extension)
        # The extension is not doubled when the key already ends in it.
        doubled = suffix and stem.endswith(suffix) and stem != suffix
        paths.append(start + shorten(quote(stem.removesuffix(suffix)) if doubled else whole, mark + quoted))
    return paths


def suffix_size(extension: str | None) -> int:
    """How many bytes at the end of a file's name are its extension's, the dot among them."""
    return len(_suffix(extension)[1])


def shown_extension(extension: str | None) -> str:
    """An extension as names have it, without its dot."""
    return os.fsdecode(_suffix(extension)[1][1:])


def flat(key: str, suffix: bytes, number: int) -> bytes:
    """The name of a sample's file among those of all keys, in one directory: the slashes of the key quoted.

    `suffix` is what the extension adds to it, quoted, `number` the sample's among those of its name; both are told by
    the last `~` of a name, so no two samples get one name by their numbers. A name that is too long ends in the hash of
    `quote(key)`, before the suffix.
    """
    whole = quote(key)
    if number > 1:
        told = suffix.replace(b"~", b"%7E")
        if len(told) > SUFFIX_MAX:
            told = b".%%7E%0*x" % (HASH_DIGITS, hash_of(suffix))
        return shorten(whole, b"~%d" % number + told)
    doubled = whole.endswith(suffix) and whole.rpartition(b"%2F")[2] != suffix
    return whole if doubled and len(whole) <= NAME_MAX else shorten(whole, suffix)


@lru_cache
def _suffix(extension: str | None) -> tuple[str, bytes]:
    """A dot and the extension, as it is and as names have it."""
    if extension is None:
        return "", b""
    quoted = _quote_characters(f".{extension}")
    return f".{extension}", quoted if len(quoted) <= SUFFIX_MAX else _cut(quoted, SUFFIX_MAX)
