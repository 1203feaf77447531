"""The fingerprint of a file of data: how versions of a file are told apart, and how that is hashed and stored.

Size, mtime and inode tell versions of a local file apart, unless it is overwritten in place and its mtime is set back,
as by `cp -p`, `touch -r` and `rsync --inplace --times`. Then its ctime differs, as it does after chmod, chown and a new
hard link. So where it differs, the *sample* is compared: a digest of 64 blocks of 4 KiB, the first one, the last one,
and one at a seeded place in each 62nd part of what is between. A change between these blocks is not seen.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

_BLOCK, _BETWEEN = 4096, 62


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identifies a version of a file among later ones of the same name: size in bytes, mtime and inode.

    `inode` is None if only a directory listing was stored. A file of another store has no inode; if the store has
    etags, it has one instead of an mtime. The etag of a local file is its sample, if it was overwritten in place since
    it was first indexed. `ctime_ns` and `sample` are of local files, and no part of the version: the same bytes may
    have another ctime.
    """

    size: int
    mtime_ns: int
    inode: int | None = None
    etag: str | None = None
    ctime_ns: int | None = field(default=None, compare=False)
    sample: str | None = field(default=None, compare=False)

    @classmethod
    def of(cls, stat: os.stat_result) -> Fingerprint:
        """The fingerprint of a local file with this status."""
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino, ctime_ns=stat.st_ctime_ns)

    @property
    def is_local(self) -> bool:
        return self.ctime_ns is not None

    def matches(self, found: Fingerprint) -> bool:
        """True if a file whose fingerprint is `found` now is the same file; unchanged, if `renewed` agrees."""
        return (
            found.size == self.size
            and found.mtime_ns == self.mtime_ns
            and (self.inode is None or found.inode == self.inode)
            and (found.etag == self.etag or found.is_local)
        )

    def renewed(self, found: Fingerprint, read: Callable[[int, int], bytes]) -> Fingerprint:
        """The fingerprint of a local file that is `found` now, which this one `matches`: another version, with an etag,
        if its ctime and its sample differ. `read(offset, length)` reads the file.
        """
        if self.sample is None or found.ctime_ns == self.ctime_ns:
            return replace(self, inode=found.inode, ctime_ns=found.ctime_ns)
        sample = sample_of(read, self.size)
        etag = self.etag if sample == self.sample else sample
        return replace(found, etag=etag, sample=sample)

    @property
    def hashed(self) -> str:
        """The text that is hashed for ids of shards and for names in the scratch store, so it never changes."""
        text = f"{self.size}\0{self.mtime_ns}\0{self.inode}"
        return text if self.etag is None else f"{text}\0{self.etag}"


def fingerprint_at(path: str) -> Fingerprint | None:
    """The fingerprint of a local file; None if the file is missing or cannot be examined."""
    try:
        return Fingerprint.of(os.stat(path))
    except OSError:
        return None


def sample_of(read: Callable[[int, int], bytes], size: int) -> str:
    """The sample of a file of this size: a hexadecimal BLAKE2b digest of blocks that `read(offset, length)` returns."""
    digest, last = hashlib.blake2b(digest_size=16), size - _BLOCK
    if size <= (_BETWEEN + 2) * _BLOCK:
        digest.update(read(0, size))
        return digest.hexdigest()
    dice, part = Random(size), (last - 2 * _BLOCK) / _BETWEEN
    between = [_BLOCK + int((number + dice.random()) * part) for number in range(_BETWEEN)]
    for offset in (0, *between, last):
        digest.update(read(offset, _BLOCK))
    return digest.hexdigest()


# The fingerprints of a shard's files, by name.
Files = Mapping[str, Fingerprint]


def build_files(files: Files) -> dict[str, dict[str, int | str | None]]:
    """The JSON of fingerprints by name, as catalogs and dataset files have it."""
    return {
        name: {"size": f.size, "mtime_ns": f.mtime_ns, "inode": f.inode}
        | {key: value for key in ("etag", "ctime_ns", "sample") if (value := getattr(f, key)) is not None}
        for name, f in files.items()
    }


def parse_files(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, Fingerprint]:
    """Fingerprints by name, from their JSON. Raises AttributeError or TypeError if it is of another shape."""
    return {name: Fingerprint(**fields) for name, fields in stored.items()}
