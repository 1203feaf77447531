"""List the frames of a span without decoding.

With `fps` the span has a tick every 1 / fps seconds from its start on, and each tick has the frame that is shown then:
the nearest one at or before it, which may begin before the span. A frame may be listed more than once, and a tick
before the first frame or after the end of the video has none. So the time of a frame follows from its number.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import UsageError
from touchfs.media.video.frame_index import FrameIndex
from touchfs.media.video.video_info import VideoInfo

_FPS_MAX = 1000
# Files of one directory: 9 hours at 30 a second
_FRAMES_MAX = 1_000_000


def frames_in(info: VideoInfo, start: float, end: float, fps: float | None = None) -> NDArray[np.int64]:
    """The times in ticks of the frames of `[start, end)` seconds. Raises UsageError for an impossible `fps`."""
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
