"""What the kernel must forget after a reload: entries that were added, removed or changed, and what lists them.

The kernel keeps entries for an hour, also that a name is missing, and listings and targets of links for good. To drop
one takes the lock of its directory, which a lookup holds while it waits for a worker: so a worker must never do it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, unpack
from touchfs.tree.tree import Tree
from touchfs_mount.messages import notifications


def invalidate(
    descriptor: int,
    before: Tree,
    after: Tree,
    directory: int = ROOT,
    *,
    shows_another: Callable[[int], bool] = lambda inode: False,
) -> None:
    """Invalidate what differs between the trees `before` and `after`.

    `shows_another(inode)` is true if the owner or mode of an inode has changed.

    The contents of shards are skipped, because a changed shard has new inodes. Directories whose entries the kernel
    keeps only for a moment are not listed, as they may be long.
    """
    if not (before.is_cacheable(directory) and after.is_cacheable(directory)):
        _notify(descriptor, notifications.invalidate_inode(directory))
        return
    listed, listed_before = _by_name(after, directory), _by_name(before, directory)
    for name in listed.keys() | listed_before.keys():
        entry, entry_before = listed.get(name), listed_before.get(name)
        if entry is None or entry_before is None or entry.inode != entry_before.inode or shows_another(entry.inode):
            _notify(descriptor, notifications.invalidate_entry(directory, name))
        elif entry.is_directory and not unpack(entry.inode)[1]:
            invalidate(descriptor, before, after, entry.inode, shows_another=shows_another)
        elif not entry.is_directory:  # a list of the dataset
            _notify(descriptor, notifications.invalidate_inode(entry.inode))
    if listed != listed_before or before.entry(directory) != after.entry(directory) or shows_another(directory):
        _notify(descriptor, notifications.invalidate_inode(directory))


def _by_name(tree: Tree, directory: int) -> dict[bytes, Entry]:
    return {name: entry for name, entry, _ in tree.entries(directory)}


def _notify(descriptor: int, message: bytes) -> None:
    try:
        os.write(descriptor, message)
    except OSError as error:
        if error.errno != errno.ENOENT:  # the kernel has no such entry
            raise
