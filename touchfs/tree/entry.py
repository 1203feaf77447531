"""Directory entries."""

from __future__ import annotations

import stat
from typing import NamedTuple


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
