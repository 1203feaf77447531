"""`slices/`: any span of any recording as a WAV, by name and without metadata, and any recording as a whole.

    slices/12.5-17.25/<shard>/<key>.wav     a span, in seconds or samples (`touchfs.view.slice_span`)
    slices/all/<shard>/<key>.wav            the whole recording

Spans are not listed, and nothing below one is: they exist as soon as they are named. So programs that visit all files
never meet them. For the same reason `slices/` does not list `all`, which shows each recording once more; `all` itself
and the directories below it list what they have. A name that is not canonical is a symbolic link to the canonical one.

Inode numbers below `all` have a view of their own, and the rows of the table `shards`. A registry (`Numbers`) numbers
everything that is looked up below spans, and the number stands in the place of the row. So any worker can answer for
what another one has looked up, and an inode number still has the id of its shard.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import ChangedError, TouchfsError, UsageError
from touchfs.core.extent import Content
from touchfs.dataset.recordings.recording_names import find_row, is_recording, name_of, path_of
from touchfs.dataset.recordings.shard_recordings import known_recording, piece_of_recording
from touchfs.shard.sample import Field, StoredRecording
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, ROW_BITS, ROW_MASK, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.slice_numbers import NonblockingNumbers, Numbers
from touchfs.view.slice_span import SliceSpan, parse_span

NAME, ALL = "slices", "all"
WHOLE = f"{NAME}/{ALL}"
_ALIAS_ROW = 1


class _SlicePlace(NamedTuple):
    """The address of an inode: a span, or None for whole recordings; a shard id; a row of the shard's table.

    Shard id 0 is the directory of the span, or with `_ALIAS_ROW` a link to it.
    """

    span: SliceSpan | None
    shard_id: int = 0
    row: int = 0

    @property
    def is_alias(self) -> bool:
        return self.span is not None and not self.shard_id and self.row == _ALIAS_ROW


class _Slice(NamedTuple):
    """A span of a recording, which is the file at a row of a shard's table."""

    span: SliceSpan | None
    shard: TreeShard
    table: Table
    row: int

    def of(self, recording: StoredRecording) -> Field:
        if self.span is None:
            return recording.piece(0, recording.length)
        return recording.piece(*self.span.within(recording.rate, recording.length))

    def size(self, recording: StoredRecording) -> int | None:
        piece = self.of(recording)
        return piece.form.size(piece.size, piece.detail)


class Slices:
    """The directory `slices`, a `Subtree`. Inodes below `all` have the view `view_of_all`, all others have `view`."""

    def __init__(self, shards: OpenShards, numbers: Numbers, view: int, view_of_all: int) -> None:
        self._shards = shards
        self._numbers = numbers
        self._view, self._view_of_all = view, view_of_all
        self._root = Entry(pack(view, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)

    def nonblocking(self, shards: NonblockingShards) -> Slices:
        return Slices(shards, NonblockingNumbers(self._numbers), self._view, self._view_of_all)

    def _location(self, inode: int) -> _SlicePlace:
        view, shard_id, row = unpack(inode)
        if view == self._view_of_all:
            return _SlicePlace(None, shard_id, row)
        record = self._numbers.record(row)
        if record is None or record[-1] >> ROW_BITS != shard_id or record[2] > 1:  # others are no spans
            raise ChangedError("this inode is not of this mount")
        start, end, in_samples, address = record
        return _SlicePlace(SliceSpan(start, end, in_samples=bool(in_samples)), shard_id, address & ROW_MASK)

    def _inode(self, location: _SlicePlace, *, is_guest: bool = False) -> int:
        span, shard_id, row = location
        if span is None:
            return pack(self._view_of_all, shard_id, row)
        record = span.start, span.end, int(span.in_samples), shard_id << ROW_BITS | row
        number = self._numbers.find(record)
        return pack(self._view, shard_id, number or self._numbers.add(record, is_guest=is_guest))

    def _slice(self, location: _SlicePlace) -> _Slice | None:
        """The slice at a location; None for directories and links. Raises ChangedError if nothing is there."""
        span, shard_id, row = location
        if not shard_id:
            if row and not location.is_alias:
                raise ChangedError("this inode is not of this mount")
            return None
        shard = self._shards.get(shard_id)
        table = shard.tables["shards"]
        if row < table.rows and table.kind[row] == DIRECTORY:
            return None
        if row >= table.rows or not is_recording(shard, row):
            raise ChangedError("this inode is not of this mount")
        return _Slice(span, shard, table, row)

    def entry(self, inode: int) -> Entry:
        return self._root if inode == self._root.inode else self._entry(self._location(inode))

    def _entry(self, location: _SlicePlace, *, is_guest: bool = False) -> Entry:
        slice_ = self._slice(location)
        # The size comes before the number, so that nothing is registered for a shard that does not answer.
        size = 0 if slice_ is None else self._measure(slice_)
        inode = self._inode(location, is_guest=is_guest)
        if slice_ is not None:
            return Entry(inode, stat.S_IFREG, size, slice_.shard.mtime_ns)
        if location.is_alias:
            return Entry(inode, stat.S_IFLNK, len(str(location.span)), self._root.mtime_ns)
        above = self._shards.entry(self._view, location.shard_id) if location.shard_id else self._root
        return above._replace(inode=inode)

    def _measure(self, slice_: _Slice) -> int | None:
        """The size of a slice. Reads its recording to know it; None if that fails, as opening the file then does."""
        with suppress(TouchfsError):
            return slice_.size(self._shards.recording(slice_.shard, slice_.table, slice_.row))
        return None

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory == self._root.inode:
            found = self._find_span(os.fsdecode(name))
        else:
            found = self._find_below(self._location(directory), name)
        return None if found is None else self._entry(found, is_guest=is_guest)

    def _find_span(self, name: str) -> _SlicePlace | None:
        if name == ALL:
            return _SlicePlace(None)
        try:
            span = parse_span(name)
        except UsageError:
            return None
        return _SlicePlace(span, row=0 if str(span) == name else _ALIAS_ROW)

    def _find_below(self, above: _SlicePlace, name: bytes) -> _SlicePlace | None:
        if self._slice(above) is not None or above.is_alias:
            return None
        if not above.shard_id:
            directory = self._shards.find(self._view, name)
            return None if directory is None else above._replace(shard_id=unpack(directory.inode)[1])
        row = find_row(self._shards.get(above.shard_id), above.row, name)
        return None if row is None else above._replace(row=row)

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if directory == self._root.inode:
            return
        above = self._location(directory)
        if self._slice(above) is not None or above.is_alias:
            raise UsageError("not a directory")
        if above.span is not None:
            return
        if not above.shard_id:
            yield from self._shards.entries(self._view_of_all, after)
            return
        shard = self._shards.get(above.shard_id)
        table = shard.tables["shards"]
        children = table.children(above.row)
        for row in children[after:]:
            location, cookie = above._replace(row=row), row - children.start + 1
            if table.kind[row] == DIRECTORY:
                yield table.name(row), self._entry(location), cookie
            elif (name := name_of(shard, row)) is not None:
                recording = known_recording(shard, table, row)
                size = None if recording is None else _Slice(None, shard, table, row).size(recording)
                yield name, Entry(self._inode(location), stat.S_IFREG, size, shard.mtime_ns), cookie

    def parent(self, directory: int) -> int:
        if directory == self._root.inode:
            return ROOT
        location = self._location(directory)
        self._slice(location)
        if not location.shard_id:
            return self._root.inode
        if not location.row:
            return self._inode(location._replace(shard_id=0))
        table = self._shards.get(location.shard_id).tables["shards"]
        return self._inode(location._replace(row=table.parent[location.row]))

    def path(self, inode: int) -> str:
        if inode == self._root.inode:
            return NAME
        location = self._location(inode)
        path = f"{NAME}/{ALL if location.span is None else location.span}"
        if not location.shard_id:
            return path
        shard = self._shards.get(location.shard_id)
        return f"{path}/{shard.shard.name}/{os.fsdecode(path_of(shard, location.row))}".rstrip("/")

    def is_cacheable(self, directory: int) -> bool:
        # The entries of a span and of `all` are the shards, and no listing of spans tells of new ones.
        return bool(unpack(directory)[1]) or directory == self._root.inode

    def content(self, inode: int) -> Content:
        slice_ = None if inode == self._root.inode else self._slice(self._location(inode))
        if slice_ is None:
            raise UsageError("not a file")
        _, shard, table, row = slice_
        self._shards.verify(shard, table, row)
        return piece_of_recording(shard, table, row, slice_.of(self._shards.recording(shard, table, row)))

    def attributes(self, inode: int) -> dict[str, str]:
        slice_ = None if inode == self._root.inode else self._slice(self._location(inode))
        if slice_ is None:
            return {}
        name = ALL if slice_.span is None else str(slice_.span)
        return slice_.shard.attributes(slice_.table, slice_.row) | {"slice": name}

    def link(self, inode: int) -> bytes:
        if inode != self._root.inode:
            location = self._location(inode)
            self._slice(location)
            if location.is_alias:
                return str(location.span).encode()
        raise UsageError("not a symbolic link")
