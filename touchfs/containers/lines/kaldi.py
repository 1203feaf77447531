"""Kaldi's lists beside a shard: the files `segments`, `text` and `utt2spk` in its directory.

    segments   utterance recording start end
    text       utterance words                 may be missing
    utt2spk    utterance speaker               may be missing

They describe the recordings of all shards of the directory. A recording's id is the key of its sample, the key as
`touchfs.manifest.entry` quotes it, or the last component of the key. The lists of each shard are among its files in
catalogs, so a changed list is noticed.

They may have millions of lines, so they are parsed once for all shards, into an index in the scratch store that all
processes map:

    a JSON object for each segment, in the order of `segments`; then zeros, up to a multiple of 8
    u64     the hashes of the recordings' ids, ascending
    u64     the offsets of their objects, in the order of the hashes
    u32     their sizes
    footer  8s "TOUCHKAL", u64 segments, u64 offset of the hashes, u64 size of the reason

An index of lists that cannot be parsed has no hashes, but the reason as UTF-8 before the footer.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache

import numpy as np

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer
from touchfs.core.location import Location
from touchfs.core.names import hash_of, hex_digest
from touchfs.manifest.entry import recording_id
from touchfs.manifest.kaldi import parse_segments
from touchfs.segments.segment import SEGMENTS_MAX, Segment
from touchfs.segments.sidecar import CHARACTERS_MAX
from touchfs.shard.single import LISTS, SEGMENTS
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.mapped import map_file
from touchfs.source.scratch.store import Scratch

log = logging.getLogger(__name__)

# Making the index takes 36 bytes of memory a line, and about 15 seconds a million.
LINES_MAX = 10**7
# Bytes of an index that is kept in memory: some million lines.
MEMORY_MAX = 1 << 28

_VERSION = 1
_MAGIC = b"TOUCHKAL"
_FOOTER = struct.Struct("<8sQQQ")
_ALIGNMENT, _ROW = 8, 20
_BLOCK = 1 << 16


class KaldiLists:
    """The index of the lists. `problem` is the reason why they cannot be parsed, or ""."""

    def __init__(self, data: memoryview) -> None:
        end = len(data) - _FOOTER.size
        magic, count, start, reason = _FOOTER.unpack_from(data, end) if end >= 0 else (b"", 0, 0, 0)
        if magic != _MAGIC or end != start + _ROW * count + reason:
            raise FormatError("the index of Kaldi's lists is damaged: remove it from the scratch store")
        self.problem = bytes(data[end - reason : end]).decode()
        self._data = data
        self._hashes = np.frombuffer(data, "<u8", count, start)
        self._offsets = np.frombuffer(data, "<u8", count, start + 8 * count)
        self._sizes = np.frombuffer(data, "<u4", count, start + 16 * count)

    def find(self, key: str) -> tuple[Segment, ...]:
        """The segments of the recording of the sample with this key, by their starts. Raises FormatError."""
        for name in dict.fromkeys((key, recording_id(key), key.rpartition("/")[2])):
            if found := self._segments(name):
                return found
        return ()

    def _segments(self, name: str) -> tuple[Segment, ...]:
        # An int of Python would have all hashes converted at each look: 7 ms for 3 million, not 0.04 ms.
        wanted = np.uint64(_hash(name))
        first, end = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        if end - first > SEGMENTS_MAX or int(self._sizes[first:end].sum()) > CHARACTERS_MAX:
            limits = f"{SEGMENTS_MAX:,} segments or {CHARACTERS_MAX:,} bytes"
            raise FormatError(f"Kaldi's lists beside it have more than {limits} for it")
        segments = []
        for offset, size in zip(self._offsets[first:end].tolist(), self._sizes[first:end].tolist(), strict=True):
            segment = Segment.of(json.loads(bytes(self._data[offset : offset + size])))
            if segment.recording == name:  # else another id has the same hash
                segments.append(segment)
        return tuple(sorted(segments, key=lambda segment: (segment.fields["start"], segment.fields["end"])))


def lists_beside(path: str, files: Files) -> KaldiLists | None:
    """The lists beside the shard at `path`, whose files are `files`, or None. Raises ChangedError.

    Lists that cannot be read have a `problem`, because the shard can be served without them.
    """
    if SEGMENTS not in files:
        return None
    found = tuple((name, files[name]) for name in LISTS if name in files)
    try:
        return _open(Location.of(os.path.dirname(path)).resolved, found)
    except SourceError as error:
        return KaldiLists(memoryview(_end(_problem(dict(found), f"{error}: correct that, and index with --force"))))


@lru_cache(maxsize=2)
def _open(directory: str, files: tuple[tuple[str, Fingerprint], ...]) -> KaldiLists:
    """Map the index, made if necessary. Cached, because a thousand shards of a directory have the same."""
    facts = [f"{name}\0{fingerprint.hashed}" for name, fingerprint in files]
    name = hex_digest("\0".join(("kaldi", str(_VERSION), directory, *facts)).encode(errors="surrogateescape"))
    try:
        made = Scratch.configured().make(name, _pieces(directory, dict(files)))
        with closing(made), open(made.path, "rb") as file:
            return KaldiLists(map_file(file.fileno()))
    except SourceError as error:
        with open(os.memfd_create("touchfs-kaldi"), "w+b") as memory:
            for piece in _pieces(directory, dict(files)):
                if memory.tell() > MEMORY_MAX:
                    raise
                memory.write(piece)
            memory.flush()
            log.warning("%s: the index of Kaldi's lists is kept in memory", error)
            return KaldiLists(map_file(memory.fileno()))


def _pieces(directory: str, files: Mapping[str, Fingerprint]) -> Iterator[bytes]:
    """The index, in pieces."""
    hashes, offsets, sizes = array("Q"), array("Q"), array("I")
    end, reason = 0, ""
    segments, *others = (_blocks(os.path.join(directory, name), files.get(name)) for name in LISTS)
    try:
        for segment in parse_segments(segments, *others):
            if len(hashes) == LINES_MAX:
                raise FormatError(f"there are over {LINES_MAX:,} lines: put the shards into several directories")
            line = json.dumps(segment.fields, ensure_ascii=False).encode()
            hashes.append(_hash(str(segment.recording)))
            offsets.append(end)
            sizes.append(len(line))
            end += len(line)
            yield line
    except FormatError as error:
        reason = _problem(files, error.message)
        del hashes[:], offsets[:], sizes[:]
    padding = -end % _ALIGNMENT
    yield bytes(padding)
    order = np.argsort(np.asarray(hashes), kind="stable")
    for column in (hashes, offsets, sizes):
        yield np.asarray(column)[order].tobytes()
    yield _end(reason, len(order), end + padding)


def _problem(files: Iterable[str], reason: str) -> str:
    return f"Kaldi's lists beside it ({', '.join(files)}) are not read: {reason}"


def _end(problem: str, count: int = 0, start: int = 0) -> bytes:
    """The end of an index of `count` segments, whose hashes begin at `start`."""
    reason = problem.encode("utf-8", "replace")
    return reason + _FOOTER.pack(_MAGIC, count, start, len(reason))


def _blocks(path: str, fingerprint: Fingerprint | None) -> Iterator[Buffer]:
    if fingerprint is not None:
        with closing(DATA.open(path, fingerprint)) as file:
            for offset in range(0, file.size, _BLOCK):
                yield file.read(offset, min(_BLOCK, file.size - offset))


def _hash(name: str) -> int:
    return hash_of(name.encode("utf-8", "surrogatepass"))
