"""Lists beside a shard, in its directory: Kaldi's files `segments`, `text` and `utt2spk`, or NeMo's manifest of tars
(`touchfs.containers.lines.tarred`).

    segments   utterance recording start end
    text       utterance words                 may be missing
    utt2spk    utterance speaker               may be missing

They describe the recordings of all shards of the directory. A recording's id is the key of its sample, the key as
`touchfs.manifest.entry` quotes it, or the last component of the key. The lists beside each shard are among its files in
catalogs, so a changed list is noticed.

They may have millions of lines, so they are parsed once for all shards, into an index in the scratch store that all
processes map:

    for each segment, in the order of its list, the id of its recording and its object as a JSON array; then zeros, up
    to a multiple of 8
    u64     the hashes of the recordings' ids, ascending
    u64     the offsets of their arrays, in the order of the hashes
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from touchfs.containers.lines import tarred
from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer
from touchfs.core.location import Location
from touchfs.core.names import hash_of, hex_digest
from touchfs.manifest.entry import recording_id
from touchfs.manifest.kaldi import parse_segments
from touchfs.segments.segment import SEGMENTS_MAX, Segment
from touchfs.segments.sidecar import CHARACTERS_MAX
from touchfs.shard.options import KALDI_RULE, NEMO_RULE
from touchfs.shard.single import LISTS, MANIFEST, SEGMENTS
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.mapped import map_file
from touchfs.source.scratch.store import Scratch

log = logging.getLogger(__name__)

# Making the index takes 36 bytes of memory a line, and about 15 seconds a million.
LINES_MAX = 10**7
# Bytes of an index that is kept in memory: some million lines.
MEMORY_MAX = 1 << 28

_VERSION = 2
_MAGIC = b"TOUCHKAL"
_FOOTER = struct.Struct("<8sQQQ")
_ALIGNMENT, _ROW = 8, 20
_BLOCK = 1 << 16


class _SegmentIndex:
    """The index of the lists. `problem` is the reason why they cannot be parsed, or ""."""

    def __init__(self, data: memoryview) -> None:
        end = len(data) - _FOOTER.size
        magic, count, start, reason = _FOOTER.unpack_from(data, end) if end >= 0 else (b"", 0, 0, 0)
        if magic != _MAGIC or end != start + _ROW * count + reason:
            raise FormatError("the index of lists is damaged: remove it from the scratch store")
        self.problem = bytes(data[end - reason : end]).decode()
        self._data = data
        self._hashes = np.frombuffer(data, "<u8", count, start)
        self._offsets = np.frombuffer(data, "<u8", count, start + 8 * count)
        self._sizes = np.frombuffer(data, "<u4", count, start + 16 * count)

    def find(self, name: str) -> list[dict[str, Any]]:
        """The objects of the segments of the recording with this id. Raises FormatError."""
        # An int of Python would have all hashes converted at each look: 7 ms for 3 million, not 0.04 ms.
        wanted = np.uint64(_hash(name))
        first, end = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        if end - first > SEGMENTS_MAX or int(self._sizes[first:end].sum()) > CHARACTERS_MAX:
            limits = f"{SEGMENTS_MAX:,} segments or {CHARACTERS_MAX:,} bytes"
            raise FormatError(f"the lists beside it have more than {limits} for it")
        spans = zip(self._offsets[first:end].tolist(), self._sizes[first:end].tolist(), strict=True)
        found = (json.loads(bytes(self._data[offset : offset + size])) for offset, size in spans)
        return [fields for own, fields in found if own == name]  # else another id has the same hash


class _Tool(NamedTuple):
    """A tool whose lists are beside shards: the rule of its segments, the ids that the recording of a sample may have,
    by the path of its shard and its key, and the segment of an object and its place among those of its recording.
    """

    rule: str
    ids: Callable[[str, str], Iterable[str]]
    segment: Callable[[dict[str, Any]], Segment]
    place: Callable[[dict[str, Any]], tuple[float, float]]


def _ids_of_kaldi(shard: str, key: str) -> Iterable[str]:
    return dict.fromkeys((key, recording_id(key), key.rpartition("/")[2]))


_KALDI = _Tool(KALDI_RULE, _ids_of_kaldi, Segment.of, lambda fields: (fields["start"], fields["end"]))
_NEMO = _Tool(NEMO_RULE, tarred.ids_in, tarred.segment_of, tarred.place_of)


class ListsBeside(NamedTuple):
    """The lists beside the shard at `path`."""

    path: str
    tool: _Tool
    segments: _SegmentIndex

    @property
    def problem(self) -> str:
        """The reason why they cannot be parsed, or ""."""
        return self.segments.problem

    def find(self, key: str) -> tuple[Segment, ...]:
        """The segments of the recording of the sample with this key, by their starts. Raises FormatError."""
        for name in self.tool.ids(self.path, key):
            if found := self.segments.find(name):
                return tuple(map(self.tool.segment, sorted(found, key=self.tool.place)))
        return ()


def are_lists_beside(files: Files, rules: Collection[str]) -> bool:
    """Whether lists for one of the rules are among the files of a shard."""
    return (SEGMENTS in files and KALDI_RULE in rules) or (MANIFEST in files and NEMO_RULE in rules)


def lists_beside(path: str, files: Files, rules: Collection[str]) -> ListsBeside | None:
    """The lists beside the shard at `path`, whose files are `files`, for one of the rules, or None.

    Raises ChangedError. Lists that cannot be read have a `problem`, because the shard can be served without them.
    """
    tool, names = (_KALDI, LISTS) if SEGMENTS in files else (_NEMO, (MANIFEST,))
    found = tuple((name, files[name]) for name in names if name in files)
    if not found or tool.rule not in rules:
        return None
    try:
        return ListsBeside(path, tool, _open(Location.of(os.path.dirname(path)).resolved, found))
    except SourceError as error:
        problem = _problem(dict(found), f"{error}: correct that, and index with --force")
        return ListsBeside(path, tool, _SegmentIndex(memoryview(_end(problem))))


@lru_cache(maxsize=2)
def _open(directory: str, files: tuple[tuple[str, Fingerprint], ...]) -> _SegmentIndex:
    """Map the index, made if necessary. Cached, because a thousand shards of a directory have the same."""
    facts = [f"{name}\0{fingerprint.hashed}" for name, fingerprint in files]
    name = hex_digest("\0".join(("kaldi", str(_VERSION), directory, *facts)).encode(errors="surrogateescape"))
    try:
        made = Scratch.configured().make(name, _pieces(directory, dict(files)))
        with closing(made), open(made.path, "rb") as file:
            return _SegmentIndex(map_file(file.fileno()))
    except SourceError as error:
        with open(os.memfd_create("touchfs-kaldi"), "w+b") as memory:
            for piece in _pieces(directory, dict(files)):
                if memory.tell() > MEMORY_MAX:
                    raise
                memory.write(piece)
            memory.flush()
            log.warning("%s: the index of lists is kept in memory", error)
            return _SegmentIndex(map_file(memory.fileno()))


def _pieces(directory: str, files: Mapping[str, Fingerprint]) -> Iterator[bytes]:
    hashes, offsets, sizes = array("Q"), array("Q"), array("I")
    end, reason = 0, ""
    try:
        for name, fields in _entries(directory, files):
            if len(hashes) == LINES_MAX:
                raise FormatError(f"there are over {LINES_MAX:,} lines: put the shards into several directories")
            line = json.dumps([name, fields]).encode()
            hashes.append(_hash(name))
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


def _entries(directory: str, files: Mapping[str, Fingerprint]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id of the recording and the object of each segment."""
    if MANIFEST in files:
        return tarred.parse_entries(_blocks(os.path.join(directory, MANIFEST), files[MANIFEST]))
    segments, *others = (_blocks(os.path.join(directory, name), files.get(name)) for name in LISTS)
    return ((str(segment.recording), segment.fields) for segment in parse_segments(segments, *others))


def _problem(files: Iterable[str], reason: str) -> str:
    return f"the lists beside it ({', '.join(files)}) are not read: {reason}"


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
