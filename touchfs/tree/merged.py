"""`merged/`: for each plan that somebody named a directory, with the segments merged by it.

    merged/max=30,gap=0.5/<shard>/<key>/0000.wav

A plan is there as soon as its name is looked up, and is listed from then on. A name that is not canonical is a symbolic
link to the one that is. Plans are numbered by who keeps them (`Plans`), and the number is the view in inode numbers,
from `FIRST_PLAN` on. The directories in a shard are those of the view `segments`, with the same rows.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from touchfs.catalog.table import DIRECTORY, Table
from touchfs.errors import ChangedError, FormatError, UsageError
from touchfs.extent import Content, Memory
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.open_shards import NotAtHandError, OpenShards, ShardsAtHand, TreeShard
from touchfs.view.form import size_of
from touchfs.view.merged import MergedFile, merged_files
from touchfs.view.plan import MergePlan, parse_plan

NAME = "merged"
FIRST_PLAN = 1024
_ALIAS_ROW = 1
_SAMPLES_KEPT = 256


class Plans(Protocol):
    """Who numbers plans, from 1 on, at most 1,023; equal numbers in all processes of a mount."""

    def number(self, name: str, *, is_guest: bool = False) -> int:
        """The number of a plan by its canonical name, registered if need be. Raises FullError; for a guest, who is not
        the one whose mount it is, earlier.
        """
        ...

    def name(self, number: int) -> str | None: ...

    def names(self) -> list[tuple[str, int]]:
        """All plans there are."""
        ...


class OwnPlans:
    """The plans of one process."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def number(self, name: str, *, is_guest: bool = False) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name) + 1

    def name(self, number: int) -> str | None:
        return self._names[number - 1] if 0 < number <= len(self._names) else None

    def names(self) -> list[tuple[str, int]]:
        return [(name, number) for number, name in enumerate(self._names, 1)]


class _PlansElsewhere:
    """Who keeps the plans, asked by a thread that must not wait for the answer."""

    def number(self, name: str, *, is_guest: bool = False) -> int:
        raise NotAtHandError

    def name(self, number: int) -> str | None:
        raise NotAtHandError

    def names(self) -> list[tuple[str, int]]:
        raise NotAtHandError


class _Place(NamedTuple):
    """Where an inode is: under a plan, in a shard, at a row of the table of segments."""

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
    """The directory `merged`, whose own inode has the view `number`."""

    def __init__(self, shards: OpenShards, plans: Plans, number: int) -> None:
        self._shards = shards
        self._plans = plans
        self._number = number
        self._root = Entry(pack(number, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)
        self._known: dict[int, MergePlan] = {}
        self._samples: dict[tuple[int, int, int], list[MergedFile]] = {}

    def at_hand(self, shards: ShardsAtHand) -> Merged:
        """The same for a thread that must not wait, neither for shards nor for who keeps the plans."""
        merged = Merged(shards, _PlansElsewhere(), self._number)
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

    def _place(self, inode: int) -> _Place:
        view, shard_id, row = unpack(inode)
        plan, shard = self._plan(inode), self._shards.get(shard_id)
        table = shard.tables["segments"]
        if row >= table.rows:
            raise ChangedError("this inode is not of this mount")
        return _Place(view, plan, shard, table, row)

    def _of_plan(self, inode: int) -> Entry | None:
        """The entry of a plan's own directory, or of the link to it."""
        if inode == self._root.inode:
            return self._root
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
        entry = self._of_plan(inode)
        if entry is not None:
            return entry
        place = self._place(inode)
        if place.is_directory:
            return Entry(inode, stat.S_IFDIR, 0, place.shard.mtime_ns)
        return self._file_entry(place, self._file(place))

    def _file_entry(self, place: _Place, file: MergedFile) -> Entry:
        if file.data is not None:
            size = len(file.data)
        else:
            form = place.shard.kind_of(place.table, file.row).form
            try:
                size = size_of(form, file.length, file.detail)
            except (ValueError, struct.error) as error:
                path = place.table.path_of_catalog
                raise FormatError(
                    f"the form {form!r} of the catalog is damaged: index with --force", path=path
                ) from error
        return Entry(place.inode(file.row), stat.S_IFREG, size, place.shard.mtime_ns)

    def _file(self, place: _Place) -> MergedFile:
        for file in self._files(place, place.table.ordinal[place.row]):
            if file.row == place.row:
                return file
        raise ChangedError("this inode is not of this mount")

    def _files(self, place: _Place, ordinal: int) -> list[MergedFile]:
        asked = place.view, place.shard.shard_id, ordinal
        files = self._samples.get(asked)
        if files is None:
            files = merged_files(place.plan, place.table, ordinal)
            if len(self._samples) >= _SAMPLES_KEPT:
                self._samples.clear()
            self._samples[asked] = files
        return files

    def find(self, directory: int, name: bytes) -> Entry | None:
        if directory == self._root.inode:
            return self.find_plan(os.fsdecode(name))
        above = self._of_plan(directory)
        if above is not None:
            return self._shards.find(unpack(directory)[0], name) if above.is_directory else None
        place = self._place(directory)
        if not place.is_directory:
            self._file(place)
            return None
        row = place.table.find(place.row, name)
        if row is not None and place.table.kind[row] == DIRECTORY:
            return Entry(place.inode(row), stat.S_IFDIR, 0, place.shard.mtime_ns)
        for file in self._own_files(place):
            if file.name == name:
                return self._file_entry(place, file)
        return None

    def find_plan(self, name: str, *, is_guest: bool = False) -> Entry | None:
        """The directory of a plan, or the link to it."""
        try:
            plan = parse_plan(name)
        except UsageError:
            return None
        view = FIRST_PLAN + self._plans.number(str(plan), is_guest=is_guest)
        return self._of_plan(pack(view, 0, 0 if str(plan) == name else _ALIAS_ROW))

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        above = self._of_plan(directory)
        if above is not None and not above.is_directory:
            raise UsageError("not a directory")
        if directory == self._root.inode:
            for name, number in self._plans.names():
                if number > after:
                    yield name.encode(), self._root._replace(inode=pack(FIRST_PLAN + number, 0, 0)), number
        elif above is not None:
            yield from self._shards.entries(unpack(directory)[0], after)
        else:
            yield from self._entries(self._place(directory), after)

    def _entries(self, place: _Place, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        """The directories among a directory's children, then the merged files of the sample that it is of, if any.

        The place of a file counts on from the children's.
        """
        if not place.is_directory:
            raise UsageError("not a directory")
        table, children = place.table, place.table.children(place.row)
        for child in children[after:]:
            if table.kind[child] == DIRECTORY:
                entry = Entry(place.inode(child), stat.S_IFDIR, 0, place.shard.mtime_ns)
                yield table.name(child), entry, child - children.start + 1
        for i, file in enumerate(self._own_files(place), len(children) + 1):
            if i > after:
                yield file.name, self._file_entry(place, file), i

    def _own_files(self, place: _Place) -> list[MergedFile]:
        """Those of the sample that a directory is of. Nothing but a segment is called `0000.json`."""
        row = place.table.find(place.row, b"0000.json")
        if row is None or place.table.kind[row] == DIRECTORY:
            return []
        return self._files(place, place.table.ordinal[row])

    def parent(self, directory: int) -> int:
        if directory == self._root.inode:
            return ROOT
        if self._of_plan(directory) is not None:
            return self._root.inode
        place = self._place(directory)
        return place.inode(place.table.parent[place.row]) if place.row else pack(place.view, 0, 0)

    def content(self, inode: int) -> Content:
        if self._of_plan(inode) is not None:
            raise UsageError("is no file")
        place = self._place(inode)
        if place.is_directory:
            raise UsageError("is a directory")
        file = self._file(place)
        if file.data is not None:
            return Memory(file.data)
        self._shards.verify(place.shard, place.table, file.row)
        return place.shard.present(place.table.kind[file.row] - 1, file.offset, file.length, file.detail)

    def attributes(self, inode: int) -> dict[str, str]:
        if self._of_plan(inode) is not None:
            return {}
        place = self._place(inode)
        if place.is_directory:
            return {}
        file = self._file(place)
        told = place.shard.attributes(place.table, place.row) | {"plan": str(place.plan)}
        told["segment"] = str(int(file.name.partition(b".")[0]))
        if file.data is None:
            told |= {"offset": str(file.offset), "size": str(file.length)}
        return told

    def link(self, inode: int) -> bytes:
        if not self.entry(inode).is_link:
            raise UsageError("is no symbolic link")
        return str(self._plan(inode)).encode()
