"""The frames of a segment of a video, as files below the segment.

    segments/<shard>/<key>/0000/frames/000001.jpg           all frames whose time is in the segment
    segments/<shard>/<key>/0000/frames,fps=2/000001.jpg     frames at another rate (`touchfs.view.frame_plan`)

Only `frames` is listed. A plan exists as soon as its name is looked up; a name that is not canonical is a symbolic link
to the canonical one. All of this follows from the row of the segment's `.mp4`, and a catalog has none of it. A listing
of frames reads the video to find them, unless this machine has done so, and decodes nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from touchfs.catalog.columns import as_array
from touchfs.catalog.table import Table
from touchfs.core.errors import ChangedError, FormatError, TouchfsError, UsageError
from touchfs.core.extent import Content, Memory
from touchfs.form.video.frames import FramesOf, SpanFrames
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROW_BITS, ROW_MASK, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.tree.slice_numbers import FRAMES_RECORD, NonblockingNumbers, Numbers
from touchfs.tree.videos.frame_numbers import (
    ABOVE,
    FIRST_FRAME,
    FRAMES,
    FRAMES_MAX_OF_PLAN,
    Run,
    is_of_plan,
    row_and_place,
    stride,
)
from touchfs.view.frame_plan import FramePlan, parse_frame_plan
from touchfs.view.segments import MP4

_NAME = b"frames"
_MOVIE = f".{MP4}".encode()
_FRAME = re.compile(rb"([0-9]{6,7})\.jpg")


class _FramePlace(NamedTuple):
    """The address of an inode: a segment's row, a plan if it is below one, and a place in the run of numbers."""

    shard: TreeShard
    table: Table
    row: int
    run: Run
    plan: FramePlan | None
    place: int

    @property
    def is_file(self) -> bool:
        return self.place >= FIRST_FRAME

    @property
    def is_link(self) -> bool:
        return self.plan is not None and self.place == ABOVE

    @property
    def number(self) -> int:
        return self.place - FIRST_FRAME

    @property
    def directory(self) -> str:
        return os.fsdecode(_NAME) if self.plan is None else str(self.plan)

    def entry(self, place: int, kind: int, size: int | None = 0) -> Entry:
        return Entry(self.run.inode(place), kind, size, self.shard.mtime_ns)


class SegmentFrames:
    """The directories of segments of videos and all below them, a `Subtree` of several views (`frame_numbers.VIEWS`).

    `view` is the number of the view `segments`, above them.
    """

    def __init__(self, shards: OpenShards, numbers: Numbers, view: int) -> None:
        self._shards = shards
        self._numbers = numbers
        self._view = view

    def nonblocking(self, shards: NonblockingShards) -> SegmentFrames:
        return SegmentFrames(shards, NonblockingNumbers(self._numbers), self._view)

    def find_segment(self, shard: TreeShard, table: Table, directory: int, name: bytes) -> Entry | None:
        """The entry of the directory of a segment, `0000`, in a directory of the view `segments`; None if none is."""
        row = table.find(directory, name + _MOVIE) if shard.video_kinds else None
        return None if row is None or not shard.is_video(table, row) else _segment(shard, table, row)

    def segments(
        self, shard: TreeShard, table: Table, directory: int, after: int
    ) -> Iterator[tuple[bytes, Entry, int]]:
        """The directories of segments in a directory of the view `segments`, as `Subtree.entries`.

        Their cookies are those of the `.mp4` files, and follow all of those.
        """
        if not shard.video_kinds:
            return
        children = table.children(directory)
        first = max(after - len(children), 0)
        kinds = as_array(table.kind)[children.start + first : children.stop]
        for child in (np.flatnonzero(np.isin(kinds, list(shard.video_kinds))) + children.start + first).tolist():
            cookie = len(children) + child - children.start + 1
            yield table.name(child)[: -len(_MOVIE)], _segment(shard, table, child), cookie

    def _place(self, inode: int) -> _FramePlace:
        _, shard_id, _ = unpack(inode)
        shard = self._shards.get(shard_id)
        table = shard.tables["segments"]
        if is_of_plan(inode):
            number, place = row_and_place(inode, None)
            record = self._numbers.record(number)
            if record is None or record[2] != FRAMES_RECORD or record[3] >> ROW_BITS != shard_id:
                raise _changed()
            row = record[3] & ROW_MASK
            found = _FramePlace(shard, table, row, Run(shard_id, None, number), FramePlan(record[0]), place)
        else:
            row, place = row_and_place(inode, table.rows)
            found = _FramePlace(shard, table, row, Run(shard_id, table.rows, row), None, place)
        if row >= table.rows or not shard.is_video(table, row):
            raise _changed()
        return found

    def _files(self, place: _FramePlace) -> FramesOf:
        return place.shard.frames(place.table, place.row, None if place.plan is None else place.plan.fps)

    def _frames(self, place: _FramePlace, files: FramesOf) -> SpanFrames:
        """The frames of a directory. Reads the video to know them. Raises FormatError."""
        frames = self._shards.known_or_found(files.known(), files.find)
        most = stride(place.run.rows) - FIRST_FRAME
        if len(frames) > most:
            what = "choose a smaller fps" if most == FRAMES_MAX_OF_PLAN else "choose shorter segments"
            raise FormatError(f"the segment has {len(frames):,} frames, and {most:,} are shown: {what}")
        return frames

    def entry(self, inode: int) -> Entry:
        place = self._place(inode)
        if place.is_link:
            return place.entry(ABOVE, stat.S_IFLNK, len(place.directory))
        return self._file(place) if place.is_file else place.entry(place.place, stat.S_IFDIR)

    def _file(self, place: _FramePlace) -> Entry:
        """The entry of a frame, which is rendered to know the size; None if that fails, as opening the file does."""
        with suppress(TouchfsError):
            return place.entry(place.place, stat.S_IFREG, len(self._jpeg(place)))
        return place.entry(place.place, stat.S_IFREG, None)

    def _jpeg(self, place: _FramePlace) -> bytes:
        files, number = self._files(place), place.number
        if number >= len(self._frames(place, files)):
            raise _changed()
        return self._shards.known_or_found(files.known_jpeg(number), partial(files.jpeg, number))

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        place = self._place(directory)
        if place.place == FRAMES:
            match = _FRAME.fullmatch(name)
            number = int(match[1]) - 1 if match is not None else -1
            if number < 0 or _name(number) != name or number >= len(self._frames(place, self._files(place))):
                return None
            return self._file(place._replace(place=FIRST_FRAME + number))
        if place.plan is not None or place.is_file:
            return None
        if name == _NAME:
            return place.entry(FRAMES, stat.S_IFDIR)
        return self._find_plan(place, os.fsdecode(name), is_guest=is_guest)

    def _find_plan(self, place: _FramePlace, name: str, *, is_guest: bool) -> Entry | None:
        try:
            plan = parse_frame_plan(name)
        except UsageError:
            return None
        record = plan.millionths, 0, FRAMES_RECORD, place.run.shard_id << ROW_BITS | place.row
        number = self._numbers.find(record) or self._numbers.add(record, is_guest=is_guest)
        found = place._replace(run=Run(place.run.shard_id, None, number), plan=plan)
        if str(plan) == name:
            return found.entry(FRAMES, stat.S_IFDIR)
        return found.entry(ABOVE, stat.S_IFLNK, len(str(plan)))

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        place = self._place(directory)
        if place.is_file or place.is_link:
            raise UsageError("not a directory")
        if place.place == ABOVE:
            if not after:
                yield _NAME, place.entry(FRAMES, stat.S_IFDIR), 1
            return
        for number in range(after, len(self._frames(place, self._files(place)))):
            yield _name(number), place.entry(FIRST_FRAME + number, stat.S_IFREG, None), number + 1

    def parent(self, directory: int) -> int:
        place = self._place(directory)
        if place.place == ABOVE and place.plan is None:
            return pack(self._view, place.run.shard_id, place.table.parent[place.row])
        return Run(place.run.shard_id, place.table.rows, place.row).inode(ABOVE)

    def path(self, inode: int) -> str:
        place = self._place(inode)
        above = os.fsdecode(place.table.path(place.row)[: -len(_MOVIE)])
        path = f"segments/{place.shard.shard.name}/{above}"
        if place.place == ABOVE and place.plan is None:
            return path
        path = f"{path}/{place.directory}"
        return f"{path}/{_name(place.number).decode()}" if place.is_file else path

    def is_cacheable(self, directory: int) -> bool:
        return True

    def content(self, inode: int) -> Content:
        place = self._place(inode)
        if not place.is_file:
            raise UsageError("not a file")
        self._shards.verify(place.shard, place.table, place.row)
        return Memory(self._jpeg(place))

    def attributes(self, inode: int) -> dict[str, str]:
        place = self._place(inode)
        if not place.is_file:
            return {}
        frames = self._frames(place, self._files(place))
        if place.number >= len(frames):
            raise _changed()
        own = {"frame": str(place.number + 1), "time": str(frames.seconds(place.number))}
        return place.shard.attributes(place.table, place.row) | own

    def link(self, inode: int) -> bytes:
        place = self._place(inode)
        if not place.is_link:
            raise UsageError("not a symbolic link")
        return place.directory.encode()


def _segment(shard: TreeShard, table: Table, row: int) -> Entry:
    return Entry(Run(shard.shard_id, table.rows, row).inode(ABOVE), stat.S_IFDIR, 0, shard.mtime_ns)


def _name(number: int) -> bytes:
    return b"%06d.jpg" % (number + 1)


def _changed() -> ChangedError:
    return ChangedError("this inode is not of this mount")
