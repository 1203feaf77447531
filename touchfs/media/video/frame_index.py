"""Find the packets of frames: the one that has a frame, and the key frame that decoding begins at. List the frames of a
span.
"""

from __future__ import annotations

from fractions import Fraction
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.media.coding.packet_table import HIDDEN, KEY, PacketTable
from touchfs.media.video.video_info import VideoInfo

# A frame needs the key frame before the last one; in damaged videos there is no limit.
_KEYS_BACK = 64


class FrameIndex:
    """The frames of a video in the order in which they are shown. `times` are theirs, in ticks, `packets` theirs."""

    def __init__(self, table: PacketTable) -> None:
        shown = np.flatnonzero(table.flags & HIDDEN == 0)
        self.times, first = np.unique(table.times[shown], return_index=True)
        self.packets = shown[first]
        self._keys = np.flatnonzero(table.flags & KEY)
        self._key_times = table.times[self._keys]

    @classmethod
    def of(cls, table: PacketTable) -> FrameIndex:
        """The index of a table. It is kept as long as the table: for an hour of pictures it takes 10 ms."""
        if (index := _indexes.get(table)) is None:
            index = _indexes[table] = cls(table)
        return index

    def packets_of(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the packets of the frames at these times. Raises UsageError for a time without a frame."""
        places = np.searchsorted(self.times, times)
        is_wrong = np.append(self.times, 0)[places] != times
        is_wrong |= places == len(self.times)
        if is_wrong.any():
            raise UsageError(f"no frame has the time {times[is_wrong][0]}")
        return self.packets[places]

    def keys_before(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the key frames that decode the frames at these times and all after them; -1 if there is none.

        Frames that are shown before a key frame and stored after it may need the key frame before that.
        """
        keys, key_times = np.append(self._keys, -1), np.append(self._key_times, 0)  # the last for the place -1
        places = np.searchsorted(self._keys, self.packets_of(times), "right") - 1
        for _ in range(_KEYS_BACK):
            is_later = (key_times[places] > times) & (places >= 0)
            if not is_later.any():
                break
            places[is_later] -= 1
        places[(key_times[places] > times)] = -1
        return keys[places]

    def key_before(self, time: int) -> int:
        """Like `keys_before`, for one time. Raises FormatError if there is none."""
        key = int(self.keys_before(np.array([time]))[0])
        if key < 0:
            raise FormatError("has no key frame before the span: it is damaged")
        return key


_indexes: WeakKeyDictionary[PacketTable, FrameIndex] = WeakKeyDictionary()


_FPS_MAX = 1000
# Files of one directory: 9 hours at 30 a second
_FRAMES_MAX = 1_000_000


def frames_in(info: VideoInfo, start: float, end: float, fps: float | None = None) -> NDArray[np.int64]:
    """The times in ticks of the frames of `[start, end)` seconds, without decoding.

    With `fps` the span has a tick every 1 / fps seconds from its start on, and each tick has the frame that is shown
    then: the nearest one at or before it, which may begin before the span. A frame may be listed more than once, and a
    tick before the first frame or after the end of the video has none. So the time of a frame follows from its number.
    Raises UsageError for an impossible `fps`.
    """
    times = FrameIndex.of(info.packets).times
    first, last = info.to_ticks(start), info.to_ticks(end)
    if fps is None:
        return times[np.searchsorted(times, first) : np.searchsorted(times, last)]
    if not 0 < fps <= _FPS_MAX:
        raise UsageError(f"fps={fps:g}: it is a number up to {_FPS_MAX}")
    step = 1 / (Fraction(fps).limit_denominator(_FRAMES_MAX) * info.time_base)
    count = max(-int((first - min(last, info.packets.end)) // step), 0)
    if count > _FRAMES_MAX:
        raise UsageError(f"fps={fps:g}: the span has over {_FRAMES_MAX:,} frames: choose a shorter")
    ticks = np.array([first + int(number * step) for number in range(count)], np.int64)
    positions = np.searchsorted(times, ticks, "right") - 1
    return times[positions[positions >= 0]]
