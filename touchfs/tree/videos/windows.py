"""`windows/`: the frames of videos in windows. The name of a directory is the plan (`touchfs.caches.frame_windows`).

    windows/L16-s0-h4/<shard>/000012/000.webp … 015.webp, info.json

A plan exists as soon as it is named; only `LISTED` ones are listed. The windows of a shard are numbered video by video.
The files of a window are those of `frames/`: they have the same inode numbers.

Everything else has inode numbers of `PlannedInodes`: an item is a window, or its `info.json`.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from touchfs.caches.frame_windows import WindowPlan, Windows
from touchfs.catalog.table import Table
from touchfs.core.errors import ChangedError, UsageError
from touchfs.core.extent import Content, Memory
from touchfs.dataset.open_shard import stored_at
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, ROW_BITS, ROW_MASK, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.slice_numbers import PlannedInodes, PlannedItem
from touchfs.tree.videos.frames import DIGITS, FramesView

NAME = "windows"
LISTED = ("L16-s0-h4", "L8-s0-h8")
INFO = b"info.json"
FRAME_DIGITS = 3
_KEPT = 256
_WINDOW, _FRAME = re.compile(rb"[0-9]{6,10}"), re.compile(rb"([0-9]{3,10})\.\w+", re.ASCII)


def parse_windows(name: str) -> WindowPlan:
    """The plan of a name. Raises UsageError that says how one is written."""
    plan = WindowPlan.parse(name)
    if plan is None:
        raise UsageError(f"the plan {name!r} is not written as L16-s0-h4 or L16-s0-h4-m20: see docs/tables.md")
    return plan


class _WindowPlace(NamedTuple):
    """The address of an inode: a plan, a shard id (0: the plan's directory), and a window (None: the directory of the
    shard), or its `info.json`.
    """

    plan: WindowPlan
    shard_id: int = 0
    window: int | None = None
    is_info: bool = False


class WindowsView:
    """The directory `windows`, a `Subtree`. Its inodes have the view `number`, but frames have those of `frames`."""

    def __init__(self, shards: OpenShards, frames: FramesView, inodes: PlannedInodes, number: int) -> None:
        self._shards = shards
        self._frames = frames
        self._inodes = inodes
        self._number = number
        self._root = Entry(pack(number, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)
        self._planned: BoundedCache[tuple[TreeShard, WindowPlan], Windows] = BoundedCache(_KEPT)

    def nonblocking(self, shards: NonblockingShards) -> WindowsView:
        windows = WindowsView(shards, self._frames.nonblocking(shards), self._inodes.nonblocking(), self._number)
        windows._planned = self._planned
        return windows

    def _place(self, inode: int) -> _WindowPlace:
        numbers, shard_id, item = self._inodes.place(inode)
        (length, skip), (hop, least) = map(_halves, numbers)
        plan = WindowPlan(length, skip, hop, least or None)
        if item is None:
            return _WindowPlace(plan, shard_id)
        return _WindowPlace(plan, shard_id, item >> 1, bool(item & 1))

    def _inode(self, place: _WindowPlace, *, is_guest: bool = False) -> int:
        plan, shard_id, window, is_info = place
        numbers = plan.length << ROW_BITS | plan.skip, plan.hop << ROW_BITS | (plan.min_frames or 0)
        item = None if window is None else window << 1 | is_info
        return self._inodes.inode(PlannedItem(numbers, shard_id, item), is_guest=is_guest)

    def _windows(self, shard: TreeShard, plan: WindowPlan) -> Windows:
        windows = self._planned.find((shard, plan))
        if windows is None:
            windows = Windows(plan, self._frames.videos.get(shard).counts)
            self._planned.keep((shard, plan), windows)
        return windows

    def _locate(self, shard: TreeShard, place: _WindowPlace) -> tuple[int, int]:
        """The number of the video of a window, and the first frame. Raises ChangedError if there is no such window."""
        try:
            return self._windows(shard, place.plan).locate(place.window or 0)
        except IndexError:
            raise ChangedError("this inode is not of this mount") from None

    def entry(self, inode: int) -> Entry:
        return self._root if inode == self._root.inode else self._entry(self._place(inode))

    def _entry(self, place: _WindowPlace, *, is_guest: bool = False) -> Entry:
        mtime_ns, size = self._root.mtime_ns, 0
        if place.shard_id:
            shard = self._shards.get(place.shard_id)
            mtime_ns = shard.mtime_ns
            if place.window is not None:
                self._locate(shard, place)
            size = len(self._info(shard, place)) if place.is_info else 0
        kind = stat.S_IFREG if place.is_info else stat.S_IFDIR
        return Entry(self._inode(place, is_guest=is_guest), kind, size, mtime_ns)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory == self._root.inode:
            plan = WindowPlan.parse(os.fsdecode(name))
            return None if plan is None else self._entry(_WindowPlace(plan), is_guest=is_guest)
        above = self._place(directory)
        if not above.shard_id:
            found = self._shards.find(self._number, name)
            place = None if found is None else above._replace(shard_id=unpack(found.inode)[1])
        elif above.window is None:
            place = self._find_window(above, name)
        elif above.is_info:
            place = None
        elif name == INFO:
            place = above._replace(is_info=True)
        else:
            return self._find_frame(above, name)
        return None if place is None else self._entry(place, is_guest=is_guest)

    def _find_window(self, above: _WindowPlace, name: bytes) -> _WindowPlace | None:
        shard = self._shards.get(above.shard_id)
        if _WINDOW.fullmatch(name) is None or int(name) >= len(self._windows(shard, above.plan)):
            return None
        return above._replace(window=int(name)) if b"%0*d" % (DIGITS, int(name)) == name else None

    def _find_frame(self, place: _WindowPlace, name: bytes) -> Entry | None:
        shard, match = self._shards.get(place.shard_id), _FRAME.fullmatch(name)
        if match is None or int(match[1]) >= place.plan.length or self._frame_name(shard, int(match[1])) != name:
            return None
        return self._frames.measured(shard, self._rows(shard, place)[int(match[1])])

    def _frame_name(self, shard: TreeShard, number: int) -> bytes:
        return self._frames.frame_name(shard, number, FRAME_DIGITS)

    def _rows(self, shard: TreeShard, place: _WindowPlace) -> range:
        video, first = self._locate(shard, place)
        return place.plan.frames(self._frames.videos.get(shard).starts[video] + first)

    def _info(self, shard: TreeShard, place: _WindowPlace) -> bytes:
        video, first = self._locate(shard, place)
        table, row = shard.tables["shards"], self._frames.videos.get(shard).rows[video]
        info = {
            "key": table.key(row),
            "video_idx": video,
            "filename": _record(shard, table, row).get("path"),
            "start_frame": first,
            "frame_indices": list(place.plan.frames(first)),
        }
        return (json.dumps(info, ensure_ascii=False) + "\n").encode("utf-8", "replace")

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if directory == self._root.inode:
            for cookie, plan in enumerate(LISTED, 1):
                if cookie > after and (found := self.find(directory, plan.encode())) is not None:
                    yield plan.encode(), found, cookie
            return
        place = self._place(directory)
        if place.is_info:
            raise UsageError("not a directory")
        if not place.shard_id:
            for name, entry, cookie in self._shards.entries(self._number, after):
                shard_id = unpack(entry.inode)[1]
                yield name, entry._replace(inode=self._inode(place._replace(shard_id=shard_id))), cookie
            return
        shard = self._shards.get(place.shard_id)
        if place.window is None:
            for window in range(after, len(self._windows(shard, place.plan))):
                yield b"%0*d" % (DIGITS, window), self._entry(place._replace(window=window)), window + 1
            return
        for number, row in enumerate(self._rows(shard, place)[after:], after):
            yield self._frame_name(shard, number), self._frames.frame(shard, row), number + 1
        if after <= place.plan.length:
            yield INFO, self._entry(place._replace(is_info=True)), place.plan.length + 1

    def parent(self, directory: int) -> int:
        if directory == self._root.inode:
            return ROOT
        place = self._place(directory)
        if place.window is not None:
            return self._inode(place._replace(window=None, is_info=False))
        return self._inode(place._replace(shard_id=0)) if place.shard_id else self._root.inode

    def path(self, inode: int) -> str:
        if inode == self._root.inode:
            return NAME
        plan, shard_id, window, is_info = self._place(inode)
        path = f"{NAME}/{plan.name}"
        if shard_id:
            path += f"/{self._shards.get(shard_id).shard.name}"
        if window is not None:
            path += f"/{window:0{DIGITS}d}"
        return f"{path}/{INFO.decode()}" if is_info else path

    def is_cacheable(self, directory: int) -> bool:
        # The entries of a plan are the shards, and no listing of plans tells of new ones.
        return bool(unpack(directory)[1]) or directory == self._root.inode

    def content(self, inode: int) -> Content:
        place = None if inode == self._root.inode else self._place(inode)
        if place is None or not place.is_info:
            raise UsageError("is a directory")
        return Memory(self._info(self._shards.get(place.shard_id), place))

    def attributes(self, inode: int) -> dict[str, str]:
        return {}

    def link(self, inode: int) -> bytes:
        self.entry(inode)
        raise UsageError("not a symbolic link")


def _halves(number: int) -> tuple[int, int]:
    return number >> ROW_BITS, number & ROW_MASK


def _record(shard: TreeShard, table: Table, row: int) -> dict[str, object]:
    """The record of a video, as its JSON in `shards/` says."""
    content = shard.present(stored_at(table, row))
    record: dict[str, object] = json.loads(bytes(content.read(0, content.size)))
    return record
