"""A list of ids, sorted, in the scratch store, and which values are in it.

    the parts of `touchfs.source.scratch.sorted_ids`, in order
    u64 offset, u64 number of ids, for each part
    u64 number of ids, u64 how many more the file had, u64 kind (`Kinds`), 8s magic
    u32 CRC-32 (zlib's) of all before, which is compared when a process opens the file

The file's name follows from the bytes of the list and its suffix, so a list is sorted once, wherever it is.
It is mapped: a look takes a few pages of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterator
from contextlib import closing, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, TouchfsError, UsageError, map_os_errors
from touchfs.core.extent import Buffer
from touchfs.core.names import hex_digest
from touchfs.core.urls import shown
from touchfs.format.packed_ids import PackedIds, hash_keys
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.trust import open_trusted_unique
from touchfs.select.ids.reader import Column, encode, integer_id, read_ids, suffix_of
from touchfs.select.predicates import Kinds, Named
from touchfs.source.data import DATA
from touchfs.source.mapped import map_file
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.sorted_ids import PARTS, sorted_parts
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import FileType, StoredFile

log = logging.getLogger(__name__)

VERSION = 1
_MAGIC = b"TOUCHIDS"
_TAIL, _CHECKSUM = struct.Struct("<QQQ8s"), struct.Struct("<I")
_PLACES = 2 * PARTS
_PIECE = 1 << 20
# Lists that a process has open besides those in use
_LISTS: BoundedCache[tuple[str, Column, Hashable], IdList] = BoundedCache(4)
_WORD = (1 << 64) - 1
_HALF = (1 << 32) - 1


class _MappedPart(NamedTuple):
    hashes: memoryview[int]
    bounds: memoryview[int]
    ids: memoryview[int]


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
        self.count, self.repeated, kind, magic = _TAIL.unpack_from(self._data, end)
        self.kinds = Kinds(kind)
        if magic != _MAGIC:
            raise FormatError("not a list of ids", path=file.path)
        places = self._data[end - 8 * _PLACES : end].cast("Q").tolist()
        self._parts = [*map(self._part, places[::2], places[1::2])]
        self._keys: list[int] = hash_keys(digest.encode()).tolist()

    def _part(self, offset: int, count: int) -> _MappedPart:
        bounds = offset + 8 * count
        ids = bounds + 8 * (count + 1)
        return _MappedPart(self._data[offset:bounds].cast("Q"), self._data[bounds:ids].cast("q"), self._data[ids:])

    def has(self, value: Any) -> bool:
        """True if a value is one of the ids."""
        if type(value) is Named:
            value = value.name if self.kinds is Kinds.TEXT else value.number
        if self.kinds is Kinds.TEXT:
            return type(value) is str and self._has(encode(value))
        if type(value) is float and value.is_integer():
            value = int(value)
        return type(value) is int and -(1 << 63) <= value < 1 << 63 and self._has(integer_id(value))

    def _has(self, value: bytes) -> bool:
        wanted = self._hash(value)
        hashes, bounds, ids = self._parts[wanted >> 56]
        place = bisect_left(hashes, wanted)
        while place < len(hashes) and hashes[place] == wanted:
            if ids[bounds[place] : bounds[place + 1]] == value:
                return True
            place += 1
        return False

    def _hash(self, value: bytes) -> int:
        """Like `PackedIds.hashes`, of one id."""
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
            raise UsageError("has changed since --ids named it: mount again")
        ids = _sorted(Scratch.configured(), file, column, found)
    if ids.repeated:
        log.warning("%s: %d ids are there more than once", quote_name(shown(path)), ids.repeated)
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
    kind, read, count, position, keys = Kinds.TEXT, 0, 0, 0, hash_keys(digest.encode())

    def batches() -> Iterator[tuple[PackedIds, NDArray[np.uint64]]]:
        nonlocal kind, read
        for batch in read_ids(file, column):
            kind = batch.kind
            read += len(batch.ids.lengths)
            yield batch.ids, batch.ids.hashes(keys)

    places = np.zeros((PARTS, 2), np.uint64)
    for number, part in enumerate(sorted_parts(batches(), directory)):
        places[number] = position, part.ids
        count += part.ids
        for piece in part.data:
            data = memoryview(piece).cast("B")
            position += len(data)
            yield data
    yield places.tobytes()
    yield _TAIL.pack(count, read - count, kind, _MAGIC)
