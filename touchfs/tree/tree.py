"""The tree of a dataset: lookups, listings, attributes and contents, all by inode number.

    /                         row 1 of view 0
    /shards/ /segments/       a view: its shards, in each the rows of its table (`catalog_view`)
    /by-key/                  symbolic links to all samples that have a key (`by_key`)
    /merged/                  segments merged by a plan that the path names (`merged`)

A tree keeps no data per inode. It is safe for any number of threads; one that must not block uses `Tree.nonblocking`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from touchfs.catalog.keys import Keys
from touchfs.dataset import Dataset
from touchfs.errors import ChangedError, NotFoundError, UsageError
from touchfs.extent import Content
from touchfs.indexing.catalogs import VIEWS
from touchfs.tree.by_key import NAME as BY_KEY
from touchfs.tree.by_key import ByKey
from touchfs.tree.catalog_view import CatalogView
from touchfs.tree.entry import Entry, Subtree
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.merged import FIRST_PLAN, LocalPlans, Merged, Plans
from touchfs.tree.merged import NAME as MERGED
from touchfs.tree.open_shards import NonblockingShards, OpenShards
from touchfs.view.plan import parse_plan

__all__ = ["Entry", "Tree"]

# View numbers are a part of inode numbers, so they must never change.
_NUMBERS = {name: number for number, name in enumerate((*VIEWS, BY_KEY, MERGED), 1)}


class Tree:
    """The tree of `dataset`. `shard_ids` are the ids of its shards, in the same order: from 1 on, all different.

    `plans` is the registry of plans under `merged/`, needed if several processes serve one tree. Without `list_by_key`
    a listing of `by-key/` is empty, but lookups still find every link.
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_ids: Sequence[int],
        plans: Plans | None = None,
        *,
        list_by_key: bool = True,
    ) -> None:
        shards = OpenShards(dataset, shard_ids)
        self._initialize(shards, Merged(shards, plans or LocalPlans(), _NUMBERS[MERGED]), list_by_key)

    def _initialize(self, shards: OpenShards, merged: Merged, list_by_key: bool) -> None:
        self.dataset = dataset = shards.dataset
        self._list_by_key = list_by_key
        self._shards = shards
        self._merged = merged
        self._root = Entry(ROOT, stat.S_IFDIR, 0, shards.mtime_ns)
        subtrees: dict[str, Subtree] = {name: CatalogView(shards, name, _NUMBERS[name]) for name in VIEWS}
        if isinstance(dataset.keys, Keys):
            subtrees[BY_KEY] = ByKey(shards, dataset.keys, _NUMBERS[BY_KEY], listed=list_by_key)
        subtrees[MERGED] = merged
        self._subtrees = {_NUMBERS[name]: subtree for name, subtree in subtrees.items()} | {FIRST_PLAN: merged}
        self._inodes = {name.encode(): pack(_NUMBERS[name], 0, 0) for name in sorted(subtrees)}

    @property
    def nonblocking(self) -> Tree:
        """The same tree for one thread that must not block: a call that would block raises WouldBlockError."""
        shards, tree = NonblockingShards(self._shards), Tree.__new__(Tree)
        tree._initialize(shards, self._merged.nonblocking(shards), self._list_by_key)
        return tree

    def _subtree(self, inode: int) -> Subtree:
        view, _, _ = unpack(inode)
        subtree = self._subtrees.get(min(view, FIRST_PLAN))
        if subtree is None:
            raise ChangedError("this inode is not of this mount")
        return subtree

    def entry(self, inode: int) -> Entry:
        """The entry of an inode. Raises ChangedError for one of a shard that is no longer in this dataset."""
        return self._root if inode == ROOT else self._subtree(inode).entry(inode)

    def find(self, directory: int, name: bytes, is_guest: bool = False) -> Entry | None:
        """The entry of this name in a directory, or None.

        A guest (`Plans`) can register only a limited number of plans; beyond that it raises FullError.
        """
        if is_guest and self.lookup_may_block(directory):
            return self._merged.find_plan(os.fsdecode(name), is_guest=True)
        if directory != ROOT:
            return self._subtree(directory).find(directory, name)
        inode = self._inodes.get(name)
        return None if inode is None else self.entry(inode)

    def entries(self, directory: int, after: int = 0) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, cookie)` of a directory's entries after the one with the cookie `after`; 0 lists all."""
        if directory != ROOT:
            yield from self._subtree(directory).entries(directory, after)
            return
        for cookie, (name, inode) in enumerate(self._inodes.items(), 1):
            if cookie > after:
                yield name, self.entry(inode), cookie

    def parent(self, directory: int) -> int:
        """The inode number of a directory's parent; the root is its own parent."""
        return ROOT if directory == ROOT else self._subtree(directory).parent(directory)

    def path(self, inode: int) -> str:
        """A path for error messages: of the file itself in `shards/` and `segments/`, elsewhere of its shard."""
        view, shard_id, row = unpack(inode)
        if inode == ROOT:
            return ""
        name = next((name.decode() for name, root in self._inodes.items() if unpack(root)[0] == view), MERGED)
        if not shard_id:
            return name
        shard = self._shards.get(shard_id)
        if name not in VIEWS:
            return f"shards/{shard.shard.name}"
        return f"{name}/{shard.shard.name}/{os.fsdecode(shard.tables[name].path(row))}".rstrip("/")

    def content(self, inode: int) -> Content:
        """The content of a file. Opens and verifies the shard's file behind it. Raises UsageError for a directory."""
        if inode == ROOT:
            raise UsageError("is a directory")
        return self._subtree(inode).content(inode)

    def attributes(self, inode: int) -> dict[str, str]:
        """The extended attributes of a file, without their prefix `user.touchfs.`; empty for a directory."""
        return {} if inode == ROOT else self._subtree(inode).attributes(inode)

    def link(self, inode: int) -> bytes:
        """The target of a symbolic link. Raises UsageError if it is not one."""
        if inode == ROOT:
            raise UsageError("not a symbolic link")
        return self._subtree(inode).link(inode)

    def is_cacheable(self, directory: int) -> bool:
        """True if a directory's entries never change. In `by-key/` a new shard can change the target of a name."""
        return directory != self._inodes.get(BY_KEY.encode())

    def lookup_may_block(self, directory: int) -> bool:
        """True if a lookup in a directory may wait for another process: it may register a plan."""
        return directory == self._inodes[MERGED.encode()]

    def use_plan(self, name: str) -> None:
        """Register a plan if it is new, without the limit for guests. Raises FullError."""
        self._merged.find_plan(name)

    def resolve(self, path: str) -> Entry:
        """The entry of a `/`-separated path from the root. Follows links. Raises NotFoundError."""
        entry, above = self._root, ""
        for component in filter(None, path.split("/")):
            if not entry.is_directory:
                raise NotFoundError(f"{above} is a file", path=path)
            found = self.find(entry.inode, os.fsencode(component))
            if found is None:
                if self.lookup_may_block(entry.inode):
                    raise NotFoundError(_problem_of(component), path=path)
                raise NotFoundError(f"there is no {component!r} in {above or '/'}", path=path)
            entry, above = found, f"{above}/{component}"
            if entry.is_link:
                # No link of this tree leads above the root or back to itself.
                entry = self.resolve(os.path.normpath(os.path.join(above, "..", os.fsdecode(self.link(entry.inode)))))
        return entry


def _problem_of(plan: str) -> str:
    try:
        parse_plan(plan)
    except UsageError as error:
        return error.message
    return f"there is no plan {plan!r}"
