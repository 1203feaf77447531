"""The data of a mount: the branch that shows a `Tree`, which nothing can change.

The loop never blocks. It calls the non-blocking tree first, and a thread calls the tree itself if that would block: to
open a shard, to open a file of it, or to check, once a second, that the file has not changed. The second call is made
outside of the `except` of the first one, or every error of it would have that one as its context. `lookup`, `getattr`
and `content` do this without `_call`, which would take a quarter of a microsecond.

The handle of a file is its inode number. A request may reach a worker that never saw the open (a restarted one, or
another of several); then the content is made again. So correctness does not depend on the cached contents, release does
nothing, and the oldest are evicted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, NoReturn, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError
from touchfs.extent import Buffer
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.names import NAME_MAX
from touchfs.tree.entry import Entry
from touchfs.tree.inode import unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree
from touchfs_mount.requests.access import Modes
from touchfs_mount.requests.attributes import (
    BLOCK_SIZE,
    BRIEF_SECONDS,
    FOREVER_SECONDS,
    NO_ATTRIBUTES,
    attributes_of,
    missing,
)
from touchfs_mount.requests.branch import DOTS, Readable

CONTENTS_KEPT = 4096
# The entries that a thread lists at once: as many as the kernel requests, 128 KiB.
LISTING_MAX = 1024
TOKEN = "token"
_OWNER_UIDS = frozenset({0, os.geteuid()})

T = TypeVar("T")


class DataTree:
    """A `Branch`. `offload` runs a function in a thread that may block on a shard. `contents` are those of the files
    opened last, by inode number.
    """

    def __init__(self, tree: Tree, modes: Modes, offload: Callable[..., Awaitable[Any]]) -> None:
        self._tree = tree
        self._nonblocking_tree = tree.nonblocking
        self._modes = modes
        self._offload = offload
        self._tokens = ItemTokens(tree.dataset)
        self.contents: dict[int, Readable] = {}

    async def lookup(self, parent: int, name: bytes, user: int) -> pyfuse3.EntryAttributes:
        is_guest, blocks = user not in _OWNER_UIDS, False
        try:
            found = self._nonblocking_tree.find(parent, name, is_guest)
        except WouldBlockError:
            blocks = True
        if blocks:
            found = await self._in_thread(parent, self._tree.find, parent, name, is_guest)
        seconds = self._seconds(parent)
        return missing(seconds) if found is None else self._attributes(found, seconds)

    async def getattr(self, inode: int) -> pyfuse3.EntryAttributes:
        """The attributes of an inode. Those of a symbolic link may change, so they are cached for a moment only."""
        try:
            entry: Entry | None = self._nonblocking_tree.entry(inode)
        except WouldBlockError:
            entry = None
        if entry is None:
            entry = await self._in_thread(inode, self._tree.entry, inode)
        return self._attributes(entry, BRIEF_SECONDS if entry.is_link else FOREVER_SECONDS)

    def readlink(self, inode: int) -> Awaitable[bytes]:
        return self._call(inode, Tree.link, inode)

    def parent(self, directory: int) -> Awaitable[int]:
        return self._call(directory, Tree.parent, directory)

    async def readdir(self, directory: int, after: int, token: pyfuse3.ReaddirToken) -> bool:
        seconds, cookie = self._seconds(directory), after
        try:
            for name, entry, cookie in self._nonblocking_tree.entries(directory, after):
                if not pyfuse3.readdir_reply(token, name, self._listed(entry, seconds), cookie + DOTS):
                    return False
        except WouldBlockError:
            entries = await self._in_thread(directory, _list_entries, self._tree, directory, cookie)
            for name, entry, cookie in entries:
                if not pyfuse3.readdir_reply(token, name, self._listed(entry, seconds), cookie + DOTS):
                    return False
        return True

    async def open(self, inode: int, flags: int) -> pyfuse3.FileInfo:
        if flags & (os.O_ACCMODE | os.O_TRUNC):
            raise FUSEError(errno.EROFS)
        await self.content(inode)
        return pyfuse3.FileInfo(fh=inode, keep_cache=True)

    async def content(self, handle: int) -> Readable:
        """The content of a file, made now, and cached."""
        try:
            content: Readable | None = self._nonblocking_tree.content(handle)
        except WouldBlockError:
            content = None
        if content is None:
            content = await self._in_thread(handle, self._tree.content, handle)
        contents = self.contents
        contents[handle] = content
        if len(contents) > CONTENTS_KEPT:
            del contents[next(iter(contents))]
        return content

    def read(self, handle: int, content: Readable, offset: int, length: int) -> Awaitable[Buffer]:
        return self._in_thread(handle, content.read, offset, length)

    async def release(self, handle: int) -> None: ...

    async def xattr(self, inode: int, name: str) -> str | None:
        attributes = await self._call(inode, Tree.attributes, inode)
        if name != TOKEN or "ordinal" not in attributes:
            return attributes.get(name)
        ordinal, segment = int(attributes["ordinal"]), int(attributes.get("segment", 0))
        if "plan" in attributes:
            source = f"merged/{attributes['plan']}"
        elif "id" in attributes:
            source = "interleaved"
        else:
            source = "segments" if "segment" in attributes else "samples"
        # The token positions an iterator at the file's sample or segment.
        return await self._in_thread(inode, self._tokens.token, source, attributes["shard"], ordinal, segment)

    async def xattrs(self, inode: int) -> list[str]:
        attributes = await self._call(inode, Tree.attributes, inode)
        return [*attributes, *([TOKEN] if "ordinal" in attributes else [])]

    def statfs(self) -> pyfuse3.StatvfsData:
        """The size of the dataset and the number of its samples."""
        dataset = self._tree.dataset
        status = pyfuse3.StatvfsData()
        status.f_bsize = status.f_frsize = BLOCK_SIZE
        status.f_blocks = -(-dataset.size // BLOCK_SIZE)
        status.f_files = dataset.samples
        status.f_namemax = NAME_MAX
        return status

    async def _refuse(self, number: int, *arguments: Any) -> NoReturn:
        """Refuse a change, whatever it is: the data are read-only."""
        raise FUSEError(errno.EROFS)

    write = mkdir = rmdir = setattr = change = _refuse

    async def _call(self, inode: int, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of `Tree`; in a thread if it would block on the inode's shard."""
        try:
            return method(self._nonblocking_tree, *arguments)
        except WouldBlockError:
            pass
        return await self._in_thread(inode, method, self._tree, *arguments)

    async def _in_thread(self, inode: int, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread that may block on the inode's shard; without one, on its part of the tree."""
        view, shard_id, _ = unpack(inode)
        try:
            result: T = await self._offload(shard_id or -view, function, *arguments)
        except TouchfsError as error:
            if error.path is None:  # decoders know no files
                error.at(self._tree.path(inode))
            raise
        return result

    def _listed(self, entry: Entry, seconds: float) -> pyfuse3.EntryAttributes:
        """The attributes of an entry of a listing, which reads no recordings."""
        attributes = self._attributes(entry, seconds)
        if entry.size is None:
            attributes.st_size = NO_ATTRIBUTES
        return attributes

    def _attributes(self, entry: Entry, seconds: float) -> pyfuse3.EntryAttributes:
        inode, modes = entry.inode, self._modes
        if not modes.shards:
            return attributes_of(entry, seconds, modes.root)
        if not unpack(inode)[1] and not self._tree.is_cacheable(inode):
            return attributes_of(entry, seconds, modes.of_keys())
        return attributes_of(entry, seconds, modes.of(inode))

    def _seconds(self, directory: int) -> float:
        """How long the kernel may cache the entries of a directory, and that a name is missing in it."""
        return FOREVER_SECONDS if self._tree.is_cacheable(directory) else BRIEF_SECONDS


def _list_entries(tree: Tree, directory: int, after: int) -> list[tuple[bytes, Entry, int]]:
    """The next entries of a directory, at most `LISTING_MAX`."""
    return list(islice(tree.entries(directory, after), LISTING_MAX))
