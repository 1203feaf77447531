"""The videos of a shard whose samples are videos, and the rows of its Lance dataset that have their frames."""

from __future__ import annotations

import numpy as np

from touchfs.catalog.table import DIRECTORY
from touchfs.dataset.open_shard import OpenShard, stored_at
from touchfs.tables.lance.forms import LanceVideo, video_rows


class ShardVideos:
    """The videos of a shard by number, in the order of its samples.

    `rows` are their rows in the table `shards`; `starts` and `counts` are the first rows in the dataset, and the
    numbers, of their frames.
    """

    __slots__ = ("_first", "_order", "counts", "rows", "starts")

    def __init__(self, shard: OpenShard) -> None:
        table = shard.tables["shards"]
        rows = (row for ordinal in range(shard.shard.samples) for row in table.files(ordinal))
        self.rows = [row for row in rows if is_video(shard, row)]
        frames = [video_rows(stored_at(table, row).detail) for row in self.rows]
        self.starts = [each.start for each in frames]
        self.counts = [len(each) for each in frames]
        self._order = np.argsort(np.array(self.starts, np.int64), kind="stable")
        self._first = np.array(self.starts, np.int64)[self._order]

    def video_of(self, frame: int) -> int | None:
        """The number of the video that has the frame at a row of the dataset, or None."""
        place = int(np.searchsorted(self._first, frame, "right")) - 1
        if place < 0:
            return None
        video = int(self._order[place])
        return video if frame < self.starts[video] + self.counts[video] else None


def is_video(shard: OpenShard, row: int) -> bool:
    """True if the file at a row of the table `shards` is the record of a video."""
    kind = shard.tables["shards"].kind[row]
    return kind != DIRECTORY and kind <= len(shard.forms) and isinstance(shard.forms[kind - 1], LanceVideo)
