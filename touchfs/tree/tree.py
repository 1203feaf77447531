"""The tree of a dataset: look-ups, listings, attributes and contents, all by inode number.

    /                         row 1 of view 0
    /shards/ /segments/       a view: its shards, in each the rows of its table (`catalog_view`)
    /by-key/                  symbolic links to all samples that have a key (`by_key`)
    /merged/                  segments merged by a plan that the path names (`merged`)

Nothing is kept for an inode. Any number of threads use a tree; one that must not wait uses its `at_hand`.
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
from touchfs.tree.entry import Entry, Part
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.merged import FIRST_PLAN, Merged, OwnPlans, Plans
from touchfs.tree.merged import NAME as MERGED
from touchfs.tree.open_shards import OpenShards, ShardsAtHand
from touchfs.view.plan import parse_plan

__all__ = ["Entry", "Tree"]

# View numbers are part of inode numbers, so each part keeps its own.
_NUMBERS = {name: number for number, name in enumerate((*VIEWS, BY_KEY, MERGED), 1)}


class Tree:
    """The tree of `dataset`, whose shards have the ids `shard_ids`, in the same order: from 1 on, none given twice.

    `plans` numbers the plans under `merged/`, where several processes serve one tree. Without `list_by_key`, `by-key/`
    has entries for those only who look them up.
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
        self._make(shards, Merged(shards, plans or OwnPlans(), _NUMBERS[MERGED]), list_by_key)

    def _make(self, shards: OpenShards, merged: Merged, list_by_key: bool) -> None:
        self.dataset = dataset = shards.dataset
        self._list_by_key = list_by_key
        self._shards = shards
        self._merged = merged
        self._root = Entry(ROOT, stat.S_IFDIR, 0, shards.mtime_ns)
        parts: dict[str, Part] = {name: CatalogView(shards, name, _NUMBERS[name]) for name in VIEWS}
        if isinstance(dataset.keys, Keys):
            parts[BY_KEY] = ByKey(shards, dataset.keys, _NUMBERS[BY_KEY], listed=list_by_key)
        parts[MERGED] = merged
        self._parts = {_NUMBERS[name]: part for name, part in parts.items()} | {FIRST_PLAN: merged}
        self._inodes = {name.encode(): pack(_NUMBERS[name], 0, 0) for name in sorted(parts)}

    @property
    def at_hand(self) -> Tree:
        """The same tree for one thread that must not wait: what takes waiting raises NotAtHandError."""
        shards, tree = ShardsAtHand(self._shards), Tree.__new__(Tree)
        tree._make(shards, self._merged.at_hand(shards), self._list_by_key)
        return tree

    def _part(self, inode: int) -> Part:
        view, _, _ = unpack(inode)
        part = self._parts.get(min(view, FIRST_PLAN))
        if part is None:
            raise ChangedError("this inode is not of this mount")
        return part

    def entry(self, inode: int) -> Entry:
        """Raises ChangedError for an inode of a shard that is not in this dataset any more."""
        return self._root if inode == ROOT else self._part(inode).entry(inode)

    def find(self, directory: int, name: bytes, is_guest: bool = False) -> Entry | None:
        """The entry of this name in a directory, or None. A guest may register a part of the plans only."""
        if is_guest and self.may_wait(directory):
            return self._merged.find_plan(os.fsdecode(name), is_guest=True)
        if directory != ROOT:
            return self._part(directory).find(directory, name)
        inode = self._inodes.get(name)
        return None if inode is None else self.entry(inode)

    def entries(self, directory: int, after: int = 0) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, place)` of a directory's entries; `after` is the place of the last one seen."""
        if directory != ROOT:
            yield from self._part(directory).entries(directory, after)
            return
        for place, (name, inode) in enumerate(self._inodes.items(), 1):
            if place > after:
                yield name, self.entry(inode), place

    def parent(self, directory: int) -> int:
        """The inode number of the directory that a directory is in; of the root its own."""
        return ROOT if directory == ROOT else self._part(directory).parent(directory)

    def path(self, inode: int) -> str:
        """What an inode is about, for a person to find it: a file of a catalog, or whose shard it comes from."""
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
        return self._part(inode).content(inode)

    def attributes(self, inode: int) -> dict[str, str]:
        """The extended attributes of a file, without their prefix `user.touchfs.`; none for a directory."""
        return {} if inode == ROOT else self._part(inode).attributes(inode)

    def link(self, inode: int) -> bytes:
        """The target of a symbolic link."""
        if inode == ROOT:
            raise UsageError("is no symbolic link")
        return self._part(inode).link(inode)

    def is_lasting(self, directory: int) -> bool:
        """Whether a directory's entries stay what they are: not where another shard can change what a name means."""
        return directory != self._inodes.get(BY_KEY.encode())

    def may_wait(self, directory: int) -> bool:
        """Whether a look-up in a directory may wait for another process: one that registers a plan."""
        return directory == self._inodes[MERGED.encode()]

    def use_plan(self, name: str) -> None:
        """Register a plan, if need be, that somebody other than a guest uses. Raises FullError."""
        self._merged.find_plan(name)

    def resolve(self, path: str) -> Entry:
        """The entry of a `/`-separated path from the root, links followed. Raises NotFoundError."""
        entry, above = self._root, ""
        for component in filter(None, path.split("/")):
            if not entry.is_directory:
                raise NotFoundError(f"{above} is a file", path=path)
            found = self.find(entry.inode, os.fsencode(component))
            if found is None:
                if self.may_wait(entry.inode):
                    raise NotFoundError(_problem_of(component), path=path)
                raise NotFoundError(f"there is no {component!r} in {above or '/'}", path=path)
            entry, above = found, f"{above}/{component}"
            if entry.is_link:
                # None leads up beyond the root, nor back to itself.
                entry = self.resolve(os.path.normpath(os.path.join(above, "..", os.fsdecode(self.link(entry.inode)))))
        return entry


def _problem_of(plan: str) -> str:
    try:
        parse_plan(plan)
    except UsageError as error:
        return error.message
    return f"there is no plan {plan!r}"
