"""`tokens/`: the tokens of shards in windows. The name of a directory is the plan (`touchfs.view.token_plan`).

    tokens/4096/<shard>/000123.npy, 000123.cu_seqlens.npy, 000123.json

A plan exists as soon as it is named, and is not listed: who visits all files would read all tokens once more for each.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from touchfs.core.errors import ChangedError, UsageError
from touchfs.core.extent import Content
from touchfs.dataset.tokens.index import TokenIndex, token_index
from touchfs.dataset.tokens.windows import ARRAY, DIGITS, EXTENSIONS, TokenWindows
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.slice_numbers import PlannedInodes, PlannedItem
from touchfs.view.token_plan import TokenPlan, parse_token_plan

NAME = "tokens"
_FILE = re.compile(rb"([0-9]{6,10})\.([a-z_.]+)")
_FILES = {extension.encode(): number for number, extension in enumerate(EXTENSIONS)}
_KEPT = 64


class TokensView:
    """The directory `tokens`, a `Subtree`. Its inodes have the view `number`. An item is a file of a window."""

    def __init__(self, shards: OpenShards, inodes: PlannedInodes, number: int) -> None:
        self._shards = shards
        self._inodes = inodes
        self._number = number
        self._root = Entry(pack(number, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)
        self._indexes: BoundedCache[TreeShard, TokenIndex] = BoundedCache(_KEPT)

    def nonblocking(self, shards: NonblockingShards) -> TokensView:
        tokens = TokensView(shards, self._inodes.nonblocking(), self._number)
        tokens._indexes = self._indexes
        return tokens

    def _windows(self, place: PlannedItem) -> TokenWindows | None:
        shard = self._shards.get(place.shard_id)
        index = self._indexes.find(shard)
        if index is None:
            index = self._shards.known_or_found(None, lambda: token_index(shard))
            if index is None:
                return None
            self._indexes.keep(shard, index)
        return TokenWindows(shard, index, _plan(place))

    def _file(self, place: PlannedItem) -> tuple[TokenWindows, int, str]:
        """The windows that the file at a place is of, the number of its one, and its extension."""
        window, file = divmod(place.item or 0, len(EXTENSIONS))
        windows = self._windows(place)
        if windows is None or window >= len(windows):
            raise ChangedError("this inode is not of this mount")
        return windows, window, EXTENSIONS[file]

    def entry(self, inode: int) -> Entry:
        return self._root if inode == self._root.inode else self._entry(self._inodes.place(inode))

    def _entry(self, place: PlannedItem, *, is_guest: bool = False) -> Entry:
        """The entry at a place. Makes the JSON of a window to know its size."""
        if place.item is None:
            above = self._shards.entry(self._number, place.shard_id) if place.shard_id else self._root
            return above._replace(inode=self._inodes.inode(place, is_guest=is_guest))
        windows, window, extension = self._file(place)
        size = windows.size(window, extension)
        if size is None:
            size = self._content(windows, window, extension).size
        inode = self._inodes.inode(place, is_guest=is_guest)
        return Entry(inode, stat.S_IFREG, size, self._shards.get(place.shard_id).mtime_ns)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory == self._root.inode:
            place = _place_of_plan(os.fsdecode(name))
        else:
            place = self._find_below(self._inodes.place(directory), name)
        return None if place is None else self._entry(place, is_guest=is_guest)

    def _find_below(self, above: PlannedItem, name: bytes) -> PlannedItem | None:
        if above.item is not None:
            return None
        if not above.shard_id:
            found = self._shards.find(self._number, name)
            return None if found is None else above._replace(shard_id=unpack(found.inode)[1])
        match = _FILE.fullmatch(name)
        if match is None or (file := _FILES.get(match[2])) is None or b"%0*d" % (DIGITS, int(match[1])) != match[1]:
            return None
        windows, window = self._windows(above), int(match[1])
        if windows is None or window >= len(windows):
            return None
        return above._replace(item=window * len(EXTENSIONS) + file)

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if directory == self._root.inode:
            return
        place = self._inodes.place(directory)
        if place.item is not None:
            raise UsageError("not a directory")
        if not place.shard_id:
            for name, entry, shard_id in self._shards.entries(self._number, after):
                yield name, entry._replace(inode=self._inodes.inode(place._replace(shard_id=shard_id))), shard_id
            return
        windows, mtime_ns = self._windows(place), self._shards.get(place.shard_id).mtime_ns
        for item in range(after, 0 if windows is None else len(windows) * len(EXTENSIONS)):
            if windows is not None:
                window, file = divmod(item, len(EXTENSIONS))
                size = windows.size(window, EXTENSIONS[file])
                inode = self._inodes.inode(place._replace(item=item))
                yield _name(item), Entry(inode, stat.S_IFREG, size, mtime_ns), item + 1

    def parent(self, directory: int) -> int:
        if directory == self._root.inode:
            return ROOT
        place = self._inodes.place(directory)
        return self._inodes.inode(place._replace(shard_id=0)) if place.shard_id else self._root.inode

    def path(self, inode: int) -> str:
        if inode == self._root.inode:
            return NAME
        place = self._inodes.place(inode)
        parts = [NAME, str(_plan(place))]
        if place.shard_id:
            parts.append(self._shards.listed(place.shard_id).name)
        if place.item is not None:
            parts.append(_name(place.item).decode())
        return "/".join(parts)

    def is_cacheable(self, directory: int) -> bool:
        # The entries of a plan are the shards, and no listing of plans tells of new ones.
        return bool(unpack(directory)[1]) or directory == self._root.inode

    def content(self, inode: int) -> Content:
        place = None if inode == self._root.inode else self._inodes.place(inode)
        if place is None or place.item is None:
            raise UsageError("is a directory")
        windows, window, extension = self._file(place)
        shard = self._shards.get(place.shard_id)
        self._shards.verify(shard, shard.tables["shards"], int(windows.index.rows[0]))
        return self._content(windows, window, extension)

    def _content(self, windows: TokenWindows, window: int, extension: str) -> Content:
        """The content of a file. What is made for it may be of very many documents, and take long."""
        if extension == ARRAY:
            return windows.content(window, extension)
        return self._shards.known_or_found(None, lambda: windows.content(window, extension))

    def attributes(self, inode: int) -> dict[str, str]:
        place = None if inode == self._root.inode else self._inodes.place(inode)
        if place is None or place.item is None:
            return {}
        windows, window, _ = self._file(place)
        about = {"shard": windows.shard.shard.name, "field": windows.index.field, "tokens": str(windows.plan)}
        return {**about, "ordinal": str(window)}

    def link(self, inode: int) -> bytes:
        self.entry(inode)
        raise UsageError("not a symbolic link")


def _plan(place: PlannedItem) -> TokenPlan:
    length, overlap = place.plan
    return TokenPlan(length, overlap >> 1, drop_last=bool(overlap & 1))


def _place_of_plan(name: str) -> PlannedItem | None:
    try:
        plan = parse_token_plan(name)
    except UsageError:
        return None
    return PlannedItem((plan.length, plan.overlap << 1 | plan.drop_last))


def _name(item: int) -> bytes:
    window, file = divmod(item, len(EXTENSIONS))
    return f"{window:0{DIGITS}d}.{EXTENSIONS[file]}".encode()
