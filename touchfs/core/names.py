"""Map sample keys to file names that are legal, stable and unique.

A key is a path: `/` makes directories. Whatever POSIX or a line-based list cannot hold is percent-encoded:

    "" -> %2F     "." -> %2E     ".." -> %2E%2E     characters of `control_characters.UNSAFE` -> %XX for each byte
    bytes that are not UTF-8 -> %XX     % before two hex digits or ~ -> %25

A name over 255 bytes is cut and ends in `%~` and a hash of the whole name. An extension that leaves no room for a name
is cut in the same way. A component `.touchfs` is quoted. Quoting text is injective: `%` before two hex digits or `~`
never stands for itself. A key too long for a path becomes one name, with its slashes quoted.

Names are assigned in ordinal order and then stored, so they never change. The nth sample with a key gets `~n` before
its extension. So does a sample whose name is taken; it skips the unnumbered names of all samples. If a file and a
directory have the same name, the file is renamed. All files of a sample carry the same number.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat

from touchfs.core.control_characters import UNSAFE

NAME_MAX = 255
# Leaves room for the number of the 2**32th sample with a name, the hash of a key, and 26 bytes of the key itself.
SUFFIX_MAX = 200
# The mount point takes a part of PATH_MAX (4096 bytes), and many programs recurse with one stack frame per directory.
DIRECTORY_MAX = 1024
HASH_DIGITS = 16
# `ERROR.txt` of a shard says what is wrong with it. It is named like the file of a first sample with this key.
REPORT_STEM, REPORT_EXTENSION = "ERROR", "txt"
REPORT = f"{REPORT_STEM}.{REPORT_EXTENSION}"
# The JSON of a row of a table that has a directory, and its extension as a file of a sample.
ROW_JSON = "row.json"
# The array beside a window of tokens that says where its documents end.
TOKEN_BOUNDS = "cu_seqlens.npy"
# Extensions of the rows of overlays as JSON end in this.
OVERLAY_JSON = "overlay.json"

# What a plain key has none of: characters that are quoted, slashes, and percent signs, which are quoted sometimes.
_UNPLAIN = re.compile(f"[%{UNSAFE}]")
_QUOTED = re.compile(f"[/{UNSAFE}]|%(?=[0-9A-Fa-f]{{2}}|~)")
_NEVER = re.compile(f"[/{UNSAFE}]")
_WHOLE = {"": b"%2F", ".": b"%2E", "..": b"%2E%2E", ".touchfs": b"%2Etouchfs"}


def is_overlay_row(extension: str) -> bool:
    """True if a file with this extension is the row of an overlay."""
    return f".{extension}".endswith(f".{OVERLAY_JSON}")


def quote(component: str) -> bytes:
    """Quote a component of a key as a file name of any length."""
    return _WHOLE.get(component) or _quote_characters(component)


def _quote_characters(text: str) -> bytes:
    return _QUOTED.sub(percent_encode, text).encode()


def is_name(name: bytes) -> bool:
    """True if a name may be one of ours: it breaks no line and no path, and commands no terminal."""
    try:
        return name not in (b"", b".", b"..") and not _NEVER.search(name.decode())
    except UnicodeDecodeError:
        return False


def percent_encode(match: re.Match[str]) -> str:
    """The matched character as `%XX` for each of its bytes."""
    code = ord(match[0])
    # U+DC80 to U+DCFF is Python's escape for a byte that was not UTF-8; other lone surrogates come from JSON.
    data = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def distinct(names: Sequence[str]) -> list[str]:
    """The names in their order: of equal ones the second gets `~2`, and so on, passing over names that are there."""
    given, found, counts = frozenset(names), dict[str, None](), Counter[str]()
    for name in names:
        new = name
        while new in found or (new != name and new in given):
            counts[name] += 1
            new = f"{name}~{counts[name] + 1}"
        found[new] = None
    return [*found]


def hash_of(name: bytes) -> int:
    """Return the 64-bit BLAKE2b hash of a name, used at the end of cut names and in the index of keys."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=HASH_DIGITS // 2).digest(), "big")


def hex_digest(data: bytes) -> str:
    """Return 32 hexadecimal digits, BLAKE2b of 16 bytes: fingerprints of datasets, and names of our files."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def shorten(name: bytes, suffix: bytes) -> bytes:
    """Return `name + suffix`, with the name cut and hashed if both together are over 255 bytes."""
    fits = len(name) + len(suffix) <= NAME_MAX
    return name + suffix if fits else _cut(name, NAME_MAX - len(suffix)) + suffix


def _cut(name: bytes, size: int) -> bytes:
    """Return at most `size` bytes: the beginning of a name and the hash of the whole name."""
    kept = name[: size - HASH_DIGITS - 2]
    # Do not cut inside a character or a %XX.
    kept = kept.decode("utf-8", "ignore").encode()
    kept = re.sub(rb"%[0-9A-Fa-f]?$", b"", kept)
    return kept + b"%%~%0*x" % (HASH_DIGITS, hash_of(name))


def plain_path(key: str) -> str:
    """Return a key that is a path in an archive without its empty and `.` components."""
    if "/" not in key:
        return key
    return "/".join(component for component in key.split("/") if component not in ("", ".")) or "."


def assign(keys: Sequence[str], extensions: Sequence[Sequence[str | None]]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield for each sample, in order, its directory path and its file names, one per extension.

    Extensions have no dot and are distinct within a sample. "" makes a name that ends in a dot; None makes a name
    without an extension (a directory of the sample).
    """
    plain = _plain_names(keys, extensions)
    if plain is not None:
        for each_names in plain:
            yield b"", each_names
        return
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

    numbers: dict[str, int] = {}  # by key, the last number: the millionth sample with a key does not try a million
    taken: set[bytes] = set()  # contested names, and names with numbers, that are assigned
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


def _plain_names(keys: Sequence[str], extensions: Sequence[Sequence[str | None]]) -> list[list[bytes]] | None:
    """The file names of all samples if each is the key as it is and the extension; None if one may not be, or if keys
    repeat.

    Nearly all shards have such keys. They are checked together, which takes a third of the time of `_paths`.
    """
    joined = "/".join(keys)
    distinct = set(keys)
    if joined.count("/") != len(keys) - 1 or _UNPLAIN.search(joined) or not _WHOLE.keys().isdisjoint(distinct):
        return None
    if len(distinct) < len(keys):
        return None
    suffixes = {_suffix(extension) for each in extensions for extension in each}
    if "." in joined and any(map(str.endswith, keys, repeat(tuple(suffix for suffix, _ in suffixes if suffix)))):
        return None
    stems = joined.encode().split(b"/")
    if max(map(len, stems)) + max((len(quoted) for _, quoted in suffixes), default=0) > NAME_MAX:
        return None
    plain = [[stem + _suffix(extension)[1] for extension in each] for stem, each in zip(stems, extensions, strict=True)]
    return plain if len(set(chain.from_iterable(plain))) == sum(map(len, plain)) else None


def _split(key: str) -> tuple[bytes, str]:
    """Return the directory of a key, quoted, and its last component unquoted."""
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
        # The extension is not repeated if the key already ends in it.
        doubled = suffix and stem.endswith(suffix) and stem != suffix
        paths.append(start + shorten(quote(stem.removesuffix(suffix)) if doubled else whole, mark + quoted))
    return paths


@lru_cache
def suffix_size(extension: str | None) -> int:
    """Return the size in bytes of an extension in a file's name, with its dot."""
    return len(_suffix(extension)[1])


def shown_extension(extension: str | None) -> str:
    """Return an extension as it appears in file names, without its dot."""
    return os.fsdecode(_suffix(extension)[1][1:])


def flat_name(key: str, suffix: bytes, number: int) -> bytes:
    """Return the name of a sample's file in the flat directory of all keys: the slashes of the key are quoted.

    `suffix` is the quoted extension with its dot; `number` counts the samples that share the name. The last `~` of a
    name separates both, so numbers never make two names equal. A name that is too long ends in the hash of
    `quote(key)`, before the suffix.
    """
    whole = quote(key)
    if number > 1:
        quoted = suffix.replace(b"~", b"%7E")
        if len(quoted) > SUFFIX_MAX:
            quoted = b".%%7E%0*x" % (HASH_DIGITS, hash_of(suffix))
        return shorten(whole, b"~%d" % number + quoted)
    doubled = whole.endswith(suffix) and whole.rpartition(b"%2F")[2] != suffix
    return whole if doubled and len(whole) <= NAME_MAX else shorten(whole, suffix)


@lru_cache
def _suffix(extension: str | None) -> tuple[str, bytes]:
    """Return a dot and the extension, both raw and quoted for names."""
    if extension is None:
        return "", b""
    quoted = _quote_characters(f".{extension}")
    return f".{extension}", quoted if len(quoted) <= SUFFIX_MAX else _cut(quoted, SUFFIX_MAX)
