"""The index of keys: it finds the samples of a dataset that have a key.

One mapped file over all shards, with 16 bytes per sample that has a key, sorted:

    0       8s  "TOUCHKEY"   u32 version   u32 shards   u64 entries   zeros up to 64
    64      16 bytes per shard: its identity, in dataset order
    then    entries: u64 hash of the key, u32 ordinal, u32 position of the shard (as one u64: by shard, then by ordinal)
    then    u32 CRC-32 (zlib's) of each 64 KiB of all this, then that of these checksums

All little-endian. The hash is `names.hash_of` of the whole quoted key that the sample is shown under, the same as at
the end of cut file names. Hashes are evenly distributed, so interpolation search works: a guess is off by about the
square root of the remaining range, so a few probes find an entry among a hundred million. Different keys may have one
hash, so callers compare the key itself.

A process compares a block with its checksum once. A search reads entries that are not compared: only the entries that
it returns, and those beside them, are. As the entries were sorted, they prove that it found the right place.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import isqrt
from typing import NamedTuple

import numpy as np

from touchfs.core.errors import ChangedError, FormatError, map_os_errors
from touchfs.posix.trust import open_trusted
from touchfs.source.mapped import map_file

HEADER = struct.Struct("<8sIIQ40x")
MAGIC = b"TOUCHKEY"
VERSION = 2
IDENTITY_SIZE = 16
ENTRY_SIZE = 16
HASHES = 1 << 64
BLOCK = 1 << 16
# Eight megabytes of hashes.
REPEATED_MAX = 1 << 20
_CHUNK = 1 << 20
# A range this short is bisected: interpolation costs more than it saves.
_SHORT = 64


class Holder(NamedTuple):
    """A sample that may have the key: the position of its shard in the dataset, and its ordinal there."""

    position: int
    ordinal: int


class Keys:
    """The mapped index of keys of the dataset at `source`. Raises NotFoundError if there is none, FormatError if it is
    damaged, UntrustedError if somebody else may have written it, SourceError if it cannot be read.

    Each method that reads entries raises FormatError if the file is damaged.
    """

    __slots__ = (
        *("_checksums", "_data", "_end", "_is_right", "_repeated", "_source", "_start", "_words"),
        *("identities", "path", "size"),
    )

    def __init__(self, path: str, source: str | None = None) -> None:
        self.path = path
        self._source = source
        with map_os_errors(path), open(open_trusted(path, source), "rb") as file:
            data = map_file(file.fileno())
        self.size = len(data)
        if self.size < HEADER.size:
            raise FormatError("not an index of keys", path=path, offset=0)
        magic, version, shards, entries = HEADER.unpack_from(data)
        self._start: int = HEADER.size + shards * IDENTITY_SIZE
        self._end: int = self._start + entries * ENTRY_SIZE
        blocks = -(-self._end // BLOCK)
        if magic != MAGIC or version != VERSION or self.size != self._end + 4 * (blocks + 1):
            raise FormatError("not an index of keys", path=path, offset=0)
        self._data = data
        self._checksums = data[self._end :].cast("I")
        if zlib.crc32(self._checksums[:-1]) != self._checksums[-1]:
            raise self._damaged()
        self._is_right = bytearray(blocks)
        self._check(0, self._start)
        self.identities = bytes(data[HEADER.size : self._start])
        self._words = data[self._start : self._end].cast("Q")
        self._repeated: memoryview[int] | None = None

    def __reduce__(self) -> tuple[Callable[[str, str | None, bytes], Keys], tuple[str, str | None, bytes]]:
        return _map_again, (self.path, self._source, self.identities)

    def __len__(self) -> int:
        return len(self._words) // 2

    def check(self) -> None:
        """Compare all of the file with its checksums. Raises FormatError."""
        self._check(0, self._end)

    def _check_entries(self, first: int, last: int) -> None:
        self._check(self._start + first * ENTRY_SIZE, self._start + last * ENTRY_SIZE)

    def _check(self, first: int, end: int) -> None:
        """Compare the blocks that have these bytes with their checksums, each once."""
        for block in range(first // BLOCK, -(-end // BLOCK)):
            if not self._is_right[block]:
                data = self._data[block * BLOCK : min((block + 1) * BLOCK, self._end)]
                if zlib.crc32(data) != self._checksums[block]:
                    raise self._damaged()
                self._is_right[block] = True

    def _damaged(self) -> FormatError:
        return FormatError("its checksum is wrong: index with --force", path=self.path)

    def hash(self, place: int) -> int:
        """Return the hash of the entry at a place in `range(len(self))`."""
        self._check_entries(place, place + 1)
        return self._words[2 * place]

    def holder(self, place: int) -> Holder:
        """Return the sample of the entry at a place. Raises FormatError if its shard does not exist; the ordinal is not
        checked.
        """
        self._check_entries(place, place + 1)
        word = self._words[2 * place + 1]
        position = word >> 32
        if position * IDENTITY_SIZE >= len(self.identities):
            raise FormatError("an entry is damaged: index with --force", path=self.path)
        return Holder(position, word & 0xFFFFFFFF)

    def find(self, hash_: int) -> range:
        """Return the places of all entries with this hash, in dataset order."""
        first = self._first(hash_)
        last, count, words = first, len(self), self._words
        while last < count and words[2 * last] == hash_:
            last += 1
        self._check_entries(max(first - 1, 0), min(last + 1, count))
        if (first and words[2 * first - 2] >= hash_) or (last < count and words[2 * last] <= hash_):
            raise self._damaged()  # elsewhere, where it led the search to a wrong place
        return range(first, last)

    def is_repeated(self, hash_: int) -> bool:
        """Return whether several samples have this hash; True if there are more than `REPEATED_MAX` such hashes."""
        repeated = self.repeated
        if len(repeated) > REPEATED_MAX:
            return True
        place = bisect_left(repeated, hash_)
        return place < len(repeated) and repeated[place] == hash_

    @property
    def repeated(self) -> memoryview[int]:
        """The hashes that several samples have, ascending; the list stops a little beyond `REPEATED_MAX` of them.

        The first use scans all hashes, which takes about 10 ms per million.
        """
        if self._repeated is None:
            found, count = [np.empty(0, np.uint64)], 0
            self.check()
            hashes = np.frombuffer(self._words, np.uint64)[::2]
            for first in range(0, len(hashes), _CHUNK):
                chunk = hashes[first : first + _CHUNK + 1]
                found.append(np.unique(chunk[1:][chunk[1:] == chunk[:-1]]))
                count += len(found[-1])
                if count > REPEATED_MAX:
                    break
            self._repeated = np.unique(np.concatenate(found)).data
        return self._repeated

    def _first(self, hash_: int) -> int:
        """Return the place of the first entry whose hash is at least this one."""
        words = self._words
        low, high = 0, len(self)
        floor, ceiling = 0, HASHES
        while high - low > _SHORT and floor < ceiling:
            guess = low + (hash_ - floor) * (high - low) // (ceiling - floor)
            margin = 2 * isqrt(high - low)
            left, right = max(guess - margin, low), min(guess + margin, high - 1)
            before = high - low
            if words[2 * right] < hash_:
                low, floor = right + 1, words[2 * right]
            elif words[2 * left] >= hash_:
                high, ceiling = left, words[2 * left]
            else:
                floor, ceiling = words[2 * left], words[2 * right]
                low, high = left + 1, right
            if 2 * (high - low) > before:
                break  # not evenly distributed: somebody chose these keys
        while low < high:
            middle = (low + high) // 2
            if words[2 * middle] < hash_:
                low = middle + 1
            else:
                high = middle
        return low


def _map_again(path: str, source: str | None, identities: bytes) -> Keys:
    """Map an index in another process. Raises ChangedError if it was replaced by one of other shards."""
    keys = Keys(path, source)
    if keys.identities != identities:
        raise ChangedError("was rebuilt for other shards", path=path)
    return keys


def join_identities(identities: Iterable[str]) -> bytes:
    """Return the identities of a dataset's shards, in hexadecimal, as the bytes stored in an index of keys."""
    return bytes.fromhex("".join(identities))
