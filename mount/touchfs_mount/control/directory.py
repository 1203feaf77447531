"""The control directory of a mount, to which the link `.touchfs` leads: the handlers of its requests.

The kernel caches entries for a second at most. Reads bypass the page cache (direct I/O), as sizes are not known before.
Whatever may wait for the state store runs in a thread, with a `Patience` that limits the total wait for a thread and
for the store. Only an open file is first read without waiting.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar

import pyfuse3
import trio
from pyfuse3 import FUSEError

from touchfs.core.errors import TouchfsError
from touchfs.core.names import NAME_MAX
from touchfs.dataset.samples import DatasetSamples
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFiles
from touchfs.iterators.prefetch import Prefetch
from touchfs.iterators.store_place import StorePlace
from touchfs.store.patience import Patience, with_patience
from touchfs.store.writes import Piece
from touchfs.tree.inode import ROOT
from touchfs.tree.tree import Tree
from touchfs_mount.control.entries import ControlEntries, ControlEntry
from touchfs_mount.control.facts import ControlOptions, MountFacts
from touchfs_mount.control.file_handles import ControlFiles
from touchfs_mount.control.fixed_texts import FixedTexts
from touchfs_mount.control.handler import Handler, guarded
from touchfs_mount.control.inodes import DIRECTORY, ITERATORS, PRIVATE, is_iterators, is_writable, parent_of
from touchfs_mount.requests.access import OUR_OWNERSHIP, OWNER_UIDS, Modes
from touchfs_mount.requests.refusals import Refusals
from touchfs_mount.requests.server import Worker

T = TypeVar("T")

# Threads for calls that only look, and for calls that change: a store that is locked for writing can be read.
_THREADS = 24
_SECOND = 1.0
# `.` and `..` come first in every listing.
_DOTS = 2
# Requests for changes that nothing here makes.
_CHANGES = ("create", "link", "mknod", "removexattr", "rename", "setxattr", "symlink", "unlink")


class ControlDirectory:
    """The handlers of one process, as documented for `pyfuse3.Operations`. Without a `store` there are no iterators."""

    def __init__(
        self,
        tree: Tree,
        modes: Modes,
        facts: MountFacts,
        store: StorePlace | None,
        options: ControlOptions,
        worker: Worker,
        refusals: Refusals,
    ) -> None:
        iterators = self._iterators = None
        if store is not None:
            # `later`: it connects at first use, so that the other files are there even without the store.
            state = store.iterator_store(lambda: DatasetSamples(tree.dataset).fingerprint, fsync=options.fsync)
            prefix = facts.path if options.path_prefix is None else options.path_prefix
            prefetch = Prefetch(options.prefetch_steps) if options.prefetch_steps else None
            iterators = Iterators(state, tree.dataset, prefix.rstrip("/"), facts.problem, tree.use_plan, prefetch)
            self._iterators = OpenFiles(iterators, store.opens(state, facts.opens, facts.pid))
        self._entries = ControlEntries(iterators, facts.known, options.extra_mode)
        self._files = ControlFiles(facts.opens, self._iterators, FixedTexts(tree.dataset, facts, options))
        self._resent = facts.resent
        self._modes = modes
        self._extra_mode = options.extra_mode
        self._mtime_ns = tree.entry(ROOT).mtime_ns
        self._worker, self._refusals = worker, refusals
        self._looking, self._changing = trio.CapacityLimiter(_THREADS), trio.CapacityLimiter(_THREADS)

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by the name of the operation."""
        named: dict[str, Handler] = {
            "lookup": self._lookup,
            "getattr": self._getattr,
            "opendir": self._opendir,
            "readdir": self._readdir,
            "open": self._open,
            "read": self._read,
            "write": self._write,
            "release": self._release,
            "flush": self._flush,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
            "setattr": self._setattr,
            "statfs": self._statfs,
            **dict.fromkeys(_CHANGES, self._change),
        }
        return guarded(named, self._worker, self._refusals)

    async def _lookup(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        if len(name) > NAME_MAX:
            raise FUSEError(errno.ENAMETOOLONG)
        entry = await self._look(self._entries.find, parent, name)
        if entry is None:  # another mount may create a missing iterator at any time, so this is not cached
            raise FUSEError(errno.ENOENT)
        return self._attributes(entry)

    async def _getattr(self, inode: int, context: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """The attributes of an inode. Only those of iterators are read from the store."""
        entry = self._entries.entry_nowait(inode)
        if entry is None:
            entry = await self._look(self._entries.entry, inode)
        return self._attributes(entry)

    async def _opendir(self, inode: int, context: pyfuse3.RequestContext) -> int:
        return inode

    async def _readdir(self, directory: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        dots = ((b".", directory), (b"..", parent_of(directory)))
        for cookie, (name, inode) in list(enumerate(dots, 1))[start:]:
            if not pyfuse3.readdir_reply(token, name, self._attributes(ControlEntry(inode, stat.S_IFDIR)), cookie):
                return
        for name, entry, cookie in await self._look(self._entries.entries, directory, max(start - _DOTS, 0)):
            if not pyfuse3.readdir_reply(token, name, self._attributes(entry), cookie + _DOTS):
                return

    async def _open(self, inode: int, flags: int, context: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        if inode in PRIVATE and context.uid not in OWNER_UIDS:  # whether or not the kernel looks at modes
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

    async def _read(self, handle: int, offset: int, length: int) -> bytes:
        file = self._files.file(handle)
        data = file.read_nowait(offset, length)
        if data is None:
            in_thread = self._change_in_thread if file.is_stored else self._look
            data = await in_thread(file.read, offset, length)
        self._worker.numbers.add_read(len(data))
        return data

    async def _write(self, handle: int, offset: int, data: bytes) -> int:
        piece = Piece(offset, bytes(data), self._resent[0])
        return await self._change_in_thread(self._files.file(handle).write, piece)

    async def _release(self, handle: int) -> None:
        remaining = self._files.release(handle)
        if remaining is not None:
            await self._change_in_thread(remaining)

    async def _flush(self, handle: int) -> None:
        raise FUSEError(errno.ENOSYS)  # the kernel sends no such request again

    async def _mkdir(
        self, parent: int, name: bytes, mode: int, context: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        """Create an iterator: only in `iterators/`."""
        if parent != ITERATORS:
            raise _refusal(parent)
        return self._attributes(
            await self._change_in_thread(self._entries.make_iterator, name, f"{context.uid}:{context.pid}")
        )

    async def _rmdir(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> None:
        if parent != ITERATORS:
            raise _refusal(parent)
        await self._change_in_thread(self._entries.remove_iterator, name, f"{context.uid}:{context.pid}")

    async def _setattr(
        self,
        inode: int,
        attributes: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        handle: int | None,
        context: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        """Accept only changes without effect: truncating a file, as `>` does before it writes, and setting the mode
        that it already has, as a copy into it does.
        """
        if not (is_iterators(inode) or is_writable(inode)):
            raise FUSEError(errno.EROFS)
        current = await self._getattr(inode, context)
        changes = fields.update_uid or fields.update_gid or not (fields.update_size or fields.update_mode)
        if fields.update_size:
            changes = changes or attributes.st_size > 0 or not is_writable(inode)
        if fields.update_mode:
            changes = changes or stat.S_IMODE(attributes.st_mode) != stat.S_IMODE(current.st_mode)
        if changes:
            raise FUSEError(errno.EPERM)
        return current

    async def _statfs(self, context: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        status = pyfuse3.StatvfsData()
        status.f_namemax = NAME_MAX
        return status

    async def _change(self, inode: int, *arguments: Any) -> None:
        raise _refusal(inode)

    def close(self) -> None:
        """Close the store, before this process exits by itself."""
        if self._iterators is not None:
            self._iterators.close()

    def _attributes(self, entry: ControlEntry) -> pyfuse3.EntryAttributes:
        mode = entry.mode
        if self._modes.hides and is_iterators(entry.inode):  # they reveal keys
            mode = mode & ~0o044 | self._extra_mode & mode
        ownership = OUR_OWNERSHIP if entry.inode in PRIVATE else self._modes.others
        if entry.inode == DIRECTORY:  # a user who may not enter the mount may not enter this
            ownership = self._modes.root
            mode &= ownership.modes[stat.S_IFDIR]
        attributes = pyfuse3.EntryAttributes()
        attributes.st_ino, attributes.st_mode, attributes.st_size = entry.inode, mode, 0
        attributes.st_uid, attributes.st_gid = ownership.user, ownership.group
        attributes.st_atime_ns = attributes.st_mtime_ns = attributes.st_ctime_ns = self._mtime_ns
        attributes.entry_timeout = attributes.attr_timeout = _SECOND
        return attributes

    async def _look(self, function: Callable[..., T], *arguments: Any) -> T:
        return await _in_thread(self._looking, function, *arguments)

    async def _change_in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await _in_thread(self._changing, function, *arguments)


async def _in_thread(limiter: trio.CapacityLimiter, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function that may wait for the state store. Once it has begun it has no time-out: a step may happen."""
    try:
        result: T = await trio.to_thread.run_sync(with_patience, Patience(), function, *arguments, limiter=limiter)
    except TouchfsError as error:
        raise error.at(".touchfs") from None
    return result


def _refusal(inode: int) -> FUSEError:
    """EPERM in `iterators/`, which is writable in other ways."""
    return FUSEError(errno.EPERM if is_iterators(inode) else errno.EROFS)
