"""Which shards a SOURCE means: a shard directory, a directory of them, or a `data.list`.

A `data.list` has a line `SHARD_DIR DATATYPES` a shard, and its paths are as the user typed them when the shards were
made: relative to the directory of that day. So each is tried as written, then relative to the list, then by its last
component beside the list. The last word of a line is the datatypes, all before it the path: paths may have spaces.
"""

from __future__ import annotations

import os
import re

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.shard.touch import is_touch_shard

LIST_NAME = "data.list"
# A path of 4096 bytes, which is the longest there is, and datatypes. What has longer lines is no list.
LINE_MAX = 8192

_LINE = re.compile(rb"([^\0]*\S)\s+(\w+(?:\+\w+)*)", re.ASCII)


def find_shards(source: str) -> list[str]:
    """The paths of the shards of a source, in dataset order. A listed shard is named even if it is not there."""
    if os.path.isfile(source):
        return _listed(source)
    if not os.path.isdir(source):
        raise NotFoundError("no such file or directory", path=source)
    if is_touch_shard(source):
        return [source]
    listing = os.path.join(source, LIST_NAME)
    if os.path.isfile(listing):
        return _listed(listing)
    try:
        # A hidden directory is what somebody has not finished writing.
        names = sorted(name for name in os.listdir(source) if not name.startswith("."))
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=source) from error
    shards = [path for path in (os.path.join(source, name) for name in names) if is_touch_shard(path)]
    if not shards:
        expected = "expected .bin/.idx files, directories of them, or a data.list"
        raise NotFoundError(f"no shards here: {expected}", path=source)
    return shards


def _listed(listing: str) -> list[str]:
    shards = []
    beside = os.path.dirname(os.path.abspath(listing))
    try:
        with open(listing, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_MAX), b""), 1):
                stripped = line.strip()
                if not stripped:
                    continue
                match = _LINE.fullmatch(stripped)
                if match is None:
                    told = f"line {number} is not `SHARD_DIR DATATYPES`: {os.fsdecode(line[:80])!r}"
                    raise FormatError(told, path=listing)
                shards.append(_locate(os.fsdecode(match[1]), beside))
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=listing) from error
    if not shards:
        raise FormatError("lists no shard", path=listing)
    return shards


def _locate(path: str, beside: str) -> str:
    candidates = [path, os.path.join(beside, path), os.path.join(beside, os.path.basename(path.rstrip("/")))]
    return next((candidate for candidate in candidates if os.path.isdir(candidate)), candidates[1])
