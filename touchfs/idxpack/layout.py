"""Lhotse's .idxpack: the offset indexes of many shards in one file, read in place.

    header         256 bytes: positions of the sections, and a SHA-256 of keys, types of content and paths
    collections    shards that belong together, under a key: a hash of their role, kind and declaration
    sequences      a collection's shards in order: a segment, and the number of samples up to its end
    segments       one source file: its path, its size, its offsets and their CRC-32
    strings        paths, kinds
    payload        the offsets of each segment, with the size of the source as the last one, as in a separate `.idx`

A segment may have a path and no offsets; its only number is the file's size, if known. In version 3 it may also be an
array of 32-bit numbers without a path. All segments of a collection have one type of content. Everything is validated:
the tables when they are read, and the CRC of offsets at each read, which Lhotse checks only on request. No checksum
covers the text of a kind. `build` writes version 2.

Source: lhotse/index_pack.py of 2.0.0a7.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads

MAGIC = b"IDXPACK2"
VERSION, ARRAY_VERSION = 2, 3
HEADER_SIZE = 256
# Far beyond real strings; it keeps a small file from naming many big strings that overlap
STRING_SIZE_MAX = 2**13

# magic, version, size of the header, (offset, count) of collections, sequences and segments, (offset, size) of strings
# and payload, digest
HEADER = struct.Struct("<8sIIQQQQQQQQQQ32s")
COLLECTION = np.dtype(
    [
        ("key", "V32"),
        ("first", "<u8"),  # of its sequences
        ("shards", "<u8"),
        ("samples", "<u8"),
        ("kind", "<u8"),
        ("kind_size", "<u4"),
        ("flags", "<u4"),
    ]
)
SEQUENCE = np.dtype([("segment", "<u8"), ("samples", "<u8")])
SEGMENT = np.dtype(
    [
        ("path", "<u8"),
        ("payload", "<u8"),
        ("path_size", "<u4"),
        ("flags", "<u4"),
        ("count", "<u8"),
        ("source_size", "<u8"),
        ("payload_size", "<u8"),
        ("crc", "<u4"),
        ("has_size", "<u4"),  # only for PATHS: its number is the size of the file
    ]
)
_SECTIONS = ("collections", "sequences", "segments", "strings", "payload")
_WIDTHS = (COLLECTION.itemsize, SEQUENCE.itemsize, SEGMENT.itemsize, 1, 1)
OFFSET, _NUMBER = np.dtype("<u8"), np.dtype("<u4")
COUNT = struct.Struct("<Q")


class SegmentContent(enum.IntEnum):
    """The content of a segment or collection, stored as flags. The flags of its shards override a collection's."""

    OFFSETS = 0
    PATHS = 1
    ARRAY = 2


# The byte that the digest has for each
_DIGEST_FLAG = {SegmentContent.OFFSETS: b"\1", SegmentContent.PATHS: b"\0", SegmentContent.ARRAY: b"\2"}


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """A collection of shards. `segments` and `ends`, of shape (shards,), have each shard's segment and the number of
    samples up to its end.
    """

    key: bytes
    kind: str
    content: SegmentContent
    segments: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """A parsed pack without its payload."""

    collections: tuple[Collection, ...]
    paths: tuple[str, ...]  # by segment; empty for an array
    segments: NDArray[Any]  # dtype SEGMENT, as stored


def scan_pack(size: int) -> Reads[Pack]:
    """Read everything except the payload of a file of `size` bytes. Raises FormatError."""
    if size < HEADER_SIZE:
        raise FormatError(f"the index pack ends inside its header of {HEADER_SIZE} bytes", offset=size)
    magic, version, header_size, *places, stored_digest = HEADER.unpack_from((yield 0, HEADER_SIZE))
    if magic != MAGIC:
        raise FormatError(f"not an index pack: it begins with {magic!r}", offset=0)
    if version not in (VERSION, ARRAY_VERSION) or header_size != HEADER_SIZE:
        raise FormatError(f"an index pack of version {version}, only 2 and 3 are known", offset=len(MAGIC))
    end = HEADER_SIZE
    for name, width, offset, count in zip(_SECTIONS, _WIDTHS, places[::2], places[1::2], strict=True):
        if name == "payload":
            end += -end % OFFSET.itemsize
        if offset != end or count * width > size - offset:
            _refuse(f"{count} {name} cannot be at {offset}")
        end += count * width
    if end != size:
        _refuse(f"it has {size} bytes, but its sections end at {end}")
    tables = (yield HEADER_SIZE, places[8] - HEADER_SIZE) if places[8] > HEADER_SIZE else b""
    return _parse_tables(bytes(tables), version, places, stored_digest)


def _parse_tables(tables: bytes, version: int, places: Sequence[int], stored_digest: bytes) -> Pack:
    _, _, sequences_at, _, segments_at, _, strings_at, strings_size, payload_at, payload_size = places
    collections = np.frombuffer(tables[: sequences_at - HEADER_SIZE], COLLECTION)
    sequences = np.frombuffer(tables[sequences_at - HEADER_SIZE : segments_at - HEADER_SIZE], SEQUENCE)
    segments = np.frombuffer(tables[segments_at - HEADER_SIZE : strings_at - HEADER_SIZE], SEGMENT)
    strings = tables[strings_at - HEADER_SIZE :][:strings_size]

    def string(at: int, size: int) -> str:
        if size > STRING_SIZE_MAX or at < strings_at or at + size > strings_at + strings_size:
            _refuse(f"a path or kind of {size} bytes cannot be at {at}", strings_at)
        try:
            return strings[at - strings_at :][:size].decode()
        except UnicodeDecodeError as error:
            raise FormatError("the index pack has a path or kind that is not UTF-8", offset=at) from error

    _check_segments(segments, version, payload_at, payload_size)
    if (sequences["segment"] >= len(segments)).any():
        _refuse("a shard has a segment that does not exist", sequences_at)
    used = sequences["segment"].astype(np.int64)
    if (np.bincount(used, minlength=len(segments))[segments["flags"] == SegmentContent.ARRAY] != 1).any():
        _refuse("an array does not belong to exactly one shard", sequences_at)
    if segments["path_size"].sum() > 2 * strings_size:  # a path may have one segment with offsets and one without
        _refuse("its paths overlap", segments_at)
    paths = tuple(string(at, size) for at, size in segments[["path", "path_size"]].tolist())
    found: list[Collection] = []
    first = 0
    for at, row in enumerate(collections):
        offset = HEADER_SIZE + at * COLLECTION.itemsize
        shards = int(row["shards"])
        if row["first"] != first or shards > len(sequences) - first:
            _refuse(f"the shards of collection {at} cannot be {shards}", offset)
        own = slice(first, first + shards)
        content = _content(row["flags"], segments["flags"][used[own]], version, offset)
        samples = segments["count"][used[own]].astype(np.int64) - (content is not SegmentContent.ARRAY)
        ends = np.cumsum(samples)
        if (ends != sequences["samples"][own]).any() or row["samples"] != samples.sum():
            _refuse(f"the counts of collection {at} do not add up", offset)
        kind = string(int(row["kind"]), int(row["kind_size"]))
        found.append(Collection(row["key"].tobytes(), kind, content, used[own], ends))
        first += shards
    if first != len(sequences):
        _refuse("it has shards that belong to no collection", sequences_at)
    if len({collection.key for collection in found}) != len(found):
        _refuse("two collections have the same key")
    pack = Pack(tuple(found), paths, segments)
    if _pack_digest(pack) != stored_digest:
        _refuse("its digest does not match its keys, paths or counts")
    return pack


def _check_segments(segments: NDArray[Any], version: int, payload_at: int, payload_size: int) -> None:
    flags, counts = segments["flags"], segments["count"]
    is_array, is_path = flags == SegmentContent.ARRAY, flags == SegmentContent.PATHS
    wrong = (flags > (SegmentContent.ARRAY if version == ARRAY_VERSION else SegmentContent.PATHS)) | (
        counts > payload_size
    )
    wrong |= (counts != 1) & is_path | (counts == 0) & ~is_array
    wrong |= (segments["source_size"] != 0) & (is_array | is_path) | (segments["source_size"] >= 2**63)
    wrong |= (segments["path_size"] != 0) & is_array | (segments["has_size"] > is_path)
    widths = np.where(is_array, _NUMBER.itemsize, OFFSET.itemsize).astype(np.uint64)
    sizes = np.where(wrong, np.uint64(0), counts) * widths
    places = np.uint64(payload_at) + np.cumsum(sizes, dtype=np.uint64) - sizes
    wrong |= (segments["payload_size"] != sizes) | (segments["payload"] != places)
    if wrong.any():
        at = int(wrong.argmax())
        _refuse(f"segment {at} is invalid", payload_at)
    if sizes.sum() != payload_size:
        _refuse("the size of its payload is not the sum of its segments", payload_at)


def _content(declared: int, contents: NDArray[np.uint32], version: int, offset: int) -> SegmentContent:
    """Return the content of a collection. Old packs do not declare it; then that of its segments counts."""
    if declared > (SegmentContent.ARRAY if version == ARRAY_VERSION else SegmentContent.PATHS):
        _refuse(f"a collection with flags of {declared}", offset)
    content = SegmentContent(int(contents[0])) if len(contents) else SegmentContent(int(declared))
    if (
        (contents != content).any()
        or declared not in (content, SegmentContent.OFFSETS)
        or SegmentContent.ARRAY == content != declared
    ):
        _refuse("a collection and its shards have different content", offset)
    return content


def digest(collections: Iterable[tuple[bytes, SegmentContent, Sequence[bytes]]]) -> bytes:
    """Return the SHA-256 of the collections: key, content, and paths (or an array's counts, packed)."""
    found = hashlib.sha256()
    for key, content, shards in collections:
        found.update(key + _DIGEST_FLAG[content] + COUNT.pack(len(shards)))
        for shard in shards:
            found.update(shard if content is SegmentContent.ARRAY else COUNT.pack(len(shard)) + shard)
    return found.digest()


def _pack_digest(pack: Pack) -> bytes:
    counts = [COUNT.pack(count) for count in pack.segments["count"].tolist()]
    paths = [path.encode() for path in pack.paths]
    shards = {SegmentContent.OFFSETS: paths, SegmentContent.PATHS: paths, SegmentContent.ARRAY: counts}
    return digest(
        (collection.key, collection.content, [shards[collection.content][i] for i in collection.segments.tolist()])
        for collection in pack.collections
    )


def scan_segment(pack: Pack, segment: int) -> Reads[NDArray[np.int64]]:
    """Read the numbers of a segment: for OFFSETS, offsets in bytes, of which the last is the source's size; for PATHS,
    that size or nothing; for ARRAY, its numbers. Raises FormatError.
    """
    row = pack.segments[segment]
    at, size = int(row["payload"]), int(row["payload_size"])
    data = (yield at, size) if size else b""
    if len(data) != size or crc32(data) != row["crc"]:
        _refuse(f"the checksum of segment {segment} is wrong", at)
    if row["flags"] == SegmentContent.ARRAY:
        return np.frombuffer(data, _NUMBER).astype(np.int64)
    stored = np.frombuffer(data, OFFSET)
    if row["flags"] == SegmentContent.PATHS:
        if stored[0] >= 2**63 or (stored[0] and not row["has_size"]):
            _refuse(f"the size of the source of segment {segment} cannot be {stored[0]}", at)
        return stored[: int(row["has_size"])].astype(np.int64)
    if (stored[1:] < stored[:-1]).any() or stored[-1] != row["source_size"]:
        _refuse(f"the offsets of segment {segment} do not ascend to the {row['source_size']} bytes of its source", at)
    return stored.astype(np.int64)


def _refuse(problem: str, offset: int = 0) -> NoReturn:
    raise FormatError(f"damaged index pack: {problem}", offset=offset)
