"""A list of ids in the scratch store, and which values are in it.

    the ids as they were read, with what is between them, and zeros up to a multiple of 8
    their entries, sorted by hash (`touchfs.source.scratch.sorted_entries`): for each part all hashes, then all spans
    u64 offset, u64 number of entries, for each part
    u64 number of entries, u64 kind (`Kinds`), 8s magic
    u32 CRC-32 (zlib's) of all before, which is compared when a process opens the file

The file's name follows from the bytes of the list and its suffix, so a list is sorted once, wherever it is.
It is mapped: a look takes a few pages of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
import tempfile
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.table_builder import encode_key
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, TouchfsError, UsageError, map_os_errors
from touchfs.core.extent import Buffer
from touchfs.core.jobs import one_ahead
from touchfs.core.names import hex_digest
from touchfs.core.packed_bytes import PackedBytes
from touchfs.core.urls import shown
from touchfs.format.id_hashes import SIZE_MAX, hash_keys, hashes_of
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.trust import open_trusted_unique
from touchfs.select.ids.reader import Column, integer_id, read_ids, suffix_of
from touchfs.select.predicates import Kinds, Named
from touchfs.source.data import DATA
from touchfs.source.mapped import map_file
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.sorted_entries import PARTS, EntrySorter, bounds_of_parts
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import FileType, StoredFile

log = logging.getLogger(__name__)

# 1 had the ids in the order of their hashes.
VERSION = 2
_MAGIC = b"TOUCHIDS"
_TAIL, _CHECKSUM = struct.Struct("<QQ8s"), struct.Struct("<I")
_PLACES = 2 * PARTS
_PIECE = 1 << 20
# Lists that a process has open besides those in use
_LISTS: BoundedCache[tuple[str, Column, Hashable], IdList] = BoundedCache(4)
_WORD = (1 << 64) - 1
_HALF = (1 << 32) - 1
# A span is where an id begins, times 2^17, and its length.
_LENGTH_BITS = SIZE_MAX.bit_length()
_LENGTH = (1 << _LENGTH_BITS) - 1
# Ids that are compared together, which fit into the processor's cache
_BLOCK = 1 << 13


class _MappedPart(NamedTuple):
    hashes: memoryview[int]
    spans: memoryview[int]


class IdList:
    """A sorted list of ids. `digest` is 32 hexadecimal digits, a hash of the bytes of the list.

    Raises FormatError if the file is damaged.
    """

    def __init__(self, file: ScratchFile, digest: str) -> None:
        self.spelled = digest
        self._file = file  # locked as long as it is in use
        with map_os_errors(file.path), open(open_trusted_unique(file.path), "rb") as opened:
            self._data = map_file(opened.fileno())
        end = len(self._data) - _TAIL.size - _CHECKSUM.size
        if end < 8 * _PLACES or self._data[-_CHECKSUM.size :] != _CHECKSUM.pack(
            zlib.crc32(self._data[: -_CHECKSUM.size])
        ):
            raise FormatError("a damaged list of ids", path=file.path)
        self._entries, kind, magic = _TAIL.unpack_from(self._data, end)
        self.kinds = Kinds(kind)
        if magic != _MAGIC:
            raise FormatError("not a list of ids", path=file.path)
        places = self._data[end - 8 * _PLACES : end].cast("Q").tolist()
        self._parts = [*map(self._part, places[::2], places[1::2])]
        self._hash_keys = hash_keys(digest.encode())
        self._keys: list[int] = self._hash_keys.tolist()

    def _part(self, offset: int, count: int) -> _MappedPart:
        middle, end = offset + 8 * count, offset + 16 * count
        return _MappedPart(self._data[offset:middle].cast("Q"), self._data[middle:end].cast("Q"))

    def _at(self, spans: NDArray[np.uint64]) -> PackedBytes:
        starts, lengths = spans >> np.uint64(_LENGTH_BITS), spans & np.uint64(_LENGTH)
        return PackedBytes(np.asarray(self._data), starts.astype(np.int64), lengths.astype(np.int64))

    @cached_property
    def repeated(self) -> int:
        """How many more ids the list has than different ones."""
        return sum(map(self._repeated_in, self._parts))

    def _repeated_in(self, part: _MappedPart) -> int:
        hashes, spans = np.asarray(part.hashes), np.asarray(part.spans)
        places = np.flatnonzero(hashes[1:] == hashes[:-1])
        is_same = self._at(spans[places]).equal(self._at(spans[places + 1]))
        if is_same.all():
            return len(places)
        ids = self._at(spans)  # different ones of one hash may be between equal ones
        return len(hashes) - len({ids.at(place) for place in range(len(hashes))})

    @property
    def count(self) -> int:
        """How many different ids there are."""
        return int(self._entries) - self.repeated

    @property
    def entries(self) -> int:
        """How many ids there are, repeated ones included."""
        return int(self._entries)

    def in_order(self) -> list[bytes]:
        """The different ids in the order of the list. Takes memory for all of them."""
        spans = np.sort(np.concatenate([np.asarray(part.spans) for part in self._parts]))
        ids = self._at(spans)
        return [*dict.fromkeys(map(ids.at, range(len(spans))))]

    def has(self, value: Any) -> bool:
        """True if a value is one of the ids."""
        if type(value) is Named:
            value = value.name if self.kinds is Kinds.TEXT else value.number
        if self.kinds is Kinds.TEXT:
            return type(value) is str and self._has(encode_key(value))
        if type(value) is float and value.is_integer():
            value = int(value)
        return type(value) is int and -(1 << 63) <= value < 1 << 63 and self._has(integer_id(value))

    def have(self, texts: PackedBytes) -> NDArray[np.bool_]:
        """Whether each text is one of the ids, as `has` says of it: bool[n]."""
        found = np.zeros(len(texts.lengths), np.bool_)
        if self.kinds is not Kinds.TEXT:
            return found
        rows = np.flatnonzero(texts.lengths <= SIZE_MAX)
        hashes = hashes_of(texts.chosen(rows), self._hash_keys)
        order = np.argsort(hashes)
        rows, hashes = rows[order], hashes[order]
        spans = np.zeros(len(found), np.uint64)
        for part, (first, end) in zip(self._parts, pairwise(bounds_of_parts(hashes)), strict=True):
            if first < end and len(part.hashes):
                places = np.searchsorted(part.hashes, hashes[first:end])
                places = np.minimum(places, len(part.hashes) - 1)
                is_there = np.asarray(part.hashes)[places] == hashes[first:end]
                chosen = rows[first:end][is_there]
                found[chosen], spans[chosen] = True, np.asarray(part.spans)[places[is_there]]
        rows = np.flatnonzero(found)
        for first in range(0, len(rows), _BLOCK):
            block = rows[first : first + _BLOCK]
            found[block] = texts.chosen(block).equal(self._at(spans[block]))
        for row in rows[~found[rows]].tolist():  # another id has its hash
            found[row] = self._has(texts.at(row))
        return found

    def _has(self, value: bytes) -> bool:
        if len(value) > SIZE_MAX:
            return False
        wanted = self._hash(value)
        hashes, spans = self._parts[wanted >> 56]
        place = bisect_left(hashes, wanted)
        while place < len(hashes) and hashes[place] == wanted:
            start, length = spans[place] >> _LENGTH_BITS, spans[place] & _LENGTH
            if self._data[start : start + length] == value:
                return True
            place += 1
        return False

    def _hash(self, value: bytes) -> int:
        """Like `hashes_of`, of one id."""
        keys, found = self._keys, len(value) * self._keys[-1]
        halves = array("I", value + bytes(-len(value) % 8))
        for number in range(0, len(halves), 2):
            found += (halves[number] + keys[number] & _HALF) * (halves[number + 1] + keys[number + 1] & _HALF)
        found &= _WORD
        found ^= found >> 33
        found = found * 0xFF51AFD7ED558CCD & _WORD
        return found ^ found >> 33


def open_list(path: str, column: Column, digest: str | None = None) -> IdList:
    """Open the list at a path; sort it if that is not done yet, which takes about a second for two million ids.

    With a `digest`, it is refused if it is another list by now. Raises UsageError, FormatError and the errors of its
    store, each with the path.
    """
    try:
        if digest is not None:
            return _LISTS.get((path, column, digest), lambda: _given(path, column, digest))
        status = DATA.stat(path)
        if status.type is not FileType.FILE:
            raise UsageError("is not a file: name a list of ids")
        version = status.fingerprint, status.fingerprint.ctime_ns
        return _LISTS.get((path, column, version), lambda: _read(path, column))
    except TouchfsError as error:
        raise error.at(path) from error


def _given(path: str, column: Column, digest: str) -> IdList:
    stored = Scratch.configured().find(_name(path, digest, column))
    with suppress(FormatError):  # it is made again
        if stored is not None:
            return IdList(stored, digest)
    return _read(path, column, digest)


def _read(path: str, column: Column, digest: str | None = None) -> IdList:
    with closing(DATA.open(path)) as file:
        file.open()
        found = _digest(file)
        if digest not in (None, found):
            raise UsageError("has changed since --ids named it: start again")
        ids = _sorted(Scratch.configured(), file, column, found)
    if ids.repeated:
        count = "1 id is" if ids.repeated == 1 else f"{ids.repeated} ids are"
        log.warning("%s: %s there more than once", quote_name(shown(path)), count)
    if not ids.count:
        log.warning("%s: has no ids", quote_name(shown(path)))
    return ids


def _sorted(scratch: Scratch, file: StoredFile, column: Column, digest: str) -> IdList:
    name = _name(file.path, digest, column)
    stored = scratch.make(name, _pieces(file, column, digest, scratch.directory))
    try:
        return IdList(stored, digest)
    except FormatError:
        with map_os_errors(stored.path):
            scratch.remove([stored.path])
        return IdList(scratch.make(name, _pieces(file, column, digest, scratch.directory)), digest)


def _name(path: str, digest: str, column: Column) -> str:
    return hex_digest(json.dumps([VERSION, suffix_of(path), digest, *column]).encode())


def _digest(file: StoredFile) -> str:
    found = hashlib.blake2b(digest_size=16)
    for offset in range(0, file.size, _PIECE):
        found.update(file.read(offset, min(_PIECE, file.size - offset)))
    return found.hexdigest()


def _pieces(file: StoredFile, column: Column, digest: str, directory: str) -> Iterator[Buffer]:
    checksum = 0
    for piece in _sections(file, column, digest, directory):
        checksum = zlib.crc32(piece, checksum)
        yield piece
    yield _CHECKSUM.pack(checksum)


def _sections(file: StoredFile, column: Column, digest: str, directory: str) -> Iterator[Buffer]:
    kind, count, position = Kinds.TEXT, 0, 0
    places = np.zeros((PARTS, 2), np.uint64)
    with tempfile.TemporaryFile(dir=directory) as temporary:
        sorter, keys = EntrySorter(temporary), hash_keys(digest.encode())
        for batch in one_ahead(read_ids(file, column)):
            kind, ids = batch.kind, batch.ids.narrowed()
            sorter.add(hashes_of(ids, keys), (ids.starts + position << _LENGTH_BITS) + ids.lengths)
            count += len(ids.lengths)
            position += len(ids.data)
            yield ids.data.data
        padding = bytes(-position % 8)
        position += len(padding)
        yield padding
        for number, part in enumerate(sorter.parts()):
            places[number] = position, len(part.hashes)
            for entries in part:
                position += entries.nbytes
                yield entries.data.cast("B")
    yield places.tobytes()
    yield _TAIL.pack(count, kind, _MAGIC)
