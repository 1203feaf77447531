"""Entries as pyfuse3 attributes, with the times for which the kernel may cache them."""

from __future__ import annotations

import stat

import pyfuse3

from touchfs.tree.entry import Entry
from touchfs_mount.control.entries import ControlEntry
from touchfs_mount.requests.access import Ownership

BLOCK_SIZE = 512
# The largest read request of the kernel. As st_blksize it is also the buffer size of Python's open().
PREFERRED_READ = 1 << 17
# The kernel caches what never changes for an hour, and what may change for a second.
FOREVER_SECONDS, BRIEF_SECONDS = 3600.0, 1.0
# As the size in an entry of a listing: the kernel takes the name and the type but no attributes (since Linux 5.5), and
# looks the name up when somebody needs them. A size of 0, cached for no time, would do for `stat`; but it would cut a
# file that another program has mapped.
NO_ATTRIBUTES = -1


def attributes_of(entry: Entry, seconds: float, ownership: Ownership) -> pyfuse3.EntryAttributes:
    """The attributes of an entry of the tree. The kernel may cache them for `seconds`.

    A file whose size cannot be found out has the size 0, and nothing of it is cached.
    """
    inode, kind, size, mtime_ns = entry
    attributes = pyfuse3.EntryAttributes()
    attributes.st_ino = inode
    attributes.st_mode = ownership.modes[kind]
    if size is None:
        size = seconds = 0
    attributes.st_size = size
    attributes.st_blocks = -(-size // BLOCK_SIZE)
    attributes.st_blksize = PREFERRED_READ
    attributes.st_uid, attributes.st_gid = ownership.user, ownership.group
    attributes.st_atime_ns = attributes.st_mtime_ns = attributes.st_ctime_ns = mtime_ns
    attributes.entry_timeout = attributes.attr_timeout = seconds
    return attributes


def control_attributes(entry: ControlEntry, mtime_ns: int, ownership: Ownership) -> pyfuse3.EntryAttributes:
    """The attributes of an entry of the control directory. Its size is 0. The kernel may cache them for a second."""
    attributes = attributes_of(Entry(entry.inode, stat.S_IFMT(entry.mode), 0, mtime_ns), BRIEF_SECONDS, ownership)
    attributes.st_mode = entry.mode
    return attributes


def missing(seconds: float) -> pyfuse3.EntryAttributes:
    """The reply for a missing name, which the kernel may cache for `seconds`. An ENOENT error would not be cached."""
    attributes = pyfuse3.EntryAttributes()
    attributes.st_ino = 0
    attributes.entry_timeout = seconds
    return attributes
