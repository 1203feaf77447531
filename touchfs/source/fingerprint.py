"""The fingerprint of a file of data: how versions of a file are told apart, and how that is hashed and stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identifies a version of a file among later ones of the same name: size in bytes, mtime and inode.

    `inode` is None if only a directory listing was stored. A file of another store has no inode; if the store has
    etags, it has one instead of an mtime.
    """

    size: int
    mtime_ns: int
    inode: int | None = None
    etag: str | None = None

    @classmethod
    def of(cls, stat: os.stat_result) -> Fingerprint:
        """The fingerprint of a local file with this status."""
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def matches(self, found: Fingerprint) -> bool:
        """True if a file whose fingerprint is `found` now is the same file, unchanged."""
        return (
            found.size == self.size
            and found.mtime_ns == self.mtime_ns
            and (self.inode is None or found.inode == self.inode)
            and found.etag == self.etag
        )

    @property
    def hashed(self) -> str:
        """The text that is hashed for ids of shards and for names in the scratch store, so it never changes."""
        text = f"{self.size}\0{self.mtime_ns}\0{self.inode}"
        return text if self.etag is None else f"{text}\0{self.etag}"


# The fingerprints of a shard's files, by name.
Files = Mapping[str, Fingerprint]


def build_files(files: Files) -> dict[str, dict[str, int | str | None]]:
    """The JSON of fingerprints by name, as catalogs and dataset files have it."""
    return {
        name: {"size": f.size, "mtime_ns": f.mtime_ns, "inode": f.inode} | ({} if f.etag is None else {"etag": f.etag})
        for name, f in files.items()
    }


def parse_files(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, Fingerprint]:
    """Fingerprints by name, from their JSON. Raises AttributeError or TypeError if it is of another shape."""
    return {name: Fingerprint(**fields) for name, fields in stored.items()}
