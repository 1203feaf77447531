"""What is written to the FUSE descriptor without having been asked: the kernel's `FUSE_NOTIFY_*`, from <linux/fuse.h>.

A notification is a `fuse_out_header` whose `unique` is 0 and whose `error` is the notification's code, then its body.

The kernel keeps what it was told for an hour, missing names too. So when a dataset is read anew, the entries that are
other ones by now, are gone, or have come are invalidated, and the attributes of the directories that hold them. That
takes the directory's lock, which a look-up holds while it waits for a worker: never to be done by a worker.
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
    """Have all unanswered requests queued again. Raises OSError, as EINVAL where the kernel is older than 6.9."""
    _notify(descriptor, RESEND, b"")


def invalidate(
    descriptor: int,
    before: Tree,
    after: Tree,
    directory: int = ROOT,
    *,
    shows_another: Callable[[int], bool] = lambda inode: False,
) -> None:
    """Have the kernel forget what it knows of `before` that does not hold for `after`.

    `shows_another` is asked whether what an inode shows otherwise, its owner and mode, is another by now.

    What is in a shard is not looked at: a shard that has changed has other inodes. Nor what the kernel is told to
    remember for a moment only.
    """
    listed, listed_before = _listed(after, directory), _listed(before, directory)
    for name in listed.keys() | listed_before.keys():
        inode = listed.get(name)
        if inode is None or inode != listed_before.get(name) or shows_another(inode):
            body = _ENTRY.pack(directory, len(name), 0) + name + b"\0"
            _notify_if_known(descriptor, INVALIDATE_ENTRY, body)
        elif not unpack(inode)[1] and after.is_lasting(inode):
            invalidate(descriptor, before, after, inode, shows_another=shows_another)
    if before.entry(directory) != after.entry(directory) or shows_another(directory):
        _notify_if_known(descriptor, INVALIDATE_INODE, _INODE.pack(directory, -1, 0))


def _listed(tree: Tree, directory: int) -> dict[bytes, int]:
    return {name: entry.inode for name, entry, _ in tree.entries(directory)}


def _notify_if_known(descriptor: int, code: int, body: bytes) -> None:
    try:
        _notify(descriptor, code, body)
    except OSError as error:
        if error.errno != errno.ENOENT:  # which says that the kernel knows nothing of it
            raise


def _notify(descriptor: int, code: int, body: bytes) -> None:
    os.write(descriptor, _HEADER.pack(_HEADER.size + len(body), code, 0) + body)
