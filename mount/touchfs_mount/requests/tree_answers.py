"""Answers to the kernel's requests from a tree, which nothing can change.

A file has no open: its content is made at the first read and kept under its inode number, and a read that comes to
another worker makes it again. So correctness does not depend on what is kept, and the oldest is dropped.

The kernel keeps names and attributes for an hour: an inode number is of one version of a shard. It keeps for a second
only what may be another one later, as the targets of `by-key/`.
"""

from __future__ import annotations

import errno
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from touchfs.core.errors import TouchfsError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.core.names import NAME_MAX
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.tree.entry import Entry
from touchfs.tree.inode import FIXED_VIEW, ROOT, ROW_BITS, ROW_MASK, pack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree
from touchfs_mount.messages import answers
from touchfs_mount.messages.answers import Common
from touchfs_mount.messages.requests import Opcode, Request
from touchfs_mount.requests.access import OWNER_UIDS, Modes, Ownership
from touchfs_mount.requests.walks import Walks

CONTENTS_KEPT, DIRECTORIES_KEPT = 4096, 4096
FOREVER_SECONDS, BRIEF_SECONDS = 3600, 1
# The link to the control directory: its inode number, and its place in the root, after any possible view.
CONTROL_NAME, CONTROL_LINK, CONTROL_COOKIE = b".touchfs", pack(FIXED_VIEW, 0, 2), 1 << 12
# `.` and `..` come first in every listing; the cookies of a tree are counted on from them.
_DOTS = 2
_XATTR_PREFIX = b"user.touchfs."
_INFO, _TOKEN = "info", "token"

# A read of a content, which either waits or raises WouldBlockError.
Read = Callable[[Content, int, int], Buffer]


class RefusedError(Exception):
    """A request that is no mistake of ours gets an errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.errno = number


class Contents:
    """The contents of the files that one process has read last, but of those that are made as fast as found."""

    def __init__(self) -> None:
        # To find the oldest key of a dict whose first ones were deleted takes microseconds.
        self._kept: OrderedDict[int, Content] = OrderedDict()
        self.get = self._kept.get

    def keep(self, inode: int, content: Content) -> Content:
        """Keep a content that was made."""
        if type(content) is not Extent:
            self._kept[inode] = content
            if len(self._kept) > CONTENTS_KEPT:
                self._kept.popitem(last=False)
        return content


def read_waiting(content: Content, offset: int, size: int) -> Buffer:
    """Read in a thread that may wait."""
    return content.read(offset, size)


def read_at_once(content: Content, offset: int, size: int) -> Buffer:
    """Read, or raise WouldBlockError."""
    data = content.read_nowait(offset, size)
    if data is None:
        raise WouldBlockError
    return data


class TreeAnswers:
    """Answers from `tree`, by reads of the kind `read`. With `Tree.nonblocking` and `read_at_once` nothing waits.

    `control` is the target of the link `.touchfs`, None if there is none. `info` is the text of the root's extended
    attribute `user.touchfs.info`.
    """

    def __init__(
        self,
        tree: Tree,
        read: Read,
        contents: Contents,
        modes: Modes,
        walks: Walks,
        *,
        control: bytes | None = None,
        info: Callable[[], bytes] = bytes,
    ) -> None:
        self._tree = tree
        self._read = read
        self._contents = contents
        self._modes = modes
        self._walks = walks
        self._control = control
        self._info = info
        self._tokens = ItemTokens(tree.dataset)
        self._seconds = lru_cache(DIRECTORIES_KEPT)(self._cacheable_seconds)
        self._common = lru_cache(DIRECTORIES_KEPT)(self._make_common)
        self._answers: dict[int, Callable[[Request], Sequence[Buffer]]] = {
            Opcode.LOOKUP: self._lookup,
            Opcode.GETATTR: self._getattr,
            Opcode.READLINK: self._readlink,
            Opcode.READ: self._read_file,
            Opcode.READDIR: self._readdir,
            Opcode.READDIRPLUS: self._readdir,
            Opcode.STATFS: self._statfs,
            Opcode.GETXATTR: self._getxattr,
            Opcode.LISTXATTR: self._listxattr,
        }

    def answer(self, request: Request) -> Sequence[Buffer]:
        """The body of the answer, in parts. Raises RefusedError, WouldBlockError and the errors of
        `touchfs.core.errors`."""
        try:
            return self._answers[request.opcode](request)
        except TouchfsError as error:
            if error.path is None:  # decoders know no files
                with suppress(TouchfsError):
                    error.at(self._tree.path(request.inode))
            raise

    def _lookup(self, request: Request) -> Sequence[Buffer]:
        parent, name = request.inode, request.name
        if len(name) > NAME_MAX:  # the kernel itself rejects only names over 1,024 bytes
            raise RefusedError(errno.ENAMETOOLONG)
        seconds = self._seconds(parent)
        if parent == ROOT and name == CONTROL_NAME and self._control is not None:
            return (self._entry(self._control_entry(self._control), seconds),)
        found = self._tree.find(parent, name, request.user not in OWNER_UIDS)
        return (answers.missing(seconds) if found is None else self._entry(found, seconds),)

    def _getattr(self, request: Request) -> Sequence[Buffer]:
        if request.inode == CONTROL_LINK and self._control is not None:
            found = self._control_entry(self._control)
        else:
            found = self._tree.entry(request.inode)
        inode, kind, size, mtime_ns = found
        common = self._common(inode >> ROW_BITS, kind, mtime_ns)
        if size is None:
            return (answers.attr(inode, 1, common, 0),)
        seconds = self._kept_for(found, BRIEF_SECONDS if found.is_link else FOREVER_SECONDS)
        return (answers.attr(inode, size, common, seconds),)

    def _control_entry(self, target: bytes) -> Entry:
        return Entry(CONTROL_LINK, stat.S_IFLNK, len(target), self._tree.entry(ROOT).mtime_ns)

    def _readlink(self, request: Request) -> Sequence[Buffer]:
        if request.inode == CONTROL_LINK and self._control is not None:
            return (self._control,)
        return (self._tree.link(request.inode),)

    def _read_file(self, request: Request) -> Sequence[Buffer]:
        inode = request.inode
        content = self._contents.get(inode)
        if content is None:
            content = self._contents.keep(inode, self._tree.content(inode))
        return (self._read(content, request.offset, request.size),)

    def _readdir(self, request: Request) -> Sequence[Buffer]:
        """Entries after the cookie `offset`, as many as have room. READDIRPLUS has their attributes, too.

        What would wait comes with the next request, unless it is the first.
        """
        directory, room, parts = request.inode, request.size, list[bytes]()
        if self._tree.needs_indexing(directory):
            self._walks.check(request.process)
        has_attributes = request.opcode == Opcode.READDIRPLUS
        seconds = self._seconds(directory)
        if has_attributes and request.offset >= _DOTS:
            files = self._tree.files(directory, request.offset - _DOTS, room // answers.DIRENTPLUS_MIN)
            if files is not None:
                common = self._common(files.inode >> ROW_BITS, stat.S_IFREG, files.mtime_ns)
                first = request.offset + 1
                return (answers.files_plus(files.inode, files.names, files.sizes, common, seconds, first, room),)
        try:
            for name, entry, cookie in self._listed(directory, request.offset):
                inode, kind, size, mtime_ns = entry
                if has_attributes and size is not None and cookie > _DOTS:
                    common = self._common(inode >> ROW_BITS, kind, mtime_ns)
                    kept = self._kept_for(entry, seconds) if kind == stat.S_IFDIR else seconds
                    record = answers.direntplus(inode, kind, size, common, kept, seconds, name, cookie)
                else:
                    record = answers.dirent(inode, kind, name, cookie)
                    if has_attributes:
                        # What has no size yet is looked up when somebody needs it, and nobody looks up the dots.
                        record = answers.missing(0) + record
                room -= len(record)
                if room < 0:
                    break
                parts.append(record)
        except WouldBlockError:
            if not parts:
                raise
        return parts

    def _listed(self, directory: int, start: int) -> Iterator[tuple[bytes, Entry, int]]:
        """`(name, entry, cookie)` of all entries after a cookie, with `.` and `..`."""
        if start < 1:
            yield b".", Entry(directory, stat.S_IFDIR, 0, 0), 1
        if start < 2:
            yield b"..", Entry(self._tree.parent(directory), stat.S_IFDIR, 0, 0), 2
        if start < CONTROL_COOKIE or directory != ROOT:
            for name, entry, cookie in self._tree.entries(directory, max(start - _DOTS, 0)):
                yield name, entry, cookie + _DOTS
            if directory == ROOT and self._control is not None:
                yield CONTROL_NAME, self._control_entry(self._control), CONTROL_COOKIE

    def _statfs(self, request: Request) -> Sequence[Buffer]:
        known = self._tree.dataset.indexed_so_far
        blocks = -(-sum(shard.size for shard in known) // answers.BLOCK_SIZE)
        return (answers.statfs(blocks, sum(shard.samples for shard in known), NAME_MAX),)

    def _getxattr(self, request: Request) -> Sequence[Buffer]:
        name = request.name
        if not name.startswith(b"user."):
            raise RefusedError(errno.EOPNOTSUPP)  # `ls -l` asks for some of each file; the tree is not needed
        value = None
        if name.startswith(_XATTR_PREFIX):
            value = self._xattr(request.inode, name[len(_XATTR_PREFIX) :].decode("utf-8", "replace"))
        if value is None:
            raise RefusedError(errno.ENODATA)
        return _with_room(value, request.size)

    def _xattr(self, inode: int, name: str) -> bytes | None:
        if inode == ROOT:
            return self._info() if name == _INFO else None
        if inode == CONTROL_LINK:
            return None
        attributes = self._tree.attributes(inode)
        if name != _TOKEN or "ordinal" not in attributes:
            value = attributes.get(name)
            return None if value is None else value.encode("utf-8", "surrogateescape")
        ordinal, segment = int(attributes["ordinal"]), int(attributes.get("segment", 0))
        if "plan" in attributes:
            source = f"merged/{attributes['plan']}"
        elif "tokens" in attributes:
            source = f"tokens/{attributes['tokens']}"
        elif "id" in attributes:
            source = "interleaved"
        else:
            source = "segments" if "segment" in attributes else "samples"
        # The token positions an iterator at the file's sample or segment. It names the dataset.
        self._tree.await_all()
        return self._tokens.token(source, attributes["shard"], ordinal, segment).encode()

    def _listxattr(self, request: Request) -> Sequence[Buffer]:
        names: list[str] = []
        if request.inode == ROOT:
            names = [_INFO]
        elif request.inode != CONTROL_LINK:
            attributes = self._tree.attributes(request.inode)
            names = [*attributes, *([_TOKEN] if "ordinal" in attributes else [])]
        return _with_room(b"".join(_XATTR_PREFIX + name.encode() + b"\0" for name in names), request.size)

    def _entry(self, entry: Entry, seconds: int) -> bytes:
        """An entry, whose name the kernel may keep for `seconds`.

        A file whose size cannot be found out has the size 1, kept for no time: so the kernel asks for its bytes, and
        the answer says why there are none. With the size 0 it would tell readers that the file ends.
        """
        inode, kind, size, mtime_ns = entry
        common = self._common(inode >> ROW_BITS, kind, mtime_ns)
        if size is None:
            return answers.entry(inode, 1, common, 0, seconds)
        return answers.entry(inode, size, common, self._kept_for(entry, seconds), seconds)

    def _kept_for(self, entry: Entry, seconds: int) -> int:
        """How long the kernel may keep the attributes of an entry: at most `seconds`."""
        return BRIEF_SECONDS if entry.kind == stat.S_IFDIR and self._tree.is_growing(entry.inode) else seconds

    def _make_common(self, directory: int, kind: int, mtime_ns: int) -> Common:
        user, group, modes = self._ownership_in(directory << ROW_BITS)
        return answers.common(modes[kind], mtime_ns, user, group)

    def _ownership_in(self, inode: int) -> Ownership:
        modes = self._modes
        if inode < ROW_MASK:  # of the root, and of the link
            return modes.root
        if not modes.shards:
            return modes.others
        if self._tree.is_of_all_shards(inode):
            return modes.of_keys()
        return modes.of(inode)

    def _cacheable_seconds(self, directory: int) -> int:
        """How long the kernel may keep the entries of a directory, and that a name is missing in it."""
        return FOREVER_SECONDS if self._tree.is_cacheable(directory) else BRIEF_SECONDS


def _with_room(value: bytes, room: int) -> Sequence[Buffer]:
    if not room:
        return (answers.xattr_size(len(value)),)
    if len(value) > room:
        raise RefusedError(errno.ERANGE)
    return (value,)
