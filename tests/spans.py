"""Spans and times of recordings and videos, as tests ask for them."""

from __future__ import annotations

from touchfs.media.video.video_info import VideoInfo
from touchfs.segments.packed_times import pack_times
from touchfs.segments.times import Times


def span_detail(start: float, end: float | None = None) -> bytes:
    """The detail of the span from `start` to `end` in seconds, for the form `Unmeasured`. By default it has no end."""
    return pack_times(Times(start, end))


def to_seconds(info: VideoInfo, ticks: int) -> float:
    """The time of a frame in seconds from the begin of the video."""
    return float(ticks * info.time_base - info.start)
