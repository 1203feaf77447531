"""The tree of a dataset, shared by all filesystems of a process that show it. fsspec makes one for each thread."""

from __future__ import annotations

import os
import threading
from weakref import WeakValueDictionary

from touchfs.indexing import list_dataset
from touchfs.shard.options import Options
from touchfs.tree.by_path import TreeByPath


class SharedTree:
    """The tree of a dataset that is opened when it is used first."""

    def __init__(self, source: str, options: Options) -> None:
        self._source = source
        self._options = options
        self._opening = threading.Lock()
        self._opened: TreeByPath | None = None

    def get(self) -> TreeByPath:
        """The tree. Raises the errors of `list_dataset`."""
        if (opened := self._opened) is not None:
            return opened
        with self._opening:  # opening twice would index twice
            if self._opened is None:
                self._opened = TreeByPath(list_dataset(self._source, options=self._options))
            return self._opened

    def forget(self) -> None:
        """Open the dataset again at its next use."""
        self._opened = None

    def renew_locks(self) -> None:
        """Have locks that are free, in a forked child: the thread that held the old ones is not there."""
        self._opening = threading.Lock()
        if (opened := self._opened) is not None:
            opened.renew_lock()


_shared: WeakValueDictionary[tuple[str, Options], SharedTree] = WeakValueDictionary()
_lock = threading.Lock()


def shared_tree(source: str, options: Options) -> SharedTree:
    """The tree of a dataset that is opened with these options."""
    key = source, options
    with _lock:
        if (tree := _shared.get(key)) is None:
            tree = _shared[key] = SharedTree(source, options)
        return tree


def _renew_locks() -> None:
    global _lock
    _lock = threading.Lock()
    for tree in list(_shared.values()):
        tree.renew_locks()


os.register_at_fork(after_in_child=_renew_locks)
