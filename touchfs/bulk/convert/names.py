"""Turn keys into unique names of samples in a tar, and back.

Readers take the key from a name up to the first dot of its last component, and take adjacent files with the same key as
one sample. So each dot in that component of a key becomes `%2E`, and the next sample of a name in a tar gets the suffix
`~2`, `~3`, …. Other characters that would not survive as a path are quoted as in the tree; so is the first `_` of a
directory `__…__`, which readers ignore (`%5F`). All other names stay as they are, also with `%` or `~`: a tar that
becomes a tar again has the same names.

A name is not unquoted on reading, because nothing shows who wrote it. But if the sample's own JSON has a key that
becomes its name, the sample has that key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.names import percent_encode
from touchfs.format.metainfo import parse_metainfo, parse_object
from touchfs.limits import LIMITS

_SPECIAL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PRIVATE = re.compile(r"_(?=_[^/]*__/)")
_MADE = re.compile(r"%[0-9A-F]{2}|~[0-9]+\Z")
_WHOLE = {"": "%2F", ".": "%2E", "..": "%2E%2E"}


class Names:
    """The names of samples in one tar."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()  # the samples of each name, whatever number they got

    def name(self, key: str) -> str:
        """The name for the next sample with a key. Call `written` once it is written."""
        name = quoted = quote_key(key)
        number = max(self._counts[quoted], 1)
        while name in self._taken:
            number += 1
            name = f"{quoted}~{number}"
        return name

    def written(self, key: str, name: str) -> None:
        """Note a sample that was written."""
        self._taken.add(name)
        self._counts[quote_key(key)] += 1


def quote_key(key: str) -> str:
    """The key as a path whose last component has no dot. Of a path that it made, it makes the same."""
    *directories, last = key.split("/")
    last = _SPECIAL.sub(percent_encode, last).replace(".", "%2E") or _WHOLE[""]
    quoted = "/".join([*(_WHOLE.get(name) or _SPECIAL.sub(percent_encode, name) for name in directories), last])
    return f"%5F{quoted[1:]}" if _PRIVATE.match(quoted) else quoted


def own_key(name: str, files: Mapping[str, Buffer], limit: int = LIMITS.json) -> str:
    """The key of a sample with this name and these files by extension. JSON over `limit` bytes is ignored."""
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
