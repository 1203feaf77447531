"""The FUSE handlers. They translate requests into calls of the tree, and results into attributes and errnos.

The read path: `open` makes the content and caches it under the inode number, which is also the handle. `read` looks the
content up and calls `read_nowait`; if that would block, a thread reads. A request may reach a worker that never saw the
open (a restarted one, or another of several); then the content is made again. So correctness does not depend on the
cache, release does nothing, and the oldest contents are evicted. Only files of the control directory have opens of
their own (`control_files`), which are released.

The loop never blocks. It calls the non-blocking tree first, and a thread calls the tree itself if that would block: to
open a shard, to open a file of it, or to check, once a second, that the file has not changed.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.extent import Buffer
from touchfs.names import NAME_MAX
from touchfs.store.patience import Patience, with_patience
from touchfs.store.store import StateStore
from touchfs.store.writes import Piece
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree
from touchfs_mount.control import control
from touchfs_mount.control.control import ITERATORS, Control, ControlOptions, MountFacts, is_control, is_iterators
from touchfs_mount.control.control_files import HANDLE_TAG, ControlFile
from touchfs_mount.control.iterator_files import ControlEntry, is_writable
from touchfs_mount.daemon.worker import Environment, Operations
from touchfs_mount.loop.loop import FAILURES
from touchfs_mount.requests.access import DEFAULT_MODES, Modes
from touchfs_mount.requests.attributes import BLOCK_SIZE, attributes_of, control_attributes, missing
from touchfs_mount.requests.handler import Refusals, handler
from touchfs_mount.requests.strikes import ON_LOOP

log = logging.getLogger(__name__)

CONTENTS_KEPT = 4096
_OWNER_UIDS = frozenset({0, os.geteuid()})
# The entries that a thread lists at once: as many as the kernel requests, 128 KiB.
LISTING_MAX = 1024
# The data of an inode never change: a shard that changes gets new inodes.
FOREVER_SECONDS = 3600.0
XATTR_PREFIX = b"user.touchfs."
TOKEN = XATTR_PREFIX + b"token"

# `.` and `..` come first in every listing; the cookies of the tree and the control directory are counted on from them.
DOTS = 2
# The control directory is the last entry of the root, after any possible view.
CONTROL_COOKIE = 1 << 12


# Stands for the key of a request in `running` while the worker precomputes.
_PRECOMPUTING = 1

T = TypeVar("T")


class StorePlace(NamedTuple):
    """The path of a mount's state store, and the identity of the store that is expected there."""

    path: str
    identity: bytes


class Readable(Protocol):
    """The content of an open file."""

    def read(self, offset: int, length: int) -> Buffer:
        """Read bytes. May block."""
        ...

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """Read bytes, or return None if that would block."""
        ...


def _rejecting_handler(name: str) -> Any:
    """A handler that fails: EROFS in the read-only tree, EPERM in `iterators/`, which is writable in other ways."""

    async def reject(self: TouchOperations, inode: int, *arguments: Any) -> None:
        raise FUSEError(errno.EPERM if is_iterators(inode) else errno.EROFS)

    reject.__name__ = name
    return handler(reject)


class TouchOperations(Operations):
    """The handlers, as documented for `pyfuse3.Operations`, and the hooks of `Operations`.

    Created once, before the fork; `started` creates the state of one worker.
    """

    enable_writeback_cache = False

    def __init__(
        self,
        tree: Tree,
        facts: MountFacts,
        store: StorePlace | None,
        *,
        modes: Modes = DEFAULT_MODES,
        xattrs: bool = True,
        options: ControlOptions = control.DEFAULT,
    ) -> None:
        super().__init__()
        self._tree = tree
        self._facts = facts
        self._store_place = store
        self._modes = modes
        self._xattrs = xattrs
        self._control_options = options
        self._contents: dict[int, Readable] = {}
        self._mtime_ns = tree.entry(ROOT).mtime_ns
        self.entered: Callable[[], None] | None = None
        self.refusals = Refusals(facts.errors)

    def reload(self, tree: Tree, modes: Modes) -> tuple[Tree, Modes]:
        """Replace the tree and modes; return the previous ones. Called in the zygote, for workers forked later."""
        before = self._tree, self._modes
        self._tree, self._modes = tree, modes
        self._mtime_ns = tree.entry(ROOT).mtime_ns
        return before

    def started(self, environment: Environment) -> None:
        self.running, self.alone = environment.running, environment.alone
        self.struck = environment.alone.strikes.struck
        self.offload = environment.offload
        self._offload_control = environment.offload_control
        self._nonblocking_tree = self._tree.nonblocking
        self.counters = environment.counters
        self.entered = environment.entered
        # With several workers another one may get the read, and would block on our open transaction. So only a single
        # worker precomputes.
        self._precomputes = environment.entered is None
        options, place = self._control_options, self._store_place
        # `later`: it connects at first use, so that data are served even without the store.
        store = place and StateStore(place.path, fsync=options.fsync, later=True, identity=place.identity)
        self._control = Control(self._tree.dataset, self._facts, store, options, self._tree.use_plan)

    def _read_store(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        """Call a function that reads the state store, in a thread."""
        return self._offload_control("look", with_patience, Patience(), function, *arguments)

    def _change_store(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        """Call a function that writes the state store, in a thread. One `Patience` limits the total wait for a thread
        and for the store.
        """
        return self._offload_control("change", with_patience, Patience(), function, *arguments)

    async def _call_tree(self, inode: int, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of `Tree`; in a thread if it would block on the inode's shard."""
        try:
            return method(self._nonblocking_tree, *arguments)
        except WouldBlockError:
            pass  # call outside of this block, or every error of that call would have this one as its context
        return await self._in_thread(inode, method, self._tree, *arguments)

    async def _in_thread(self, inode: int, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread that may block on the inode's shard."""
        result: T = await self.offload(unpack(inode)[1], function, *arguments)
        return result

    async def _control_entry(self, inode: int) -> pyfuse3.EntryAttributes:
        """The attributes of a control inode. Only those of iterators are read from the store."""
        entry = self._control.entry
        found = await self._read_store(entry, inode) if is_iterators(inode) else entry(inode)
        return self._attributes_of_control(found)

    def begin_idle(self) -> None:
        if not self._precomputes:
            return
        try:
            self.running[ON_LOOP] = _PRECOMPUTING
            if self.alone.strikes.has(_PRECOMPUTING):
                self._precomputes = False
                return
            self._control.files.precompute()
        except Exception:  # a failure of precomputing must not affect any request
            self._precomputes = False
            self.counters[FAILURES] += 1
            log.exception("precomputing failed, and is disabled from now on")
        finally:
            self.running[ON_LOOP] = 0

    def end_idle(self) -> None:
        self._control.files.rollback()

    def path_of(self, *arguments: Any) -> str:
        number, name = (*arguments, None)[:2]
        if not isinstance(number, int):
            return ""
        if number & HANDLE_TAG or is_control(number):
            return control.NAME.decode()
        path = self._tree.path(number)
        return f"{path}/{os.fsdecode(name)}" if isinstance(name, bytes) else path

    def ended(self) -> None:
        self._control.files.close()

    def _attributes_of_control(self, entry: ControlEntry) -> pyfuse3.EntryAttributes:
        if self._modes.hides and is_iterators(entry.inode):  # they reveal keys
            entry = entry._replace(mode=entry.mode & ~0o044 | self._control_options.extra_mode & entry.mode)
        return control_attributes(entry, self._mtime_ns, control.ENTRY_SECONDS, self._modes.others)

    def _attributes(self, entry: Entry, seconds: float) -> pyfuse3.EntryAttributes:
        inode, modes = entry.inode, self._modes
        if not modes.shards:
            return attributes_of(entry, seconds, modes.root)
        if not unpack(inode)[1] and not self._tree.is_cacheable(inode):
            return attributes_of(entry, seconds, modes.of_keys())
        return attributes_of(entry, seconds, modes.of(inode))

    def _seconds(self, directory: int) -> float:
        """How long the kernel may cache the entries of a directory, and that a name is missing in it."""
        return FOREVER_SECONDS if self._tree.is_cacheable(directory) else control.ENTRY_SECONDS

    @handler
    async def lookup(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """The attributes of the entry of a name; `missing` if there is none."""
        if len(name) > NAME_MAX:  # the kernel itself rejects only names over 1,024 bytes
            raise FUSEError(errno.ENAMETOOLONG)
        if parent == ROOT and name == control.NAME:
            return await self._control_entry(control.DIRECTORY)
        if is_control(parent):
            entry = await self._read_store(self._control.find, parent, name)
            # Another mount may create a missing iterator at any time, so this is not cached.
            return missing(0) if entry is None else self._attributes_of_control(entry)
        found = await self._call_tree(parent, Tree.find, parent, name, context.uid not in _OWNER_UIDS)
        seconds = self._seconds(parent)
        return missing(seconds) if found is None else self._attributes(found, seconds)

    @handler
    async def getattr(self, inode: int, context: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        """The attributes of an inode. Those of a symbolic link may change, so they are cached for a moment only."""
        if is_control(inode):
            return await self._control_entry(inode)
        entry = await self._call_tree(inode, Tree.entry, inode)
        return self._attributes(entry, control.ENTRY_SECONDS if entry.is_link else FOREVER_SECONDS)

    @handler
    async def readlink(self, inode: int, context: pyfuse3.RequestContext) -> bytes:
        """The target of a symbolic link."""
        return await self._call_tree(inode, Tree.link, inode)

    @handler
    async def opendir(self, inode: int, context: pyfuse3.RequestContext) -> int:
        """Open a directory. The handle is the inode number."""
        return inode

    @handler
    async def readdir(self, handle: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Reply the entries from the cookie `start` on, until the reply is full."""
        if not await self._reply_dots(handle, start, token):
            return
        after = max(start - DOTS, 0)
        if is_control(handle):
            for name, control_entry, cookie in await self._read_store(self._control.entries, handle, after):
                if not pyfuse3.readdir_reply(token, name, self._attributes_of_control(control_entry), cookie + DOTS):
                    return
            return
        seconds, cookie = self._seconds(handle), after
        try:
            for name, entry, cookie in self._nonblocking_tree.entries(handle, after):
                if not pyfuse3.readdir_reply(token, name, self._attributes(entry, seconds), cookie + DOTS):
                    return
        except WouldBlockError:
            entries = await self._in_thread(handle, _list_entries, self._tree, handle, cookie)
            for name, entry, cookie in entries:
                if not pyfuse3.readdir_reply(token, name, self._attributes(entry, seconds), cookie + DOTS):
                    return
        if handle == ROOT and start < CONTROL_COOKIE:
            pyfuse3.readdir_reply(token, control.NAME, await self._control_entry(control.DIRECTORY), CONTROL_COOKIE)

    async def _reply_dots(self, directory: int, start: int, token: pyfuse3.ReaddirToken) -> bool:
        """Reply `.` and `..`; the kernel uses only their inode numbers. False if the reply is full."""
        if start >= DOTS:
            return True
        if is_control(directory):
            parent = self._control.parent(directory)
        else:
            parent = await self._call_tree(directory, Tree.parent, directory)
        dots = ((b".", directory), (b"..", parent))
        return all(
            pyfuse3.readdir_reply(token, name, self._attributes(Entry(inode, stat.S_IFDIR, 0, 0), 0), cookie)
            for cookie, (name, inode) in enumerate(dots[start:], start + 1)
        )

    @handler
    async def open(self, inode: int, flags: int, context: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        """Open a file. The handle of a data file is its inode number, that of a control file has `HANDLE_TAG`."""
        # O_TRUNC comes with the open (libfuse requests that), even with O_RDONLY; the kernel then assumes the size 0.
        # It does not change a control file: either a whole value is written, or none.
        is_read = flags & (os.O_ACCMODE | os.O_TRUNC) == os.O_RDONLY
        if not is_read and not (is_iterators(inode) and is_writable(inode)):
            raise FUSEError(errno.EACCES if is_iterators(inode) else errno.EROFS)
        if not is_control(inode):
            self._keep(inode, await self._call_tree(inode, Tree.content, inode))
            return pyfuse3.FileInfo(fh=inode, keep_cache=True)
        file = self._control.files.open(inode)
        self._keep(file.handle, file)
        if is_read:
            self._control.files.expect_read(file)
        # Its size is 0, so a program that copies with sendfile, like Python's shutil, would find it empty without an
        # error. Programs do not use sendfile for files that cannot seek.
        return pyfuse3.FileInfo(fh=file.handle, direct_io=True, nonseekable=is_read)

    @handler
    async def read(self, handle: int, offset: int, length: int) -> Any:
        """Read bytes: from the cached content if that does not block, else in a thread."""
        content = self._contents.get(handle)
        if content is None:
            if handle & HANDLE_TAG:
                content = self._control.files.opened(handle)
            else:
                content = await self._call_tree(handle, Tree.content, handle)
            self._keep(handle, content)
        data = content.read_nowait(offset, length)
        if data is not None:
            return data
        if isinstance(content, ControlFile):
            offload = self._change_store if content.is_stored else self._read_store
            return await offload(content.read, offset, length)
        return await self._in_thread(handle, content.read, offset, length)

    def _keep(self, handle: int, content: Readable) -> None:
        contents = self._contents
        contents[handle] = content
        if len(contents) > CONTENTS_KEPT:
            del contents[next(iter(contents))]

    @handler
    async def release(self, handle: int) -> None:
        """Release a control file. A data file needs no release."""
        if not handle & HANDLE_TAG:
            return
        file = self._contents.pop(handle, None)
        if not isinstance(file, ControlFile):
            file = self._control.files.opened(handle)
        remaining = file.release()
        if remaining is not None:
            await self._change_store(remaining)

    @handler
    async def flush(self, handle: int) -> None:
        """Not supported: there is nothing to write back."""
        raise FUSEError(errno.ENOSYS)  # the kernel sends no such request again

    @handler
    async def releasedir(self, handle: int) -> None:
        """Nothing to release."""

    @handler
    async def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """Nothing to forget: no table of inodes exists."""

    @handler
    async def statfs(self, context: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        """The size of the dataset and the number of its samples."""
        dataset = self._tree.dataset
        status = pyfuse3.StatvfsData()
        status.f_bsize = status.f_frsize = BLOCK_SIZE
        status.f_blocks = -(-dataset.size // BLOCK_SIZE)
        status.f_files = dataset.samples
        status.f_namemax = NAME_MAX
        return status

    @handler
    async def getxattr(self, inode: int, name: bytes, context: pyfuse3.RequestContext) -> bytes:
        """The value of an extended attribute `user.touchfs.*`."""
        if not self._xattrs:
            raise FUSEError(errno.ENOSYS)  # the kernel sends no such request again
        if not name.startswith(b"user."):
            raise FUSEError(errno.EOPNOTSUPP)  # `ls -l` requests such a name for each file; the tree is not needed
        if name.startswith(XATTR_PREFIX) and not is_control(inode):
            if name == TOKEN:
                return await self._token(inode)
            attributes = await self._call_tree(inode, Tree.attributes, inode)
            value = attributes.get(name[len(XATTR_PREFIX) :].decode("utf-8", "replace"))
            if value is not None:
                return value.encode("utf-8", "surrogateescape")
        raise FUSEError(pyfuse3.ENOATTR)

    async def _token(self, inode: int) -> bytes:
        """The item token of a file: it positions an iterator at the file's sample or segment."""
        attributes = await self._call_tree(inode, Tree.attributes, inode)
        if "ordinal" not in attributes:
            raise FUSEError(pyfuse3.ENOATTR)
        ordinal, segment = int(attributes["ordinal"]), int(attributes.get("segment", 0))
        if "plan" in attributes:
            source = f"merged/{attributes['plan']}"
        else:
            source = "segments" if "segment" in attributes else "samples"
        token: str = await self._in_thread(
            inode, self._control.tokens.token, source, attributes["shard"], ordinal, segment
        )
        return token.encode()

    @handler
    async def listxattr(self, inode: int, context: pyfuse3.RequestContext) -> list[bytes]:
        """The names of the extended attributes of an inode."""
        if not self._xattrs:
            raise FUSEError(errno.ENOSYS)
        if is_control(inode):
            return []
        attributes = await self._call_tree(inode, Tree.attributes, inode)
        return [XATTR_PREFIX + name.encode() for name in attributes] + [TOKEN] * ("ordinal" in attributes)

    @handler
    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write to a file of an iterator. Returns the number of bytes."""
        file = self._control.files.opened(handle)
        written: int = await self._change_store(file.write, Piece(offset, bytes(data), self._facts.resent[0]))
        return written

    @handler
    async def mkdir(
        self, parent: int, name: bytes, mode: int, context: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        """Create an iterator: only in `iterators/`."""
        if parent != ITERATORS:
            raise FUSEError(errno.EPERM if is_iterators(parent) else errno.EROFS)
        entry = await self._change_store(self._control.make_iterator, name, _requester(context))
        return self._attributes_of_control(entry)

    @handler
    async def rmdir(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> None:
        """Remove an iterator."""
        if parent != ITERATORS:
            raise FUSEError(errno.EPERM if is_iterators(parent) else errno.EROFS)
        await self._change_store(self._control.remove_iterator, name, _requester(context))

    @handler
    async def setattr(
        self,
        inode: int,
        attributes: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        handle: int | None,
        context: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        """Accept only changes without effect: truncating a control file, as `>` does before it writes, and setting the
        mode that it already has, as a copy into it does.
        """
        if not is_iterators(inode):
            raise FUSEError(errno.EROFS)
        entry = await self._control_entry(inode)
        changes = fields.update_uid or fields.update_gid or not (fields.update_size or fields.update_mode)
        if fields.update_size:
            changes = changes or attributes.st_size > 0 or not is_writable(inode)
        if fields.update_mode:
            changes = changes or stat.S_IMODE(attributes.st_mode) != stat.S_IMODE(entry.st_mode)
        if changes:
            raise FUSEError(errno.EPERM)
        return entry

    create = _rejecting_handler("create")
    link = _rejecting_handler("link")
    mknod = _rejecting_handler("mknod")
    removexattr = _rejecting_handler("removexattr")
    rename = _rejecting_handler("rename")
    setxattr = _rejecting_handler("setxattr")
    symlink = _rejecting_handler("symlink")
    unlink = _rejecting_handler("unlink")


def _list_entries(tree: Tree, directory: int, after: int) -> list[tuple[bytes, Entry, int]]:
    """The next entries of a directory, at most `LISTING_MAX`."""
    return list(islice(tree.entries(directory, after), LISTING_MAX))


def _requester(context: pyfuse3.RequestContext) -> str:
    return f"{context.uid}:{context.pid}"
