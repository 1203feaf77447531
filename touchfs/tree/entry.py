"""Directory entries."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.packed_bytes import PackedBytes


class Entry(NamedTuple):
    """The attributes of a file or directory, as for `stat`: size in bytes, time in ns since 1970.

    The size is None in a listing if a recording must be read to know it, and elsewhere if the recording cannot be read.
    `kind` is `stat.S_IFREG` for a file, `S_IFDIR` for a directory, `S_IFLNK` for a symbolic link.
    """

    inode: int
    kind: int
    size: int | None
    mtime_ns: int

    @property
    def is_directory(self) -> bool:
        return self.kind == stat.S_IFDIR

    @property
    def is_link(self) -> bool:
        return self.kind == stat.S_IFLNK


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """ListedFiles that follow each other in the listing of a directory, as columns: inodes are counted on from `inode`.

    `sizes` in bytes, int64[n]; all files have the same time.
    """

    inode: int
    names: PackedBytes
    sizes: NDArray[np.int64]
    mtime_ns: int
