"""Checks that a source is prepared for random access: each file is plain and has its native index beside it.

A TouchNet or Megatron-LM shard consists of such pairs. A tar or JSONL file has `<its name>.idx`, which matches if its
last number is the end of the file: exactly for JSONL, within the end mark for a tar. Nothing is served from this index
(touchfs has catalogs), so no more is checked; `touchfs index --check` checks everything.

Only files beside the data count. If a catalog in a user's cache counted, the same job would run one way here and
another way there, or differently the second time.
"""

from __future__ import annotations

import os
import struct
from contextlib import closing

from touchfs.core.errors import ChangedError, NotFoundError, SourceError
from touchfs.core.location import Location
from touchfs.peers.write import COMPRESSED_SUFFIXES
from touchfs.registry.containers import MEGATRON, SHAR, TAR, is_compressed, single_named
from touchfs.registry.find import find
from touchfs.registry.found import FoundShard
from touchfs.registry.open import fingerprints
from touchfs.source.data import DATA, find_type
from touchfs.source.lines import PIPE
from touchfs.source.store import FileType

_OFFSET = struct.Struct("<Q")
# Two blocks of zeros, and padding of the last record of 20 blocks. Lhotse's number may be one record too small.
_END_MARK_MAX = 22 * 512 + 20 * 512


def why_sequential(path: str) -> str:
    """Why a file of this name does not allow random access; "" if it does."""
    if path.startswith(PIPE):
        return "what a command writes can only be read from its start on: write it to a file"
    if is_compressed(path) or path.endswith(COMPRESSED_SUFFIXES):
        return "it is compressed, and a sample in it can only be reached through all before it: decompress it"
    return ""


def has_native_indexes(source: str) -> bool:
    """True if all files of a source have native indexes. Raises as `touchfs.indexing.open_dataset` does:
    NotFoundError, FormatError or SourceError.
    """
    location = Location.parse(source).absolute
    return not why_sequential(source) and all(map(_is_indexed, find(location).shards))


def matches(path: str) -> bool:
    """True if a tar or JSONL file has its native index beside it, and the index ends where the file does."""
    if why_sequential(path):
        return False
    try:
        size = DATA.stat(path).fingerprint.size
        with closing(DATA.open(f"{path}.idx")) as index:
            if index.size < _OFFSET.size or index.size % _OFFSET.size:
                return False
            (end,) = _OFFSET.unpack(index.read(index.size - _OFFSET.size, _OFFSET.size))
    except (ChangedError, NotFoundError, SourceError):
        return False
    return bool(size - (_END_MARK_MAX if single_named(path) is TAR else 0) <= end <= size)


def _is_indexed(shard: FoundShard) -> bool:
    path = shard.path
    if shard.container is MEGATRON or find_type(path) is FileType.DIRECTORY:
        return True
    if shard.container is not SHAR:
        return matches(path)
    # Other files there belong to no cuts and are not read.
    names = [each for each in fingerprints(path) if each.endswith(COMPRESSED_SUFFIXES) or single_named(each)]
    return all(matches(os.path.join(os.path.dirname(path), name)) for name in names)
