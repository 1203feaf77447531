"""The FUSE handlers. They pass each request to the branch of the mount that its inode or handle belongs to.

The data (`data_tree`) and the control directory (`touchfs_mount.control.directory`) are the two branches, each with its
own range of numbers. Only what both have in common is here, and the root, which shows both.

The read path: `open` makes the content and caches it under the inode number, which is also the handle. `read` looks the
content up and calls `read_nowait`; if that would block, a thread reads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.iterators.store_place import StorePlace
from touchfs.names import NAME_MAX
from touchfs.tree.inode import ROOT
from touchfs.tree.tree import Tree
from touchfs_mount.control.control_files import HANDLE_TAG
from touchfs_mount.control.directory import ControlDirectory
from touchfs_mount.control.facts import DEFAULT, ControlOptions, MountFacts
from touchfs_mount.control.inodes import DIRECTORY, END, NAME
from touchfs_mount.requests.access import DEFAULT_MODES, Modes
from touchfs_mount.requests.branch import DOTS, Answer, Branch, Readable, reply_dots
from touchfs_mount.requests.data_tree import DataTree
from touchfs_mount.requests.environment import Environment, Operations
from touchfs_mount.requests.handler import Refusals, handler

XATTR_PREFIX = b"user.touchfs."
# The control directory is the last entry of the root, after any possible view.
CONTROL_COOKIE = 1 << 12


def _change(name: str) -> Any:
    """The handler of a change that no branch makes: the branch of its inode chooses the errno."""

    async def change(self: TouchOperations, inode: int, *arguments: Any) -> None:
        await self._branch(inode).change(inode)

    change.__name__ = name
    return handler(change)


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
        options: ControlOptions = DEFAULT,
    ) -> None:
        super().__init__()
        self._tree = tree
        self._facts = facts
        self._store_place = store
        self._modes = modes
        self._xattrs = xattrs
        self._control_options = options
        self.entered: Callable[[], None] | None = None
        self.refusals = Refusals(facts.errors)

    def reload(self, tree: Tree, modes: Modes) -> tuple[Tree, Modes]:
        """Replace the tree and modes; return the previous ones. Called in the zygote, for workers forked later."""
        before = self._tree, self._modes
        self._tree, self._modes = tree, modes
        return before

    def started(self, environment: Environment) -> None:
        self.running, self.alone = environment.running, environment.alone
        self.struck = environment.alone.strikes.struck
        self.offload = environment.offload
        self.counters = environment.counters
        self.entered = environment.entered
        self.opened = environment.opened
        self.numbers, self.record = environment.numbers, environment.numbers.record
        self._add_read = environment.numbers.add_read
        self._data = DataTree(self._tree, self._modes, environment.offload, environment.numbers.add_content)
        self._control = ControlDirectory(
            self._tree, self._modes, self._facts, self._store_place, self._control_options, environment.offload_control
        )
        # Looked up here, so that a read of a cached content asks nothing else.
        self._contents = self._data.contents

    def _branch(self, number: int) -> Branch:
        """The branch of an inode number or a handle."""
        return self._data if END <= number < HANDLE_TAG or number == ROOT else self._control

    def path_of(self, *arguments: Any) -> str:
        number, name = (*arguments, None)[:2]
        if not isinstance(number, int):
            return ""
        if self._branch(number) is self._control:
            return NAME.decode()
        path = self._tree.path(number)
        return f"{path}/{os.fsdecode(name)}" if isinstance(name, bytes) else path

    def ended(self) -> None:
        self._control.close()

    @handler
    def lookup(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> Answer[pyfuse3.EntryAttributes]:
        """The attributes of the entry of a name; `missing` if there is none."""
        if len(name) > NAME_MAX:  # the kernel itself rejects only names over 1,024 bytes
            raise FUSEError(errno.ENAMETOOLONG)
        if parent == ROOT and name == NAME:
            return self._control.getattr(DIRECTORY)
        return self._branch(parent).lookup(parent, name, context.uid)

    @handler
    def getattr(self, inode: int, context: pyfuse3.RequestContext) -> Answer[pyfuse3.EntryAttributes]:
        """The attributes of an inode."""
        return self._branch(inode).getattr(inode)

    @handler
    async def readlink(self, inode: int, context: pyfuse3.RequestContext) -> bytes:
        """The target of a symbolic link."""
        return await self._branch(inode).readlink(inode)

    @handler
    def opendir(self, inode: int, context: pyfuse3.RequestContext) -> int:
        """Open a directory. The handle is the inode number."""
        return inode

    @handler
    async def readdir(self, handle: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Reply the entries from the cookie `start` on, until the reply is full."""
        branch = self._branch(handle)
        if start < DOTS and not reply_dots(handle, await branch.parent(handle), start, token):
            return
        has_room = await branch.readdir(handle, max(start - DOTS, 0), token)
        if has_room and handle == ROOT and start < CONTROL_COOKIE:
            pyfuse3.readdir_reply(token, NAME, await self._control.getattr(DIRECTORY), CONTROL_COOKIE)

    @handler
    def open(self, inode: int, flags: int, context: pyfuse3.RequestContext) -> Answer[pyfuse3.FileInfo]:
        """Open a file."""
        if self.opened is not None:
            self.opened(context.pid)
        return self._branch(inode).open(inode, flags, context.uid)

    @handler
    def read(self, handle: int, offset: int, length: int) -> Any:
        """Read bytes: from the cached content if that does not block, else in a thread."""
        content = self._contents.get(handle)
        data = None if content is None else content.read_nowait(offset, length)
        if data is None:
            return self._read_later(handle, content, offset, length)
        self._add_read(len(data))
        return data

    async def _read_later(self, handle: int, content: Readable | None, offset: int, length: int) -> Any:
        branch, data = self._branch(handle), None
        if content is None:  # the file was opened in another worker, or its content is not cached any more
            content = await branch.content(handle)
            data = content.read_nowait(offset, length)
        if data is None:
            data = await branch.read(handle, content, offset, length)
        self._add_read(len(data))
        return data

    @handler
    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write to a file. Returns the number of bytes."""
        return await self._branch(handle).write(handle, offset, data)

    @handler
    def release(self, handle: int) -> Answer[None]:
        """Release a file."""
        # Of a cached content there is nothing to release.
        return None if handle in self._contents else self._branch(handle).release(handle)

    @handler
    async def flush(self, handle: int) -> None:
        """Not supported: there is nothing to write back."""
        raise FUSEError(errno.ENOSYS)  # the kernel sends no such request again

    @handler
    def releasedir(self, handle: int) -> None:
        """Nothing to release."""

    @handler
    def forget(self, inodes: Sequence[tuple[int, int]]) -> None:
        """Nothing to forget: no table of inodes exists."""

    @handler
    async def statfs(self, context: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        """The size of the dataset and the number of its samples."""
        return self._data.statfs()

    @handler
    async def getxattr(self, inode: int, name: bytes, context: pyfuse3.RequestContext) -> bytes:
        """The value of an extended attribute `user.touchfs.*`."""
        if not self._xattrs:
            raise FUSEError(errno.ENOSYS)  # the kernel sends no such request again
        if not name.startswith(b"user."):
            raise FUSEError(errno.EOPNOTSUPP)  # `ls -l` requests such a name for each file; the tree is not needed
        value = None
        if name.startswith(XATTR_PREFIX):
            value = await self._branch(inode).xattr(inode, name[len(XATTR_PREFIX) :].decode("utf-8", "replace"))
        if value is None:
            raise FUSEError(pyfuse3.ENOATTR)
        return value.encode("utf-8", "surrogateescape")

    @handler
    async def listxattr(self, inode: int, context: pyfuse3.RequestContext) -> list[bytes]:
        """The names of the extended attributes of an inode."""
        if not self._xattrs:
            raise FUSEError(errno.ENOSYS)
        return [XATTR_PREFIX + name.encode() for name in await self._branch(inode).xattrs(inode)]

    @handler
    async def mkdir(
        self, parent: int, name: bytes, mode: int, context: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        """Create a directory."""
        return await self._branch(parent).mkdir(parent, name, _requester(context))

    @handler
    async def rmdir(self, parent: int, name: bytes, context: pyfuse3.RequestContext) -> None:
        """Remove a directory."""
        await self._branch(parent).rmdir(parent, name, _requester(context))

    @handler
    async def setattr(
        self,
        inode: int,
        attributes: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        handle: int | None,
        context: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        """Change attributes."""
        return await self._branch(inode).setattr(inode, attributes, fields)

    create = _change("create")
    link = _change("link")
    mknod = _change("mknod")
    removexattr = _change("removexattr")
    rename = _change("rename")
    setxattr = _change("setxattr")
    symlink = _change("symlink")
    unlink = _change("unlink")


def _requester(context: pyfuse3.RequestContext) -> str:
    return f"{context.uid}:{context.pid}"
