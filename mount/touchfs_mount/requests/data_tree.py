"""The data of a mount: the branch that shows a `Tree`, which nothing can change.

The loop never blocks. It calls the non-blocking tree first, and a thread calls the tree itself if that would block: to
open a shard, to open a file of it, or to check, once a second, that the file has not changed. The second call is made
outside of the `except` of the first one, or every error of it would have that one as its context. `lookup` and `open`
are no coroutines unless they need a thread, and call the tree without `_call`: this saves them half a microsecond.

The handle of a file is its inode number. A request may reach a worker that never saw the open (a restarted one, or
another of several); then the content is made again. So correctness does not depend on the cached contents, release does
nothing, and the oldest are evicted.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn, TypeVar

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError
from touchfs.extent import Buffer
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.names import NAME_MAX
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROW_BITS, SHARD_IDS_MAX, unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree
from touchfs_mount.requests.access import OWNER_UIDS, Modes, Ownership
from touchfs_mount.requests.attributes import (
    BLOCK_SIZE,
    BRIEF_SECONDS,
    FOREVER_SECONDS,
    NO_ATTRIBUTES,
    attributes_of,
    missing,
)
from touchfs_mount.requests.branch import DOTS, Answer, Readable

CONTENTS_KEPT, DIRECTORIES_KEPT, BLANKS_KEPT = 4096, 4096, 256
# The entries that a thread lists at once: as many as the kernel requests, 128 KiB.
LISTING_MAX = 1024
TOKEN = "token"
_WRITING = os.O_ACCMODE | os.O_TRUNC

T = TypeVar("T")


class DataTree:
    """A `Branch`. `offload` runs a function in a thread that may block on a shard. `contents` are those of the files
    opened last, by inode number. `made` is called for each content that is made.
    """

    def __init__(
        self, tree: Tree, modes: Modes, offload: Callable[..., Awaitable[Any]], made: Callable[[], None]
    ) -> None:
        self._tree = tree
        self._nonblocking_tree = tree.nonblocking
        self._modes = modes
        self._offload = offload
        self._made = made
        self._tokens = ItemTokens(tree.dataset)
        # To find the oldest key of a dict whose first ones were deleted takes microseconds.
        self.contents: OrderedDict[int, Readable] = OrderedDict()
        self._seconds = lru_cache(DIRECTORIES_KEPT)(self._cacheable_seconds)
        self._blank = lru_cache(BLANKS_KEPT)(self._make_blank)

    def lookup(self, parent: int, name: bytes, user: int) -> Answer[pyfuse3.EntryAttributes]:
        is_guest = user not in OWNER_UIDS
        try:
            found = self._nonblocking_tree.find(parent, name, is_guest)
        except WouldBlockError:
            return self._lookup_in_thread(parent, name, is_guest)
        return self._found(parent, found)

    async def _lookup_in_thread(self, parent: int, name: bytes, is_guest: bool) -> pyfuse3.EntryAttributes:
        return self._found(parent, await self._in_thread(parent, self._tree.find, parent, name, is_guest))

    def _found(self, parent: int, found: Entry | None) -> pyfuse3.EntryAttributes:
        seconds = self._seconds(parent)
        return missing(seconds) if found is None else self._attributes(found, seconds)

    async def getattr(self, inode: int) -> pyfuse3.EntryAttributes:
        """The attributes of an inode. Those of a symbolic link may change, so they are cached for a moment only."""
        entry = await self._call(inode, Tree.entry, inode)
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

    def open(self, inode: int, flags: int, user: int) -> Answer[pyfuse3.FileInfo]:
        if flags & _WRITING:
            raise FUSEError(errno.EROFS)
        try:
            self._keep(inode, self._nonblocking_tree.content(inode))
        except WouldBlockError:
            return self._open_in_thread(inode)
        return pyfuse3.FileInfo(inode, False, True)  # the handle, direct_io, keep_cache

    async def _open_in_thread(self, inode: int) -> pyfuse3.FileInfo:
        self._keep(inode, await self._in_thread(inode, self._tree.content, inode))
        return pyfuse3.FileInfo(fh=inode, keep_cache=True)

    async def content(self, handle: int) -> Readable:
        """The content of a file, made now, and cached."""
        return self._keep(handle, await self._call(handle, Tree.content, handle))

    def _keep(self, handle: int, content: Readable) -> Readable:
        self._made()
        contents = self.contents
        contents[handle] = content
        if len(contents) > CONTENTS_KEPT:
            contents.popitem(last=False)
        return content

    def read(self, handle: int, content: Readable, offset: int, length: int) -> Awaitable[Buffer]:
        return self._in_thread(handle, content.read, offset, length)

    def release(self, handle: int) -> None: ...

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
        """The attributes of an entry, to be used before the next call: pyfuse3 copies them into its reply at once."""
        inode, kind, size, mtime_ns = entry
        directory = inode >> ROW_BITS
        if size is None or not directory & SHARD_IDS_MAX:
            return attributes_of(entry, seconds, self._ownership(inode))
        attributes = self._blank(directory, kind, mtime_ns, seconds)
        attributes.st_ino = inode
        attributes.st_size = size
        attributes.st_blocks = -(-size // BLOCK_SIZE)
        return attributes

    def _make_blank(self, directory: int, kind: int, mtime_ns: int, seconds: float) -> pyfuse3.EntryAttributes:
        """The common attributes of the entries of one kind in one view and shard."""
        inode = directory << ROW_BITS
        return attributes_of(Entry(inode, kind, 0, mtime_ns), seconds, self._ownership(inode))

    def _ownership(self, inode: int) -> Ownership:
        modes = self._modes
        if not modes.shards:
            return modes.root
        if not unpack(inode)[1] and not self._tree.is_cacheable(inode):
            return modes.of_keys()
        return modes.of(inode)

    def _cacheable_seconds(self, directory: int) -> float:
        """How long the kernel may cache the entries of a directory, and that a name is missing in it."""
        return FOREVER_SECONDS if self._tree.is_cacheable(directory) else BRIEF_SECONDS


def _list_entries(tree: Tree, directory: int, after: int) -> list[tuple[bytes, Entry, int]]:
    """The next entries of a directory, at most `LISTING_MAX`."""
    return list(islice(tree.entries(directory, after), LISTING_MAX))
