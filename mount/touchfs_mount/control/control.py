"""The entries of the control directory `.touchfs/`. The text of a file is made when it is read (`control_files`).

The kernel caches entries for a second at most. Reads bypass the page cache (direct I/O), as sizes are not known before.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from touchfs.dataset import Dataset
from touchfs.errors import ChangedError, NotFoundError, StateError
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.iterators.iterators import Iterators
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.problem import SharedProblem
from touchfs.store.store import StateStore
from touchfs.tree.inode import FIXED_VIEW, ROOT, pack, unpack
from touchfs_mount.control.control_files import (
    ERRORS,
    FIXED_FILES,
    INFO,
    ITERATORS_README,
    ControlFiles,
    IteratorBackend,
)
from touchfs_mount.control.iterator_files import (
    FILES,
    README,
    ControlEntry,
    directory_inode,
    entry_of,
    file_inode,
    file_of,
)
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.daemon.worker import Reloads
from touchfs_mount.loop.loop import CELLS, FAILURES, LATE_REPLIES, LOST_RACES, REQUESTS

NAME = b".touchfs"
DIRECTORY = pack(FIXED_VIEW, 0, 2)
ITERATORS = pack(FIXED_VIEW, 0, 4)
_END_OF_FIXED = pack(FIXED_VIEW + 1, 0, 0)

ENTRY_SECONDS = 1.0
_VERSION = version("touchfs")


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of the control directory and its iterators.

    `path_prefix` is the prefix of the paths that iterators print, by default the mount point. `extra_mode` has extra
    permission bits for the files of iterators. With `fsync` each step waits for the disk. `list_by_key` is reported in
    `info`.
    """

    path_prefix: str | None = None
    extra_mode: int = 0
    fsync: bool = False
    iterators: bool = True
    list_by_key: bool = False


DEFAULT = ControlOptions()


@dataclass(frozen=True, slots=True)
class MountFacts:
    """Facts about the mount itself, and the memory that its processes share.

    `counters` has the counters of each worker; `resent` is `Shared.resent`.
    """

    path: str
    pid: int
    loop: str
    counters: list[memoryview[int]]
    reloads: Reloads
    resent: memoryview[int]
    opens: OpenTable
    errors: RecentErrors
    known: KnownIterators
    problem: SharedProblem


def is_control(inode: int) -> bool:
    """True for an inode of the control directory: itself, or anything below it."""
    return inode < _END_OF_FIXED and inode != ROOT


def is_iterators(inode: int) -> bool:
    """True for `iterators/` itself, or anything below it."""
    return inode < _END_OF_FIXED and (unpack(inode)[1] > 0 or inode in (ITERATORS, ITERATORS_README))


class Control:
    """Serves the control directory in one worker. `store` is this worker's own, or None if there are no iterators.

    Every call about iterators may block on the store; other calls do not use it.
    """

    def __init__(
        self,
        dataset: Dataset,
        facts: MountFacts,
        store: StateStore | None,
        options: ControlOptions,
        use_plan: Callable[[str], None],
    ) -> None:
        self._dataset = dataset
        self._facts = facts
        self._options = options
        prefix = facts.path if options.path_prefix is None else options.path_prefix
        self.tokens = ItemTokens(dataset)
        backend = None
        if store is not None:
            iterators = Iterators(store, dataset, prefix.rstrip("/"), facts.problem, use_plan)
            backend = IteratorBackend(iterators, Opens(store, facts.opens, facts.pid))
        self.files = ControlFiles(facts.opens, backend, self._fixed_text)
        files = {b"info": INFO, b"errors": ERRORS} | ({} if store is None else {b"iterators": ITERATORS})
        self._fixed = {DIRECTORY: files, ITERATORS: {b"README": ITERATORS_README}}

    @property
    def _iterators(self) -> Iterators:
        return self.files.backend.iterators

    def entry(self, inode: int) -> ControlEntry:
        """The entry of an inode. Raises ChangedError for one that is not, or no longer, in the control directory."""
        if unpack(inode)[1]:
            self._iterator(inode)
            return entry_of(inode, self._options.extra_mode)
        if inode == ITERATORS:
            return ControlEntry(inode, stat.S_IFDIR | 0o755 | self._options.extra_mode & 0o222)
        if inode == DIRECTORY:
            return ControlEntry(inode, stat.S_IFDIR | 0o555)
        if inode in FIXED_FILES:
            return ControlEntry(inode, stat.S_IFREG | 0o444)
        raise ChangedError("this inode is not of this mount")

    def _iterator(self, inode: int) -> int:
        """The iterator of an inode. If the store cannot be used, it is assumed to exist: its file `error` says why."""
        iterator = unpack(inode)[1]
        try:
            name = self._iterators.name_of(iterator)
        except StateError:
            return iterator
        if name is None:
            raise ChangedError("the iterator was removed")
        return iterator

    def _named(self, name: bytes | None) -> list[tuple[bytes, int]]:
        """`(name, id)` of all iterators, or of the one called `name`; of those seen before, if the store fails."""
        try:
            named = self._iterators.named(name)
        except StateError:
            known = self._facts.known.named(name)
            if not known:
                raise
            return known
        self._facts.known.add(named)
        return named

    def find(self, directory: int, name: bytes) -> ControlEntry | None:
        """The entry of this name in a directory, or None."""
        for found, inode, _ in self._entries(directory, 0, name):
            if found == name:
                return self.entry(inode)
        return None

    def entries(self, directory: int, after: int) -> list[tuple[bytes, ControlEntry, int]]:
        """As `Tree.entries`."""
        entries = []
        for name, inode, cookie in self._entries(directory, after):
            try:
                entries.append((name, self.entry(inode), cookie))
            except ChangedError:
                continue  # removed meanwhile
        return entries

    @staticmethod
    def parent(directory: int) -> int:
        """The inode number of a directory's parent."""
        return ITERATORS if unpack(directory)[1] else DIRECTORY if directory == ITERATORS else ROOT

    def _entries(self, directory: int, after: int, name: bytes | None = None) -> Iterator[tuple[bytes, int, int]]:
        """`(name, inode, cookie)` of a directory. With `name`, other iterators may be left out."""
        fixed = self._fixed.get(directory, {})
        for cookie, (found, inode) in enumerate(fixed.items(), 1):
            if cookie > after:
                yield found, inode, cookie
        if directory == ITERATORS:
            named = self._named(name)
            yield from (
                (found, directory_inode(iterator), len(fixed) + iterator)
                for found, iterator in named
                if len(fixed) + iterator > after
            )
        elif unpack(directory)[1] and not file_of(directory):
            iterator = self._iterator(directory)
            for cookie, file in enumerate(FILES, 1):
                if cookie > after:
                    yield file.encode(), file_inode(iterator, file), cookie
        elif not fixed:
            raise NotFoundError("not a directory")

    def make_iterator(self, name: bytes, requester: str) -> ControlEntry:
        """Create an iterator, and return the entry of its directory. `requester` is `uid:pid` of the caller."""
        iterator = self._iterators.create(os.fsdecode(name), requester)
        self._facts.known.add([(name, iterator)])
        return self.entry(directory_inode(iterator))

    def remove_iterator(self, name: bytes, requester: str) -> None:
        """Remove an iterator. `requester` is `uid:pid` of the caller."""
        self._iterators.remove(os.fsdecode(name), requester)
        self._facts.known.remove(name)

    def _fixed_text(self, file: str) -> bytes:
        return {"README": README.encode, "errors": self._facts.errors.text, "info": self._info}[file]()

    def _by_key_listing(self) -> str:
        if isinstance(self._dataset.keys, str):
            return "there is none"
        if self._options.list_by_key:
            return "all of them"
        source = shlex.quote(f"{os.path.abspath(self._dataset.source)}:by-key")
        return f"none, though each is found by name: mount with --list-by-key, or run `touchfs ls {source}`"

    def _info(self) -> bytes:
        dataset = self._dataset
        totals = [sum(counters[cell] for counters in self._facts.counters) for cell in range(CELLS)]
        info = {
            "touchfs": _VERSION,
            "source": os.path.abspath(dataset.source),
            **dataset.facts(),
            "by_key_listing": self._by_key_listing(),
            "mounted_at": self._facts.path,
            "pid": self._facts.pid,
            **self._facts.reloads.info(),
            "loop": self._facts.loop,
            "workers": len(self._facts.counters),
            "requests": totals[REQUESTS],
            "late_replies": totals[LATE_REPLIES],
            "lost_races": totals[LOST_RACES],
            "internal_errors": totals[FAILURES],
        }
        return json.dumps(info, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
