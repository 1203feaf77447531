"""A tree for those who name files by path, and keep no inode numbers from one call to the next.

A tree numbers what is looked up in `slices/`, `windows/`, `tokens/` and `merged/`, as a mount must. Without a mount
nobody needs these numbers for long: when there are many, a new tree takes the place of the old one.
"""

from __future__ import annotations

import hashlib
import os
import threading
from importlib.metadata import version

from touchfs.core.errors import TouchfsError
from touchfs.core.extras import DISTRIBUTION
from touchfs.dataset import Dataset
from touchfs.tree.entry import Entry
from touchfs.tree.plan_views.plans import LocalPlans
from touchfs.tree.slice_numbers import LocalNumbers
from touchfs.tree.tree import Tree

# A number takes some 800 bytes; of plans, inode numbers have 1,023.
_NUMBERS_MAX, _PLANS_MAX = 100_000, 800


class TreeByPath:
    """The tree of `dataset` for any number of threads."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        named = (f"{shard.directory}{shard.name}\0{shard.version}" for shard in dataset.listed)
        identity = "\0".join([version(DISTRIBUTION), *named])
        self._identity = hashlib.blake2b(identity.encode(errors="surrogateescape")).digest()
        self.renew_lock()
        self._renew()

    def _renew(self) -> None:
        self._plans, self._numbers = LocalPlans(), LocalNumbers()
        # Inode numbers are of this tree alone, so positions serve as ids of shards.
        self._tree = Tree(self.dataset, range(1, len(self.dataset.listed) + 1), self._plans, self._numbers)

    def renew_lock(self) -> None:
        """Have a lock that is free, in a forked child: the thread that held the old one is not there."""
        self._lock = threading.Lock()

    def current(self) -> Tree:
        """The tree for one call. Inode numbers hold in it only."""
        with self._lock:
            if self._numbers.record(_NUMBERS_MAX) is not None or self._plans.name(_PLANS_MAX) is not None:
                self._renew()
            return self._tree

    def version(self, path: bytes, entry: Entry) -> str:
        """32 hexadecimal digits that no other file has, and no other version of this one, not even in another process:
        the data and the path determine the content.
        """
        state = path + f"\0{entry.size} {entry.mtime_ns}".encode()
        return hashlib.blake2b(state, digest_size=16, key=self._identity).hexdigest()


def known_entry(tree: Tree, directory: bytes, entry: Entry) -> Entry:
    """An entry of the listing of a directory with all that is known: of a link its target, of a recording its size.

    What cannot be read is listed, too, with the size None: reading it says why.
    """
    try:
        if entry.is_link:
            return tree.resolve(os.path.normpath(os.fsdecode(os.path.join(directory, tree.link(entry.inode)))))
        return tree.entry(entry.inode) if entry.size is None and not entry.is_directory else entry
    except TouchfsError:
        return entry._replace(size=None)
