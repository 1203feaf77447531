"""The entries of the control directory `.touchfs/`: their names, inode numbers and modes.

The store knows the iterators, so a call about them may block on it; other calls do not use it.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from touchfs.core.errors import ChangedError, NotFoundError, StateError
from touchfs.iterators.iterator_files import ITERATOR_FILES, WRITABLE
from touchfs.iterators.registry import Registry
from touchfs.tree.inode import unpack
from touchfs_mount.control.inodes import (
    DIRECTORY,
    FILES,
    FIXED_FILES,
    ITERATORS,
    ITERATORS_README,
    LOG_LEVEL,
    PRIVATE,
    directory_inode,
    file_inode,
    file_of,
)
from touchfs_mount.control.known_iterators import KnownIterators

# For how long an iterator is believed to be there, as long as the kernel may cache it.
_SEEN_SECONDS = 1.0


class ControlEntry(NamedTuple):
    """An entry of the control directory. `mode` includes the type of file."""

    inode: int
    mode: int


class ControlEntries:
    """The entries, as one worker shows them. `iterators` is None if there are no iterators. `extra_mode` has extra
    permission bits for their files.
    """

    def __init__(self, iterators: Registry | None, known: KnownIterators, extra_mode: int) -> None:
        self._registry = iterators
        self._known = known
        self._extra_mode = extra_mode
        self._seen: dict[int, float] = {}  # when an iterator was last found in the store
        files = {name.encode(): inode for inode, name in FIXED_FILES.items() if inode != ITERATORS_README}
        if iterators is not None:
            files[b"iterators"] = ITERATORS
        self._fixed = {DIRECTORY: files, ITERATORS: {b"README": ITERATORS_README}}

    def entry(self, inode: int) -> ControlEntry:
        """The entry of an inode. Raises ChangedError for one that is not, or no longer, in the control directory."""
        if unpack(inode)[1]:
            self._check_iterator(inode)
            return self._entry_of_iterator(inode)
        if inode == ITERATORS:
            return ControlEntry(inode, stat.S_IFDIR | 0o755 | self._extra_mode & 0o222)
        if inode == DIRECTORY:
            return ControlEntry(inode, stat.S_IFDIR | 0o555)
        if inode in FIXED_FILES:
            mode = 0o600 if inode == LOG_LEVEL else 0o400 if inode in PRIVATE else 0o444
            return ControlEntry(inode, stat.S_IFREG | mode)
        raise ChangedError("this inode is not of this mount")

    def entry_nowait(self, inode: int) -> ControlEntry | None:
        """Like `entry`, without the store. None if the iterator has to be looked for there.

        Programs ask for the attributes of a file each time they open it.
        """
        iterator = unpack(inode)[1]
        if not iterator:
            return self.entry(inode)
        is_seen = monotonic() - self._seen.get(iterator, -math.inf) < _SEEN_SECONDS
        return self._entry_of_iterator(inode) if is_seen else None

    def find(self, directory: int, name: bytes) -> ControlEntry | None:
        """The entry of this name in a directory, or None."""
        for found, inode, _ in self._entries(directory, 0, name):
            if found == name:
                return self.entry(inode)
        return None

    def entries(self, directory: int, after: int) -> list[tuple[bytes, ControlEntry, int]]:
        """Like `Tree.entries`."""
        entries = []
        for name, inode, cookie in self._entries(directory, after):
            try:
                entries.append((name, self.entry(inode), cookie))
            except ChangedError:
                continue  # removed meanwhile
        return entries

    def make_iterator(self, name: bytes, requester: str) -> ControlEntry:
        """Create an iterator, and return the entry of its directory. `requester` is `uid:pid` of the caller."""
        iterator = self._iterators.create(os.fsdecode(name), requester)
        self._known.add([(name, iterator)])
        return self.entry(directory_inode(iterator))

    def remove_iterator(self, name: bytes, requester: str) -> None:
        """Remove an iterator. `requester` is `uid:pid` of the caller."""
        self._iterators.remove(os.fsdecode(name), requester)
        self._known.remove(name)
        self._seen.clear()

    @property
    def _iterators(self) -> Registry:
        if self._registry is None:
            raise NotFoundError("a read-only mount has no iterators")
        return self._registry

    def _check_iterator(self, inode: int) -> None:
        """Raise ChangedError if the iterator of an inode was removed. If the store cannot be used, it is assumed to
        exist: its file `error` says why.
        """
        iterator, now = unpack(inode)[1], monotonic()
        try:
            name = self._iterators.name_of(iterator)
        except StateError:
            return
        if name is None:
            raise ChangedError("the iterator was removed")
        self._seen[iterator] = now

    def _named(self, name: bytes | None) -> list[tuple[bytes, int]]:
        """`(name, id)` of all iterators, or of the one called `name`; of those seen before, if the store fails."""
        try:
            named = self._iterators.named(name)
        except StateError:
            known = self._known.named(name)
            if not known:
                raise
            return known
        self._known.add(named)
        return named

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
            self._check_iterator(directory)
            for cookie, file in enumerate(FILES, 1):
                if cookie > after:
                    yield file.encode(), file_inode(unpack(directory)[1], file), cookie
        elif not fixed:
            raise NotFoundError("not a directory")

    def _entry_of_iterator(self, inode: int) -> ControlEntry:
        """The entry of an iterator's directory or file. Only those extra bits apply that make sense: a file that cannot
        be written gets no write bit.
        """
        file = file_of(inode)
        if not file:
            return ControlEntry(inode, stat.S_IFDIR | 0o555)
        extra_mode = self._extra_mode & (0o666 if file in WRITABLE else 0o444)
        return ControlEntry(inode, stat.S_IFREG | ITERATOR_FILES[file].mode | extra_mode)
