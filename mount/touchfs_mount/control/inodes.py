"""The inode numbers of the control directory, a file system of its own.

All are of view 0. In the inode number of an iterator's directory or file, the iterator's id takes the place of the
shard id, and the row says which of them it is. Ids are never reused, so an inode number never means another iterator.
"""

from __future__ import annotations

from touchfs.core.errors import ChangedError
from touchfs.iterators.iterator_files import ITERATOR_FILES, WRITABLE
from touchfs.tree.inode import FIXED_VIEW, ROOT, pack, unpack

DIRECTORY = ROOT
INFO = pack(FIXED_VIEW, 0, 3)
ITERATORS = pack(FIXED_VIEW, 0, 4)
ITERATORS_README = pack(FIXED_VIEW, 0, 5)
ERRORS = pack(FIXED_VIEW, 0, 6)
STATS = pack(FIXED_VIEW, 0, 7)
LOG_LEVEL = pack(FIXED_VIEW, 0, 8)
FIXED_FILES = {INFO: "info", ITERATORS_README: "README", ERRORS: "errors", STATS: "stats", LOG_LEVEL: "log-level"}
# The files that only the user who mounted and root may open, even if others are let in.
PRIVATE = frozenset({ERRORS, LOG_LEVEL})

FILES = tuple(ITERATOR_FILES)
_DIRECTORY_ROW, FIRST_ROW = 1, 2


def is_iterators(inode: int) -> bool:
    """True for `iterators/` itself, or anything below it."""
    return unpack(inode)[1] > 0 or inode in (ITERATORS, ITERATORS_README)


def directory_inode(iterator: int) -> int:
    return pack(FIXED_VIEW, iterator, _DIRECTORY_ROW)


def file_inode(iterator: int, file: str) -> int:
    return pack(FIXED_VIEW, iterator, FIRST_ROW + FILES.index(file))


def file_of(inode: int) -> str:
    """The name of an iterator's file, empty for its directory. Raises ChangedError for another inode."""
    row = unpack(inode)[2] - FIRST_ROW
    if row == _DIRECTORY_ROW - FIRST_ROW:
        return ""
    if not 0 <= row < len(FILES):
        raise ChangedError("this inode is not of this mount")
    return FILES[row]


def is_writable(inode: int) -> bool:
    return inode == LOG_LEVEL or (unpack(inode)[1] > 0 and file_of(inode) in WRITABLE)


def parent_of(directory: int) -> int:
    """The inode number of a directory's parent."""
    return ITERATORS if unpack(directory)[1] else DIRECTORY
