"""Which shards a SOURCE means.

    a directory     with a modality of TouchNet's (`audio.idx`, `metainfo.bin`, …): that shard
                    with a `data.list`: what it lists
                    with pairs named otherwise (`corpus_text_document.idx` and `.bin`): each a shard of Megatron-LM's
                    else: those of its subdirectories, one level down
    PREFIX.idx      and `PREFIX.bin` or `PREFIX`, where that is no other file: the one shard
    another file    a `data.list`

Names alone decide, so hundreds of shards are found without a read.

A `data.list` has a line `SHARD_DIR DATATYPES` a shard, and its paths are as the user typed them when the shards were
made: relative to the directory of that day. So each is tried as written, then relative to the list, then by its last
component beside the list. The last word of a line is the datatypes, all before it the path: paths may have spaces.
"""

from __future__ import annotations

import os
import re

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.shard.megatron import find_prefixes
from touchfs.shard.pair import DATA_SUFFIX, INDEX_SUFFIX
from touchfs.shard.touch import is_touch_shard

LIST_NAME = "data.list"
# A path of 4096 bytes, which is the longest there is, and datatypes. What has longer lines is no list.
LINE_MAX = 8192

_LINE = re.compile(rb"([^\0]*\S)\s+(\w+(?:\+\w+)*)", re.ASCII)


def find_shards(source: str) -> list[str]:
    """The paths of the shards of a source, in dataset order. A listed shard is named even if it is not there."""
    if not os.path.isdir(source):
        if (index := _index_of(source)) is not None:
            return [index]
        if os.path.isfile(source):
            return _listed(source)
        if os.path.lexists(source):
            raise NotFoundError("neither a file nor a directory", path=source)
        raise NotFoundError("no such file or directory", path=source)
    if is_touch_shard(source):
        return [source]
    listing = os.path.join(source, LIST_NAME)
    if os.path.isfile(listing):
        return _listed(listing)
    if prefixes := find_prefixes(source):
        return prefixes
    try:
        # A hidden directory is what somebody has not finished writing.
        names = sorted(name for name in os.listdir(source) if not name.startswith("."))
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=source) from error
    paths = (os.path.join(source, name) for name in names)
    shards = [shard for path in paths for shard in ([path] if is_touch_shard(path) else find_prefixes(path))]
    if not shards:
        expected = "expected .bin/.idx files, directories of them, or a data.list"
        raise NotFoundError(f"no shards here: {expected}", path=source)
    return shards


def _index_of(source: str) -> str | None:
    """The `PREFIX.idx` that a source means which is no directory."""
    if source.endswith(INDEX_SUFFIX) and os.path.isfile(source):
        return source
    if source.endswith(DATA_SUFFIX) or not os.path.exists(source):
        index = source.removesuffix(DATA_SUFFIX) + INDEX_SUFFIX
        return index if os.path.isfile(index) else None
    return None


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
                    told = f"is no dataset: line {number} is not `SHARD_DIR DATATYPES`"
                    if line.startswith(b"{"):
                        told += "; a JSONL is packed first: `touchfs pack touch`"
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
