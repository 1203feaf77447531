"""`manifests/`: lists of the whole dataset for other tools, as files (`touchfs.lists`).

The lists are opened, and made if nobody has made them, when one is first looked up: a listing shows none of their sizes
before. An inode number has a hash of the dataset in it, so a list of a changed dataset is another file. The directory
`hf` has links to the views that the tree has, because an AudioFolder takes only paths below its own directory.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from touchfs.core.errors import ChangedError, UsageError
from touchfs.core.extent import Content
from touchfs.dataset import Dataset
from touchfs.lists.content import list_content, list_size
from touchfs.lists.kinds import EXTENTS, FILES, LEFT_OUT, NAMES, is_below, lists_name
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, WouldBlockError

if TYPE_CHECKING:
    from touchfs.lists.stored import StoredLists

NAME = "manifests"
# The views that are linked, by their paths here.
_LINKS = {f"hf/{view}": view for view in ("segments", "shards", "slices")}
_FILES = sorted([*NAMES, EXTENTS, *_LINKS])
# `manifests` itself is the first.
_PATHS = ["", *sorted({path.rpartition("/")[0] for path in _FILES} - {""}), *_FILES]
# A row is the number of a path, and above it a hash of the dataset.
_NUMBER_BITS, _HASH_BITS = 8, 24


class _Opened:
    """The lists, once they are open. `lock` is held while they are opened."""

    def __init__(self) -> None:
        self.lists: StoredLists | None = None
        self.extents: Content | None = None
        self.lock = threading.Lock()


class Manifests:
    """The directory `manifests`, a `Subtree`. Its inodes have the view `number`. Paths in lists begin with `prefix`.
    `views` are the names of the tree's other directories.
    """

    def __init__(self, shards: OpenShards, views: Collection[str], prefix: str, number: int) -> None:
        self._dataset = shards.dataset
        self._mtime_ns = shards.mtime_ns
        self._prefix = prefix
        self._missing = _missing(shards.dataset, views)
        self._root = pack(number, 0, 0)
        self._opened = _Opened()
        hashed = int(lists_name(shards.dataset), 16) & (1 << _HASH_BITS) - 1
        # The inode number of which those below `manifests` are greater by the number of their path.
        self._base = self._root + (hashed << _NUMBER_BITS)

    def nonblocking(self, shards: NonblockingShards) -> Manifests:
        manifests = _NonblockingManifests.__new__(_NonblockingManifests)
        vars(manifests).update(vars(self))
        return manifests

    def _lists(self) -> StoredLists:
        from touchfs.lists.apart import open_lists_apart  # with what makes lists, which few commands and mounts do

        with self._opened.lock:
            if self._opened.lists is None:
                self._opened.lists = open_lists_apart(self._dataset)
            return self._opened.lists

    def _extents(self) -> Content:
        from touchfs.lists.apart import open_extents_apart
        from touchfs.verify.checksums import load_checksums

        with self._opened.lock:
            if self._opened.extents is None:
                self._opened.extents = open_extents_apart(self._dataset, load_checksums)
            return self._opened.extents

    def _path(self, inode: int) -> str:
        number = 0 if inode == self._root else inode - self._base
        if inode != self._root and not (0 < number < len(_PATHS) and _PATHS[number] not in self._missing):
            raise ChangedError("the dataset has changed: look its path up again")
        return _PATHS[number]

    def _inode(self, path: str) -> int:
        return self._base + _PATHS.index(path) if path else self._root

    def entry(self, inode: int) -> Entry:
        path = self._path(inode)
        if path == EXTENTS:
            return Entry(inode, stat.S_IFREG, self._extents().size, self._mtime_ns)
        if path in NAMES:
            return Entry(inode, stat.S_IFREG, list_size(self._lists(), path, self._prefix_of(path)), self._mtime_ns)
        if path in _LINKS:
            return Entry(inode, stat.S_IFLNK, len(self.link(inode)), self._mtime_ns)
        return Entry(inode, stat.S_IFDIR, 0, self._mtime_ns)

    def _prefix_of(self, path: str) -> str:
        return "" if is_below(path) else self._prefix

    def _children(self, directory: int) -> list[str]:
        above = self._path(directory)
        if above in (EXTENTS, *NAMES, *_LINKS):
            raise UsageError("not a directory")
        return [path for path in _PATHS[1:] if path.rpartition("/")[0] == above and path not in self._missing]

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        for path in self._children(directory):
            if path.rpartition("/")[2].encode() == name:
                return self.entry(self._inode(path))
        return None

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        for cookie, path in enumerate(self._children(directory), 1):
            if cookie > after:
                yield path.rpartition("/")[2].encode(), self._listed(path), cookie

    def _listed(self, path: str) -> Entry:
        """The entry of a listing, which does not make the lists: until they are open, they are of unknown size."""
        inode = self._inode(path)
        if (path in NAMES and self._opened.lists is None) or (path == EXTENTS and self._opened.extents is None):
            return Entry(inode, stat.S_IFREG, None, self._mtime_ns)
        return self.entry(inode)

    def parent(self, directory: int) -> int:
        return ROOT if directory == self._root else self._inode(self._path(directory).rpartition("/")[0])

    def path(self, inode: int) -> str:
        return NAME

    def is_cacheable(self, directory: int) -> bool:
        return True

    def content(self, inode: int) -> Content:
        path = self._path(inode)
        if path == EXTENTS:
            return self._extents()
        if path not in NAMES:
            raise UsageError("not a file")
        return list_content(self._lists(), path, self._prefix_of(path))

    def attributes(self, inode: int) -> dict[str, str]:
        self._path(inode)
        return {}

    def link(self, inode: int) -> bytes:
        path = self._path(inode)
        if path not in _LINKS:
            raise UsageError("not a symbolic link")
        return f"../../{_LINKS[path]}".encode()


def _missing(dataset: Dataset, views: Collection[str]) -> set[str]:
    """The paths that a dataset does not have: links to views that it has not, and without recordings the lists of
    these. Without pyarrow, there are no extents.
    """
    there = [*NAMES, *(path for path, view in _LINKS.items() if view in views)]
    if not (dataset.has_recordings or dataset.is_empty):
        there = [FILES, LEFT_OUT] if dataset.names_recordings else [FILES]
    with suppress(ImportError):  # where something refuses to look for it
        there += [EXTENTS] if find_spec("pyarrow") is not None else []
    return {path for path in _PATHS[1:] if not any(f"{each}/".startswith(f"{path}/") for each in there)}


class _NonblockingManifests(Manifests):
    def _lists(self) -> StoredLists:
        if self._opened.lists is None:
            raise WouldBlockError
        return self._opened.lists

    def _extents(self) -> Content:
        if self._opened.extents is None:
            raise WouldBlockError
        return self._opened.extents
