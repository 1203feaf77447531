"""Notifications to the kernel, unsolicited messages on the FUSE descriptor: `FUSE_NOTIFY_*` of <linux/fuse.h>.

A notification is a `fuse_out_header` with `unique` 0 and the notification's code in `error`, followed by its body.

The kernel caches entries for an hour, and also that a name is missing. So a reload invalidates the entries that were
added, removed or changed, and the attributes of the directories that contain them. That takes the directory's lock,
which a lookup holds while it waits for a worker: so a worker must never do it.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from touchfs.tree.inode import ROOT, unpack

if TYPE_CHECKING:
    from touchfs.tree.tree import Tree

_HEADER = struct.Struct("=IiQ")  # u32 len, s32 error, u64 unique
_INODE = struct.Struct("=Qqq")  # u64 ino, s64 off (negative: attributes only), s64 len
_ENTRY = struct.Struct("=QII")  # u64 parent, u32 namelen, u32 flags; the name and a zero follow
INVALIDATE_INODE, INVALIDATE_ENTRY, RESEND = 2, 3, 7


def resend(descriptor: int) -> None:
    """Make the kernel queue all unanswered requests again. Raises OSError: EINVAL if the kernel is older than 6.9."""
    _notify(descriptor, RESEND, b"")


def invalidate(
    descriptor: int,
    before: Tree,
    after: Tree,
    directory: int = ROOT,
    *,
    shows_another: Callable[[int], bool] = lambda inode: False,
) -> None:
    """Invalidate the kernel's cached entries that differ between the trees `before` and `after`.

    `shows_another(inode)` is true if the owner or mode of an inode has changed.

    The contents of shards are skipped, because a changed shard has new inodes; so are directories whose entries the
    kernel caches only for a moment.
    """
    listed, listed_before = _inodes_by_name(after, directory), _inodes_by_name(before, directory)
    for name in listed.keys() | listed_before.keys():
        inode = listed.get(name)
        if inode is None or inode != listed_before.get(name) or shows_another(inode):
            body = _ENTRY.pack(directory, len(name), 0) + name + b"\0"
            _notify_if_known(descriptor, INVALIDATE_ENTRY, body)
        elif not unpack(inode)[1] and after.is_cacheable(inode):
            invalidate(descriptor, before, after, inode, shows_another=shows_another)
    if before.entry(directory) != after.entry(directory) or shows_another(directory):
        _notify_if_known(descriptor, INVALIDATE_INODE, _INODE.pack(directory, -1, 0))


def _inodes_by_name(tree: Tree, directory: int) -> dict[bytes, int]:
    return {name: entry.inode for name, entry, _ in tree.entries(directory)}


def _notify_if_known(descriptor: int, code: int, body: bytes) -> None:
    try:
        _notify(descriptor, code, body)
    except OSError as error:
        if error.errno != errno.ENOENT:  # the kernel has no such entry
            raise


def _notify(descriptor: int, code: int, body: bytes) -> None:
    os.write(descriptor, _HEADER.pack(_HEADER.size + len(body), code, 0) + body)
