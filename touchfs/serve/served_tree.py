"""The tree as it is served: by path, with links resolved, and with a version for each file."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import quote

from touchfs.core.extent import Content
from touchfs.dataset import Dataset
from touchfs.serve.on_demand import OnDemand
from touchfs.tree.by_path import TreeByPath, known_entry
from touchfs.tree.entry import Entry
from touchfs.tree.tree import Tree


class Served(NamedTuple):
    """A file or directory. `names` are the parts of its path; the root has none.

    The size is None for a directory, and for a recording that cannot be read.
    """

    names: tuple[bytes, ...]
    inode: int
    is_directory: bool
    size: int | None
    mtime_ns: int
    etag: str

    @property
    def url(self) -> str:
        """The path in a URL, from the root on. That of a directory ends with a slash."""
        path = "/" + "/".join(quote(name, safe="") for name in self.names)
        return path + "/" if self.is_directory and self.names else path

    @property
    def type(self) -> str:
        """The type of the file's content, by its name."""
        kind, encoding = mimetypes.guess_type(os.fsdecode(self.names[-1])) if self.names else (None, None)
        if kind is None or encoding is not None:
            return "application/octet-stream"
        return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind

    @property
    def modified(self) -> str:
        """The time of the last change, as HTTP has it."""
        return formatdate(self.mtime_ns // 10**9, usegmt=True)


class ServedTree:
    """The tree of `dataset` for any number of threads. A shard that is looked into is indexed first; `is_gone` tells
    meanwhile whether the client has gone away (`OnDemand.wait`).
    """

    def __init__(self, dataset: Dataset) -> None:
        self._tree = TreeByPath(dataset)
        self._shards = OnDemand(dataset)

    def close(self) -> None:
        """Begin to index no more shards."""
        self._shards.close()

    def current(self) -> Tree:
        """The tree for one request. Inode numbers hold in it only."""
        return self._tree.current()

    def find(self, tree: Tree, path: bytes, is_gone: Callable[[], bool]) -> Served:
        """Find the file or directory at a path. Raises NotFoundError, and the errors of `Tree` and `OnDemand.wait`."""
        names = tuple(filter(None, path.split(b"/")))
        self._shards.wait(names[:-1], is_gone)
        return self._served(names, tree.resolve(os.fsdecode(b"/".join(names))))

    def children(self, tree: Tree, directory: Served, is_gone: Callable[[], bool]) -> Iterator[Served]:
        """Yield the entries of a directory, in the tree's order, with all sizes that can be known."""
        self._shards.wait(directory.names, is_gone)
        above = b"/".join(directory.names)
        for name, child, _ in tree.entries(directory.inode):
            yield self._served((*directory.names, name), known_entry(tree, above, child))

    @property
    def dataset(self) -> Dataset:
        """The dataset."""
        return self._tree.dataset

    def look_into(self, is_gone: Callable[[], bool], *directory: str) -> None:
        """Wait until what a directory needs is indexed. Raises as `OnDemand.wait`."""
        self._shards.wait(tuple(map(os.fsencode, directory)), is_gone)

    def open(self, tree: Tree, file: Served) -> Content:
        """The content of a file, verified to be of the version that was indexed. Raises the errors of `Tree`."""
        return tree.content(file.inode)

    def _served(self, names: tuple[bytes, ...], entry: Entry) -> Served:
        size = None if entry.is_directory else entry.size
        etag = f'"{self._tree.version(b"/".join(names), entry)}"'
        return Served(names, entry.inode, entry.is_directory, size, entry.mtime_ns, etag)
