"""From keys to the names of samples in a tar, of which no two are one, and back.

Readers take a name's key to end at the first dot of its last component, and files that follow each other under one key
to be one sample. So of a key that component gets `%2E` for each dot, and the nth sample of a key in a tar gets `~n`
behind it. What else would not come out again as a path is quoted as in the tree; `~` before digits at the end, which
would look like a number, as `%7E`; the first `_` of a directory `__…__`, in which readers take nothing for a sample, as
`%5F`; and `%` before two hex digits or `~` as `%25`.

A name is not unquoted when it is read, as nothing tells who wrote it. But a sample whose own JSON has a key that makes
its name has that key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.format.metainfo import parse_metainfo, parse_object
from touchfs.limits import LIMITS

_SPECIAL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|%(?=[0-9A-Fa-f]{2}|~)")
_NUMBER = re.compile(r"~(?=[0-9]+\Z)")
_PRIVATE = re.compile(r"_(?=_[^/]*__/)")
_MADE = re.compile(r"%[0-9A-F]{2}|~[0-9]+\Z")
_WHOLE = {"": "%2F", ".": "%2E", "..": "%2E%2E"}


class Names:
    """The names of samples in one tar."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def name(self, key: str) -> str:
        """For the next sample of a key, once it was written: `written` counts it."""
        number = self._counts[key] + 1
        return quote_key(key) + (f"~{number}" if number > 1 else "")

    def written(self, key: str) -> None:
        self._counts[key] += 1


def quote_key(key: str) -> str:
    """The key as a path whose last component has no dot, of which no other key makes the same."""
    *directories, last = key.split("/")
    last = _NUMBER.sub("%7E", _SPECIAL.sub(_percent, last).replace(".", "%2E")) or _WHOLE[""]
    quoted = "/".join([*(_WHOLE.get(name) or _SPECIAL.sub(_percent, name) for name in directories), last])
    return f"%5F{quoted[1:]}" if _PRIVATE.match(quoted) else quoted


def own_key(name: str, files: Mapping[str, Buffer], limit: int = LIMITS.json) -> str:
    """The key of a sample that is shown under a name, with these files by extension; JSON over the limit has none."""
    if "json" not in files or len(files["json"]) > limit or not _MADE.search(name):
        return name
    try:
        key = parse_metainfo(files["json"]).key or parse_object(files["json"]).get("id")
    except FormatError:
        return name
    if not isinstance(key, str):
        return name
    quoted = quote_key(key)
    return key if name == quoted or (name.startswith(f"{quoted}~") and name[len(quoted) + 1 :].isdecimal()) else name


def _percent(match: re.Match[str]) -> str:
    code = ord(match[0])
    # U+DC80 to U+DCFF is how Python holds a byte that was not UTF-8; other lone surrogates JSON can spell out.
    data = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)
