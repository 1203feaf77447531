"""`x.json` beside `x.tar`, as webshart and hfutils write it: the members by name, with their places.

    {"filesize": 30720, "files": {"a.jpg": {"offset": 512, "size": 1000, "sha256": "…"}, …}}

`files` may be a list, too, whose entries have a `path`. A size may be called `length`. Everything else is ignored.

Source: src/metadata.rs of bghira/webshart, hfutils/index/make.py of deepghs/hfutils.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from touchfs.containers.tar.adopted.listed import ListedMember
from touchfs.core.errors import FormatError

SUFFIX = ".json"
_NAMES, _SIZES = ("path", "fname", "filename"), ("length", "size")


def parse(data: bytes, size: int) -> list[ListedMember]:
    """The members that an index of a tar of `size` bytes lists. Raises FormatError."""
    try:
        index = json.loads(data)
        files = index["files"]
        if (said := index.get("filesize")) not in (size, 0, None):
            raise FormatError(f"it is of a tar of {str(said)[:20]} bytes, and this one has {size}")
        entries: Iterable[tuple[str, Mapping[str, Any]]] = (
            files.items() if isinstance(files, dict) else (("", entry) for entry in files)
        )
        return [_listed(name, entry) for name, entry in entries]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"not the places of a tar's files ({type(error).__name__}: {str(error)[:80]})") from error


def _listed(name: str, entry: Mapping[str, Any]) -> ListedMember:
    name = next((entry[key] for key in _NAMES if entry.get(key) is not None), name)
    length = next((entry[key] for key in _SIZES if key in entry), None)
    offset = entry["offset"]
    if not isinstance(name, str) or type(offset) is not int or type(length) is not int:
        raise TypeError(f"{entry}"[:80])
    return ListedMember(name, offset, length)
