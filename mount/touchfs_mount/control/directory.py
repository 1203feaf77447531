"""The control directory `.touchfs/` of a mount: the branch that shows its entries and its open files.

The kernel caches entries for a second at most. Reads bypass the page cache (direct I/O), as sizes are not known before.
Whatever may wait for the state store runs in a thread, with a `Patience` that limits the total wait for a thread and
for the store. Only an open file is first read without waiting.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.dataset.samples import DatasetSamples
from touchfs.errors import TouchfsError
from touchfs.extent import Buffer
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFiles
from touchfs.iterators.prefetch import Prefetch
from touchfs.iterators.store_place import StorePlace
from touchfs.store.patience import Patience, with_patience
from touchfs.store.writes import Piece
from touchfs.tree.inode import ROOT
from touchfs.tree.tree import Tree
from touchfs_mount.control.control_files import ControlFile, ControlFiles
from touchfs_mount.control.entries import ControlEntries, ControlEntry
from touchfs_mount.control.facts import ControlOptions, MountFacts
from touchfs_mount.control.fixed_texts import FixedTexts
from touchfs_mount.control.inodes import ITERATORS, PRIVATE, is_iterators, is_writable, parent_of
from touchfs_mount.requests.access import OUR_OWNERSHIP, OWNER_UIDS, Modes
from touchfs_mount.requests.attributes import control_attributes, missing
from touchfs_mount.requests.branch import DOTS, Readable

T = TypeVar("T")


class ControlDirectory:
    """A `Branch`. `offload` runs a function in a thread that may block on the store; its first argument is "look" or
    "change". Without a `store` there are no iterators.
    """

    def __init__(
        self,
        tree: Tree,
        modes: Modes,
        facts: MountFacts,
        store: StorePlace | None,
        options: ControlOptions,
        offload: Callable[..., Awaitable[Any]],
    ) -> None:
        iterators = self._iterators = None
        if store is not None:
            # `later`: it connects at first use, so that data are served even without the store.
            state = store.iterator_store(lambda: DatasetSamples(tree.dataset).fingerprint, fsync=options.fsync)
            prefix = facts.path if options.path_prefix is None else options.path_prefix
            prefetch = Prefetch(options.prefetch_steps) if options.prefetch_steps else None
            iterators = Iterators(state, tree.dataset, prefix.rstrip("/"), facts.problem, tree.use_plan, prefetch)
            self._iterators = OpenFiles(iterators, store.opens(state, facts.opens, facts.pid))
        self._entries = ControlEntries(iterators, facts.known, options.extra_mode)
        self._files = ControlFiles(facts.opens, self._iterators, FixedTexts(tree.dataset, facts, options))
        self._offload = offload
        self._resent = facts.resent
        self._modes = modes
        self._extra_mode = options.extra_mode
        self._mtime_ns = tree.entry(ROOT).mtime_ns

    async def lookup(self, parent: int, name: bytes, user: int) -> pyfuse3.EntryAttributes:
        entry = await self._in_thread("look", self._entries.find, parent, name)
        # Another mount may create a missing iterator at any time, so this is not cached.
        return missing(0) if entry is None else self._attributes_of(entry)

    async def getattr(self, inode: int) -> pyfuse3.EntryAttributes:
        """The attributes of an inode. Only those of iterators are read from the store."""
        entry = self._entries.entry_nowait(inode)
        if entry is None:
            entry = await self._in_thread("look", self._entries.entry, inode)
        return self._attributes_of(entry)

    async def readlink(self, inode: int) -> NoReturn:
        raise FUSEError(errno.EINVAL)  # there are no links

    async def parent(self, directory: int) -> int:
        return parent_of(directory)

    async def readdir(self, directory: int, after: int, token: pyfuse3.ReaddirToken) -> bool:
        entries = await self._in_thread("look", self._entries.entries, directory, after)
        return all(
            pyfuse3.readdir_reply(token, name, self._attributes_of(entry), cookie + DOTS)
            for name, entry, cookie in entries
        )

    async def open(self, inode: int, flags: int, user: int) -> pyfuse3.FileInfo:
        if inode in PRIVATE and user not in OWNER_UIDS:  # whether or not the kernel looks at modes
            raise FUSEError(errno.EACCES)
        # O_TRUNC comes with the open (libfuse requests that), even with O_RDONLY; the kernel then assumes the size 0.
        # It does not change a control file: either a whole value is written, or none.
        is_read = flags & (os.O_ACCMODE | os.O_TRUNC) == os.O_RDONLY
        if not is_read and not is_writable(inode):
            raise FUSEError(errno.EACCES if is_iterators(inode) else errno.EROFS)
        handle, _ = self._files.open(inode)
        # Its size is 0, so a program that copies with sendfile, like Python's shutil, would find it empty without an
        # error. Programs do not use sendfile for files that cannot seek.
        return pyfuse3.FileInfo(fh=handle, direct_io=True, nonseekable=is_read)

    async def content(self, handle: int) -> ControlFile:
        return self._files.file(handle)

    def read(self, handle: int, content: Readable, offset: int, length: int) -> Awaitable[Buffer]:
        file = self._files.file(handle)
        return self._in_thread("change" if file.is_stored else "look", file.read, offset, length)

    def write(self, handle: int, offset: int, data: bytes) -> Awaitable[int]:
        piece = Piece(offset, bytes(data), self._resent[0])
        return self._in_thread("change", self._files.file(handle).write, piece)

    async def release(self, handle: int) -> None:
        remaining = self._files.release(handle)
        if remaining is not None:
            await self._in_thread("change", remaining)

    async def xattr(self, inode: int, name: str) -> None: ...

    async def xattrs(self, inode: int) -> list[str]:
        return []

    async def mkdir(self, parent: int, name: bytes, requester: str) -> pyfuse3.EntryAttributes:
        """Create an iterator: only in `iterators/`."""
        if parent != ITERATORS:
            raise _refusal(parent)
        return self._attributes_of(await self._in_thread("change", self._entries.make_iterator, name, requester))

    async def rmdir(self, parent: int, name: bytes, requester: str) -> None:
        """Remove an iterator."""
        if parent != ITERATORS:
            raise _refusal(parent)
        await self._in_thread("change", self._entries.remove_iterator, name, requester)

    async def setattr(
        self, inode: int, attributes: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields
    ) -> pyfuse3.EntryAttributes:
        """Accept only changes without effect: truncating a file, as `>` does before it writes, and setting the mode
        that it already has, as a copy into it does.
        """
        if not (is_iterators(inode) or is_writable(inode)):
            raise FUSEError(errno.EROFS)
        current = await self.getattr(inode)
        changes = fields.update_uid or fields.update_gid or not (fields.update_size or fields.update_mode)
        if fields.update_size:
            changes = changes or attributes.st_size > 0 or not is_writable(inode)
        if fields.update_mode:
            changes = changes or stat.S_IMODE(attributes.st_mode) != stat.S_IMODE(current.st_mode)
        if changes:
            raise FUSEError(errno.EPERM)
        return current

    async def change(self, inode: int) -> NoReturn:
        raise _refusal(inode)

    def close(self) -> None:
        """Close the store, before this worker exits by itself."""
        if self._iterators is not None:
            self._iterators.close()

    def _attributes_of(self, entry: ControlEntry) -> pyfuse3.EntryAttributes:
        if self._modes.hides and is_iterators(entry.inode):  # they reveal keys
            entry = entry._replace(mode=entry.mode & ~0o044 | self._extra_mode & entry.mode)
        ownership = OUR_OWNERSHIP if entry.inode in PRIVATE else self._modes.others
        return control_attributes(entry, self._mtime_ns, ownership)

    async def _in_thread(self, share: str, function: Callable[..., T], *arguments: Any) -> T:
        try:
            result: T = await self._offload(share, with_patience, Patience(), function, *arguments)
        except TouchfsError as error:
            raise error.at(".touchfs") from None
        return result


def _refusal(inode: int) -> FUSEError:
    """EPERM in `iterators/`, which is writable in other ways."""
    return FUSEError(errno.EPERM if is_iterators(inode) else errno.EROFS)
