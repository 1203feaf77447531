"""`merged/`: a directory for each merge plan in use, with the segments merged by that plan.

    merged/max=30,gap=0.5/<shard>/<key>/0000.wav

A plan exists as soon as its name is looked up, and is listed from then on. A name that is not canonical is a symbolic
link to the canonical one. A registry (`touchfs.tree.plan_views.plans`) numbers the plans, and the number is the view in
inode numbers, from `FIRST_PLAN` on. The directories in a shard are those of the view `segments`, with the same rows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import ChangedError, TouchfsError, UsageError
from touchfs.core.extent import Content, Memory
from touchfs.dataset.open_shard import StoredBytes
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.plan_views.plans import NonblockingPlans, Plans
from touchfs.view.merged import MergedFile, merged_files
from touchfs.view.plan import MergePlan, parse_plan
from touchfs.view.segments import JSON, segment_name

NAME = "merged"
FIRST_PLAN = 1024
_ALIAS_ROW = 1
_SAMPLES_KEPT = 256


class _Location(NamedTuple):
    """The address of an inode: a plan, a shard, and a row of its table of segments."""

    view: int
    plan: MergePlan
    shard: TreeShard
    table: Table
    row: int

    def inode(self, row: int) -> int:
        return pack(self.view, self.shard.shard_id, row)

    @property
    def is_directory(self) -> bool:
        return self.table.kind[self.row] == DIRECTORY


class Merged:
    """The directory `merged`, a `Subtree`. Its own inode has the view `number`; inodes below it have those of plans."""

    def __init__(self, shards: OpenShards, plans: Plans, number: int) -> None:
        self._shards = shards
        self._plans = plans
        self._number = number
        self._root = Entry(pack(number, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)
        self._known: dict[int, MergePlan] = {}
        self._samples: BoundedCache[tuple[int, int, int], list[MergedFile]] = BoundedCache(_SAMPLES_KEPT)

    def nonblocking(self, shards: NonblockingShards) -> Merged:
        merged = Merged(shards, NonblockingPlans(), self._number)
        merged._known = self._known
        return merged

    def _plan(self, inode: int) -> MergePlan:
        view, _, _ = unpack(inode)
        plan = self._known.get(view)
        if plan is None:
            name = self._plans.name(view - FIRST_PLAN)
            if name is None:
                raise ChangedError("this inode is not of this mount")
            plan = self._known[view] = parse_plan(name)
        return plan

    def _location(self, inode: int) -> _Location:
        view, shard_id, row = unpack(inode)
        plan, shard = self._plan(inode), self._shards.get(shard_id)
        table = shard.tables["segments"]
        if row >= table.rows:
            raise ChangedError("this inode is not of this mount")
        return _Location(view, plan, shard, table, row)

    def _plan_entry(self, inode: int) -> Entry | None:
        """The entry of `merged` itself, of a plan's directory or of a link to one; None for an inode below a plan."""
        if inode == self._root.inode:  # its time tells who keeps a listing of it that there are more plans
            return self._root._replace(mtime_ns=self._root.mtime_ns + len(self._plans.names()))
        view, shard_id, row = unpack(inode)
        if shard_id:
            return None
        name = str(self._plan(inode))
        if row == _ALIAS_ROW:
            return Entry(inode, stat.S_IFLNK, len(name.encode()), self._root.mtime_ns)
        if row:
            raise ChangedError("this inode is not of this mount")
        return self._root._replace(inode=pack(view, 0, 0))

    def entry(self, inode: int) -> Entry:
        entry = self._plan_entry(inode)
        if entry is not None:
            return entry
        location = self._location(inode)
        if location.is_directory:
            return Entry(inode, stat.S_IFDIR, 0, location.shard.mtime_ns)
        return self._measured(location, self._file(location))

    def _measured(self, location: _Location, file: MergedFile) -> Entry:
        """The entry of a file. Reads a recording if the size cannot be known otherwise."""
        entry = self._file_entry(location, file)
        if entry.size is None:
            with suppress(TouchfsError):
                return entry._replace(size=self._shards.measure(location.shard, _stored(location, file)))
        return entry

    def _file_entry(self, location: _Location, file: MergedFile) -> Entry:
        """The entry of a file, with the size None if a recording must be read to know it."""
        size: int | None
        if file.data is not None:
            size = len(file.data)
        else:
            size = location.shard.size(_stored(location, file))
        return Entry(location.inode(file.row), stat.S_IFREG, size, location.shard.mtime_ns)

    def _file(self, location: _Location) -> MergedFile:
        for file in self._files(location, location.table.ordinal[location.row]):
            if file.row == location.row:
                return file
        raise ChangedError("this inode is not of this mount")

    def _files(self, location: _Location, ordinal: int) -> list[MergedFile]:
        sample = location.view, location.shard.shard_id, ordinal
        return self._samples.get(sample, lambda: merged_files(location.plan, location.table, ordinal))

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory == self._root.inode:
            return self._find_plan(os.fsdecode(name), is_guest=is_guest)
        above = self._plan_entry(directory)
        if above is not None:
            return self._shards.find(unpack(directory)[0], name) if above.is_directory else None
        location = self._location(directory)
        if not location.is_directory:
            self._file(location)
            return None
        row = location.table.find(location.row, name)
        if row is not None and location.table.kind[row] == DIRECTORY:
            return Entry(location.inode(row), stat.S_IFDIR, 0, location.shard.mtime_ns)
        for file in self._own_files(location):
            if file.name == name:
                return self._measured(location, file)
        return None

    def _find_plan(self, name: str, *, is_guest: bool) -> Entry | None:
        """The entry of a plan's directory, or of a link to it if `name` is not canonical. None if it is not a plan.

        Registers the plan if it is new. Raises FullError as `Plans.number` does.
        """
        try:
            plan = parse_plan(name)
        except UsageError:
            return None
        view = FIRST_PLAN + self._plans.number(str(plan), is_guest=is_guest)
        return self._plan_entry(pack(view, 0, 0 if str(plan) == name else _ALIAS_ROW))

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        above = self._plan_entry(directory)
        if above is not None and not above.is_directory:
            raise UsageError("not a directory")
        if directory == self._root.inode:
            for name, number in self._plans.names():
                if number > after:
                    yield name.encode(), self._root._replace(inode=pack(FIRST_PLAN + number, 0, 0)), number
        elif above is not None:
            yield from self._shards.entries(unpack(directory)[0], after)
        else:
            yield from self._entries(self._location(directory), after)

    def _entries(self, location: _Location, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """The subdirectories of a directory, then the merged files of its sample, if it is a sample's directory.

        The cookies of files continue those of the children.
        """
        if not location.is_directory:
            raise UsageError("not a directory")
        table, children = location.table, location.table.children(location.row)
        for child in children[after:]:
            if table.kind[child] == DIRECTORY:
                entry = Entry(location.inode(child), stat.S_IFDIR, 0, location.shard.mtime_ns)
                yield table.name(child), entry, child - children.start + 1
        for i, file in enumerate(self._own_files(location), len(children) + 1):
            if i > after:
                yield file.name, self._file_entry(location, file), i

    def _own_files(self, location: _Location) -> list[MergedFile]:
        """The merged files of the sample that a directory belongs to: it has the file of a first segment."""
        row = location.table.find(location.row, segment_name(0, JSON).encode())
        if row is None or location.table.kind[row] == DIRECTORY:
            return []
        return self._files(location, location.table.ordinal[row])

    def parent(self, directory: int) -> int:
        if directory == self._root.inode:
            return ROOT
        if self._plan_entry(directory) is not None:
            return self._root.inode
        location = self._location(directory)
        return location.inode(location.table.parent[location.row]) if location.row else pack(location.view, 0, 0)

    def path(self, inode: int) -> str:
        return self._shards.path(NAME, unpack(inode)[1])

    def is_cacheable(self, directory: int) -> bool:
        return True

    def content(self, inode: int) -> Content:
        if self._plan_entry(inode) is not None:
            raise UsageError("not a file")
        location = self._location(inode)
        if location.is_directory:
            raise UsageError("is a directory")
        file = self._file(location)
        if file.data is not None:
            return Memory(file.data)
        self._shards.verify(location.shard, location.table, file.row)
        stored = _stored(location, file)
        if self._file_entry(location, file).size is None:
            self._shards.measure(location.shard, stored)
        return location.shard.present(stored)

    def attributes(self, inode: int) -> dict[str, str]:
        if self._plan_entry(inode) is not None:
            return {}
        location = self._location(inode)
        if location.is_directory:
            return {}
        file = self._file(location)
        attributes = location.shard.attributes(location.table, location.row) | {"plan": str(location.plan)}
        attributes["segment"] = str(file.number)
        if file.data is None:
            attributes |= {"offset": str(file.offset), "size": str(file.length)}
        return attributes

    def link(self, inode: int) -> bytes:
        if not self.entry(inode).is_link:
            raise UsageError("not a symbolic link")
        return str(self._plan(inode)).encode()


def _stored(location: _Location, file: MergedFile) -> StoredBytes:
    kind = location.table.kind[file.row] - 1
    return StoredBytes(kind, file.offset, file.length, file.detail, location.plan.rendering)
