"""`frames/`: the frames of the videos of Lance caches, as files.

    frames/<shard>/<key>/000123.webp

The directories are those of `shards/`, with a directory for each video in the place of its `<key>.json`. If another
directory has that name, the one of the video is called `<key>.json`, too.

Inode numbers of directories have the rows of the table `shards`. Those of frames have the number of the frame's row in
its dataset, after all rows of the table.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import ChangedError, TouchfsError, UsageError
from touchfs.core.extent import Content
from touchfs.dataset.open_shard import StoredBytes
from touchfs.dataset.recordings.shard_videos import ShardVideos, is_video
from touchfs.form.ordinals import pack_ordinal
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.tables.lance.forms import LanceVideo
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, ROW_MASK, pack, unpack
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard, WouldBlockError

NAME = "frames"
DIGITS = 6
_JSON = b".json"
_FRAME = re.compile(rb"([0-9]{6,})\.(\w+)", re.ASCII)
# Shards whose videos are in memory, 24 to 100 bytes a video.
_SHARDS_KEPT = 64


class VideoShards:
    """The videos of shards, made at first use."""

    def __init__(self) -> None:
        self._kept: BoundedCache[TreeShard, ShardVideos] = BoundedCache(_SHARDS_KEPT)

    def get(self, shard: TreeShard) -> ShardVideos:
        return self._kept.get(shard, lambda: ShardVideos(shard))

    def nonblocking(self) -> VideoShards:
        """The same videos for a thread that must not wait: it raises WouldBlockError for videos that are not made."""
        shards = _NonblockingVideoShards()
        shards._kept = self._kept
        return shards


class _NonblockingVideoShards(VideoShards):
    def get(self, shard: TreeShard) -> ShardVideos:
        videos = self._kept.find(shard)
        if videos is None:
            raise WouldBlockError
        return videos


class FramesView:
    """The directory `frames`, a `Subtree`. Its inodes have the view `number`."""

    def __init__(self, shards: OpenShards, videos: VideoShards, number: int) -> None:
        self._shards = shards
        self._number = number
        self._root = Entry(pack(number, 0, 0), stat.S_IFDIR, 0, shards.mtime_ns)
        self.videos = videos

    def nonblocking(self, shards: NonblockingShards) -> FramesView:
        return FramesView(shards, self.videos.nonblocking(), self._number)

    def _row(self, inode: int) -> tuple[TreeShard, Table, int]:
        """The shard, its table, and the row of a directory or after all rows a frame. Raises ChangedError."""
        _, shard_id, row = unpack(inode)
        shard = self._shards.get(shard_id)
        table = shard.tables["shards"]
        if row < table.rows:
            is_known = table.kind[row] == DIRECTORY or is_video(shard, row)
        else:
            is_known = self.videos.get(shard).video_of(row - table.rows) is not None
        if not is_known:
            raise ChangedError("this inode is not of this mount")
        return shard, table, row

    def frame(self, shard: TreeShard, frame: int) -> Entry:
        """The entry of the frame at a row of the dataset, without its size if that is not known yet."""
        table = shard.tables["shards"]
        if table.rows + frame > ROW_MASK:
            raise UsageError(f"{table.rows + frame} frames and videos in one shard: at most {ROW_MASK} can be shown")
        inode = pack(self._number, shard.shard_id, table.rows + frame)
        return Entry(inode, stat.S_IFREG, shard.known_size(self._stored(shard, frame)), shard.mtime_ns)

    def measured(self, shard: TreeShard, frame: int) -> Entry:
        """The entry of the frame at a row of the dataset. Reads it if its size is not known."""
        entry = self.frame(shard, frame)
        if entry.size is None:
            with suppress(TouchfsError):
                return entry._replace(size=self._shards.measure(shard, self._stored(shard, frame)))
        return entry

    def frame_name(self, shard: TreeShard, number: int, digits: int = DIGITS) -> bytes:
        return b"%0*d.%s" % (digits, number, self._form(shard)[1].extension.encode())

    def _form(self, shard: TreeShard) -> tuple[int, LanceVideo]:
        """The kind of videos in a shard, and its form. A shard with frames has one."""
        for kind, form in enumerate(shard.forms):
            if isinstance(form, LanceVideo):
                return kind, form
        raise ChangedError("this inode is not of this mount")

    def _stored(self, shard: TreeShard, frame: int) -> StoredBytes:
        return StoredBytes(self._form(shard)[0], 0, 0, pack_ordinal(frame))

    def _directory(self, shard: TreeShard, row: int) -> Entry:
        return Entry(pack(self._number, shard.shard_id, row), stat.S_IFDIR, 0, shard.mtime_ns)

    def entry(self, inode: int) -> Entry:
        if inode == self._root.inode:
            return self._root
        shard, table, row = self._row(inode)
        return self._directory(shard, row) if row < table.rows else self.measured(shard, row - table.rows)

    def find(self, directory: int, name: bytes, *, is_guest: bool = False) -> Entry | None:
        if directory == self._root.inode:
            return self._shards.find(self._number, name)
        shard, table, row = self._row(directory)
        if row >= table.rows:
            return None
        if table.kind[row] != DIRECTORY:
            return self._find_frame(shard, row, name)
        for candidate in (name, name + _JSON):
            found = table.find(row, candidate)
            if found is not None and self._name(shard, found) == name:
                return self._directory(shard, found)
        return None

    def _find_frame(self, shard: TreeShard, video: int, name: bytes) -> Entry | None:
        match, frames = _FRAME.fullmatch(name), self._frames(shard, video)
        if match is None or len(match[1]) > 10 or int(match[1]) >= len(frames):
            return None
        number = int(match[1])
        return self.measured(shard, frames[number]) if self.frame_name(shard, number) == name else None

    def _frames(self, shard: TreeShard, row: int) -> range:
        """The rows in the dataset of the frames of the video at a row of the table."""
        videos, table = self.videos.get(shard), shard.tables["shards"]
        ordinal = table.ordinal[row]
        if ordinal >= len(videos.rows) or videos.rows[ordinal] != row:
            ordinal = videos.rows.index(row)
        return range(videos.starts[ordinal], videos.starts[ordinal] + videos.counts[ordinal])

    def _name(self, shard: TreeShard, row: int) -> bytes | None:
        """The name of the directory at a row of the table; None if it is not shown."""
        table = shard.tables["shards"]
        name = table.name(row)
        if table.kind[row] == DIRECTORY:
            return name
        if not is_video(shard, row):
            return None
        stem = name.removesuffix(_JSON)
        return name if table.find(table.parent[row], stem) is not None else stem

    def entries(self, directory: int, after: int) -> Iterator[tuple[bytes, Entry, int]]:
        if directory == self._root.inode:
            yield from self._shards.entries(self._number, after)
            return
        shard, table, row = self._row(directory)
        if row >= table.rows:
            raise UsageError("not a directory")
        if table.kind[row] != DIRECTORY:
            frames = self._frames(shard, row)
            for number in range(after, len(frames)):
                yield self.frame_name(shard, number), self.frame(shard, frames[number]), number + 1
            return
        children = table.children(row)
        for child in children[after:]:
            if (name := self._name(shard, child)) is not None:
                yield name, self._directory(shard, child), child - children.start + 1

    def parent(self, directory: int) -> int:
        if directory == self._root.inode:
            return ROOT
        shard, table, row = self._row(directory)
        return pack(self._number, shard.shard_id, table.parent[row]) if 0 < row < table.rows else self._root.inode

    def path(self, inode: int) -> str:
        if inode == self._root.inode:
            return NAME
        shard, table, row = self._row(inode)
        if row < table.rows:
            return self._path(shard, row)
        videos, frame = self.videos.get(shard), row - table.rows
        video = videos.video_of(frame) or 0
        name = self.frame_name(shard, frame - videos.starts[video]).decode()
        return f"{self._path(shard, videos.rows[video])}/{name}"

    def _path(self, shard: TreeShard, row: int) -> str:
        path = shard.tables["shards"].path(row).decode("utf-8", "surrogateescape")
        path = path if row and shard.tables["shards"].kind[row] == DIRECTORY else path.removesuffix(_JSON.decode())
        return f"{NAME}/{shard.shard.name}/{path}".rstrip("/")

    def is_cacheable(self, directory: int) -> bool:
        return True

    def content(self, inode: int) -> Content:
        if inode == self._root.inode:
            raise UsageError("is a directory")
        shard, table, row = self._row(inode)
        if row < table.rows:
            raise UsageError("is a directory")
        frame = row - table.rows
        videos = self.videos.get(shard)
        self._shards.verify(shard, table, videos.rows[videos.video_of(frame) or 0])
        stored = self._stored(shard, frame)
        self._shards.measure(shard, stored)  # the reason why it cannot be read is that of the open
        return shard.present(stored)

    def attributes(self, inode: int) -> dict[str, str]:
        if inode == self._root.inode:
            return {}
        shard, table, row = self._row(inode)
        if row < table.rows:
            return {}
        videos, frame = self.videos.get(shard), row - table.rows
        video = videos.video_of(frame) or 0
        attributes = shard.attributes(table, videos.rows[video])
        return attributes | {"field": NAME, "frame": str(frame - videos.starts[video])}

    def link(self, inode: int) -> bytes:
        self.entry(inode)
        raise UsageError("not a symbolic link")
