"""The tree of a dataset: lookups, listings, attributes and contents, all by inode number.

    /                         row 1 of view 0
    /shards/ /segments/       a view: its shards, in each the rows of its table (`catalog_view`)
    /by-key/                  symbolic links to all samples that have a key (`by_key`)
    /merged/                  segments merged by a plan that the path names (`merged`)
    /slices/                  spans of recordings that the path names, and whole recordings as WAV (`slices`)
    /manifests/               lists of the dataset for other tools (`manifests`)

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
from touchfs.tree.manifests import NAME as MANIFESTS
from touchfs.tree.manifests import Manifests
from touchfs.tree.merged import FIRST_PLAN, LocalPlans, Merged, Plans
from touchfs.tree.merged import NAME as MERGED
from touchfs.tree.open_shards import NonblockingShards, OpenShards
from touchfs.tree.slice_numbers import LocalNumbers, Numbers
from touchfs.tree.slices import NAME as SLICES
from touchfs.tree.slices import WHOLE, Slices
from touchfs.view.plan import parse_plan
from touchfs.view.slice_span import parse_span

__all__ = ["Entry", "Tree"]

# View numbers are a part of inode numbers, so they must never change.
_NUMBERS = {name: number for number, name in enumerate((*VIEWS, BY_KEY, MERGED, SLICES, MANIFESTS, WHOLE), 1)}


class Tree:
    """The tree of `dataset`. `shard_ids` are the ids of its shards, in the same order: from 1 on, all different.

    `plans` and `numbers` are the registries of plans under `merged/` and of what is looked up in `slices/`, needed if
    several processes serve one tree. Without `list_by_key` a listing of `by-key/` is empty, but lookups still find
    every link. The lists in `manifests/` name files by paths that begin with the directory `prefix`; by default they
    are relative to the root.
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_ids: Sequence[int],
        plans: Plans | None = None,
        numbers: Numbers | None = None,
        *,
        list_by_key: bool = True,
        prefix: str = "",
    ) -> None:
        shards = OpenShards(dataset, shard_ids)
        merged = Merged(shards, plans or LocalPlans(), _NUMBERS[MERGED])
        slices = Slices(shards, numbers or LocalNumbers(), _NUMBERS[SLICES], _NUMBERS[WHOLE])
        manifests = Manifests(shards, os.path.join(prefix, ""), _NUMBERS[MANIFESTS])
        self._initialize(shards, merged, slices, manifests, list_by_key)

    def _initialize(
        self, shards: OpenShards, merged: Merged, slices: Slices, manifests: Manifests, list_by_key: bool
    ) -> None:
        self.dataset = dataset = shards.dataset
        self._list_by_key = list_by_key
        self._manifests = manifests
        self._shards = shards
        self._merged = merged
        self._slices = slices
        self._root = Entry(ROOT, stat.S_IFDIR, 0, shards.mtime_ns)
        subtrees: dict[str, Subtree] = {name: CatalogView(shards, name, _NUMBERS[name]) for name in VIEWS}
        if isinstance(dataset.keys, Keys):
            subtrees[BY_KEY] = ByKey(shards, dataset.keys, _NUMBERS[BY_KEY], listed=list_by_key)
        subtrees[MERGED] = merged
        if slices.exists:
            subtrees[SLICES] = slices
        subtrees[MANIFESTS] = manifests
        self._subtrees = {_NUMBERS[name]: subtree for name, subtree in subtrees.items()} | {FIRST_PLAN: merged}
        if slices.exists:
            self._subtrees[_NUMBERS[WHOLE]] = slices
        self._inodes = {name.encode(): pack(_NUMBERS[name], 0, 0) for name in sorted(subtrees)}

    @property
    def nonblocking(self) -> Tree:
        """The same tree for one thread that must not block: a call that would block raises WouldBlockError."""
        shards, tree = NonblockingShards(self._shards), Tree.__new__(Tree)
        merged, slices = self._merged.nonblocking(shards), self._slices.nonblocking(shards)
        tree._initialize(shards, merged, slices, self._manifests.nonblocking(), self._list_by_key)
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

        A guest (`Plans`, `Numbers`) can register only a limited number of plans and slices; beyond that it raises
        FullError.
        """
        if is_guest and directory == self._inodes[MERGED.encode()]:
            return self._merged.find_plan(os.fsdecode(name), is_guest=True)
        if is_guest and unpack(directory)[0] == _NUMBERS[SLICES]:
            return self._slices.find(directory, name, is_guest=True)
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
        """A path for error messages: of the file in `shards/`, `segments/` and `slices/`, elsewhere of its shard."""
        view, shard_id, row = unpack(inode)
        if inode == ROOT:
            return ""
        if self._subtrees.get(view) is self._slices:
            return self._slices.path(inode)
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
        """True if a directory's entries never change. In `by-key/` a new shard can change the target of a name, and in
        `manifests/` each list; below spans no listing tells of new shards.
        """
        is_changed = unpack(directory)[0] in (_NUMBERS[BY_KEY], _NUMBERS[MANIFESTS])
        return not is_changed and not self._slices.is_span(directory)

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
                problem = self._problem_of(entry.inode, component)
                raise NotFoundError(problem or f"there is no {component!r} in {above or '/'}", path=path)
            entry, above = found, f"{above}/{component}"
            if entry.is_link:
                # No link of this tree leads above the root or back to itself.
                entry = self.resolve(os.path.normpath(os.path.join(above, "..", os.fsdecode(self.link(entry.inode)))))
        return entry

    def _problem_of(self, directory: int, name: str) -> str:
        """The reason why a name is none of a plan or a span, in the directory of either; else ""."""
        parsers = {self._inodes[MERGED.encode()]: parse_plan, self._inodes.get(SLICES.encode()): parse_span}
        try:
            if (parse := parsers.get(directory)) is not None:
                parse(name)
        except UsageError as error:
            return error.message
        return ""
