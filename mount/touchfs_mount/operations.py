"""FUSE requests to the tree and back: numbers and names in, attributes and errnos out. Nothing is decided here.

Every handler is wrapped by `_handler`: it releases the read lock (`loop`), turns our errors into errnos, and anything
else into EIO with a log line and a counter. An exception that left a handler would end pyfuse3's loop and the mount.

The read path: `open` has the tree make the content and keeps it under the inode, which is also the handle. `read` is
a look-up, then `read_nowait`, then a thread if that had to wait. As a request may come to a worker that never saw the
open (a restarted one, or another of several), a content that is not kept is made again; so nothing depends on what is
kept, a release does nothing, and the contents made first are dropped. A shard's file is opened, and verified by a stat,
on the loop: for a local file that is microseconds.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import stat
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from time import monotonic
from typing import Any, TypeVar, cast

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError
from touchfs.extent import Content
from touchfs.state.store import StateStore
from touchfs.tree.inode import ROOT
from touchfs.tree.tree import Entry, Tree
from touchfs_mount import control
from touchfs_mount.control import HANDLE_TAG, Control, MountFacts
from touchfs_mount.errnos import errno_of
from touchfs_mount.loop import FAILURES
from touchfs_mount.workers import Environment, Operations

log = logging.getLogger(__name__)

CONTENTS_KEPT = 4096
LOG_SECONDS, LOGGED_KEPT = 60.0, 1000
# What is under an inode never changes: a shard that does gets other inodes.
FOREVER_SECONDS = 3600.0
BLOCK_SIZE = 512
XATTR_PREFIX = b"user.touchfs."
# The most that readers ask for in one request, and what Python's open() buffers.
PREFERRED_READ = 1 << 17

_MODES = {stat.S_IFDIR: stat.S_IFDIR | 0o555, stat.S_IFREG: stat.S_IFREG | 0o444, stat.S_IFLNK: stat.S_IFLNK | 0o777}

# The control directory is the last entry of the root, after all the views there can be.
CONTROL_PLACE = 1 << 12

Handler = TypeVar("Handler", bound=Callable[..., Coroutine[Any, Any, Any]])


def _handler(function: Handler) -> Handler:
    @wraps(function)
    async def guarded(self: TouchOperations, *arguments: Any) -> Any:
        if self.entered is not None:
            self.entered()
        try:
            return await function(self, *arguments)
        except FUSEError:
            raise
        except TouchfsError as error:
            self.refusals.log(error)
            raise FUSEError(errno_of(error)) from error
        except Exception as error:
            self.counters[FAILURES] += 1
            log.exception("%s%r failed", function.__name__, arguments)
            raise FUSEError(errno.EIO) from error

    return cast(Handler, guarded)


def _read_only(name: str) -> Any:
    async def refuse(self: TouchOperations, *arguments: Any) -> None:
        raise FUSEError(errno.EROFS)

    refuse.__name__ = name
    return _handler(refuse)


class _Refusals:
    """Logs what readers are refused: each kind of error of each file once a minute, as one bad shard is asked often."""

    def __init__(self) -> None:
        self._logged: dict[tuple[type[TouchfsError], str | None], float] = {}

    def log(self, error: TouchfsError) -> None:
        what, now = (type(error), error.path), monotonic()
        if now - self._logged.get(what, -math.inf) < LOG_SECONDS:
            return
        if len(self._logged) >= LOGGED_KEPT:
            self._logged.clear()
        self._logged[what] = now
        log.info("%s", error)


class TouchOperations(Operations):
    """The handlers. Made once, before the fork; `started` makes what belongs to one worker."""

    enable_writeback_cache = False

    def __init__(self, tree: Tree, facts: MountFacts, store_path: str, mount: int, *, xattrs: bool = True) -> None:
        super().__init__()
        self._tree = tree
        self._facts = facts
        self._store_path = store_path
        self._mount = mount
        self._xattrs = xattrs
        self._contents: dict[int, Content] = {}
        self._owner = os.geteuid(), os.getegid()
        self._mtime_ns = tree.entry(ROOT).mtime_ns
        self.entered: Callable[[], None] | None = None
        self.refusals = _Refusals()

    def reload(self, tree: Tree) -> Tree:
        """Serve another tree from now on; returns the one before. In the zygote, so for workers yet to be forked."""
        before, self._tree = self._tree, tree
        self._mtime_ns = tree.entry(ROOT).mtime_ns
        return before

    def started(self, environment: Environment) -> None:
        self._offload = environment.offload
        self.counters = environment.counters
        self.entered = environment.entered
        self._control = Control(self._tree.dataset, self._facts, self._mount, StateStore(self._store_path))

    def _attributes(self, entry: Entry, seconds: float = FOREVER_SECONDS) -> pyfuse3.EntryAttributes:
        inode, kind, size, mtime_ns = entry
        attributes = pyfuse3.EntryAttributes()
        attributes.st_ino = inode
        attributes.st_mode = _MODES[kind]
        attributes.st_size = size
        attributes.st_blocks = -(-size // BLOCK_SIZE)
        attributes.st_blksize = PREFERRED_READ
        attributes.st_uid, attributes.st_gid = self._owner
        attributes.st_atime_ns = attributes.st_mtime_ns = attributes.st_ctime_ns = mtime_ns
        attributes.entry_timeout = attributes.attr_timeout = seconds
        return attributes

    def _missing(self, seconds: float) -> pyfuse3.EntryAttributes:
        """A name that is not there, so that the kernel remembers it: ENOENT by exception is not cached."""
        attributes = pyfuse3.EntryAttributes()
        attributes.st_ino = 0
        attributes.entry_timeout = seconds
        return attributes

    def _seconds(self, directory: int) -> float:
        """How long the kernel may remember what is, or is not, in a directory."""
        return FOREVER_SECONDS if self._tree.is_lasting(directory) else control.ENTRY_SECONDS

    @_handler
    async def lookup(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        if parent == ROOT and name == control.NAME:
            return self._attributes(control.entry(control.DIRECTORY, self._mtime_ns), control.ENTRY_SECONDS)
        if control.is_control(parent):
            found, seconds = control.find(parent, name, self._mtime_ns), control.ENTRY_SECONDS
        elif self._tree.may_wait(parent):
            found, seconds = await self._offload(self._tree.find, parent, name), FOREVER_SECONDS
        else:
            found, seconds = self._tree.find(parent, name), self._seconds(parent)
        return self._missing(seconds) if found is None else self._attributes(found, seconds)

    @_handler
    async def getattr(self, inode: int, context: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        if control.is_control(inode):
            return self._attributes(control.entry(inode, self._mtime_ns), control.ENTRY_SECONDS)
        entry = self._tree.entry(inode)
        return self._attributes(entry, control.ENTRY_SECONDS if entry.is_link else FOREVER_SECONDS)

    @_handler
    async def readlink(self, inode: int, context: pyfuse3.RequestContext) -> bytes:
        return self._tree.link(inode)

    @_handler
    async def opendir(self, inode: int, context: pyfuse3.RequestContext) -> int:
        return inode

    @_handler
    async def readdir(self, handle: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        if handle == control.DIRECTORY:
            for place, (inode, file) in enumerate(control.ENTRIES.items(), 1):
                attributes = self._attributes(control.entry(inode, self._mtime_ns), control.ENTRY_SECONDS)
                if place > start and not pyfuse3.readdir_reply(token, file.encode(), attributes, place):
                    return
            return
        seconds = self._seconds(handle)
        for name, entry, place in self._tree.entries(handle, start):
            if not pyfuse3.readdir_reply(token, name, self._attributes(entry, seconds), place):
                return
        if handle == ROOT and start < CONTROL_PLACE:
            entry = control.entry(control.DIRECTORY, self._mtime_ns)
            pyfuse3.readdir_reply(token, control.NAME, self._attributes(entry, control.ENTRY_SECONDS), CONTROL_PLACE)

    @_handler
    async def open(self, inode: int, flags: int, context: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        # O_TRUNC comes with the open (libfuse asks for it), also with O_RDONLY; the kernel then takes the size to be 0.
        if flags & (os.O_ACCMODE | os.O_TRUNC) != os.O_RDONLY:
            raise FUSEError(errno.EROFS)
        if control.is_control(inode):
            return pyfuse3.FileInfo(fh=await self._offload(self._control.open, inode), direct_io=True)
        self._prepare(inode)
        return pyfuse3.FileInfo(fh=inode, keep_cache=True)

    @_handler
    async def read(self, handle: int, offset: int, length: int) -> Any:
        content = self._contents.get(handle)
        if content is None:
            if handle & HANDLE_TAG:
                return await self._offload(self._control.read, handle, offset, length)
            content = self._prepare(handle)
        data = content.read_nowait(offset, length)
        if data is None:
            return await self._offload(content.read, offset, length)
        return data

    def _prepare(self, inode: int) -> Content:
        content = self._tree.content(inode)
        contents = self._contents
        contents[inode] = content
        if len(contents) > CONTENTS_KEPT:
            del contents[next(iter(contents))]
        return content

    @_handler
    async def release(self, handle: int) -> None:
        if handle & HANDLE_TAG:
            await self._offload(self._control.release, handle)

    @_handler
    async def flush(self, handle: int) -> None:
        raise FUSEError(errno.ENOSYS)  # the kernel does not ask again

    @_handler
    async def releasedir(self, handle: int) -> None: ...

    @_handler
    async def forget(self, inodes: Sequence[tuple[int, int]]) -> None: ...

    @_handler
    async def statfs(self, context: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        dataset = self._tree.dataset
        told = pyfuse3.StatvfsData()
        told.f_bsize = told.f_frsize = BLOCK_SIZE
        told.f_blocks = -(-dataset.size // BLOCK_SIZE)
        told.f_files = dataset.samples
        told.f_namemax = 255
        return told

    @_handler
    async def getxattr(self, inode: int, name: bytes, context: pyfuse3.RequestContext) -> bytes:
        if not self._xattrs:
            raise FUSEError(errno.ENOSYS)  # the kernel does not ask again
        if not name.startswith(b"user."):
            raise FUSEError(errno.EOPNOTSUPP)  # what `ls -l` asks for each file; told without a look at the tree
        if name.startswith(XATTR_PREFIX) and not control.is_control(inode):
            value = self._tree.attributes(inode).get(name[len(XATTR_PREFIX) :].decode("utf-8", "replace"))
            if value is not None:
                return value.encode("utf-8", "surrogateescape")
        raise FUSEError(pyfuse3.ENOATTR)

    @_handler
    async def listxattr(self, inode: int, context: pyfuse3.RequestContext) -> list[bytes]:
        if not self._xattrs:
            raise FUSEError(errno.ENOSYS)
        if control.is_control(inode):
            return []
        return [XATTR_PREFIX + name.encode() for name in self._tree.attributes(inode)]

    create = _read_only("create")
    link = _read_only("link")
    mkdir = _read_only("mkdir")
    mknod = _read_only("mknod")
    removexattr = _read_only("removexattr")
    rename = _read_only("rename")
    rmdir = _read_only("rmdir")
    setattr = _read_only("setattr")
    setxattr = _read_only("setxattr")
    symlink = _read_only("symlink")
    unlink = _read_only("unlink")
    write = _read_only("write")
