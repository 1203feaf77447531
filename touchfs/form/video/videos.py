"""Descriptions of videos: each is found when it is first needed, by reading all of the video, and kept.

`video_of` reads a video, unless it was read before. `known_video` looks only at what this process has read, so it never
waits. The last `KEPT_BYTES` of what was found are in memory; an hour of pictures and sound takes 12 MB. All of it is in
the scratch store.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.kept import find_version, kept_or_made, key_of
from touchfs.form.results import Results
from touchfs.limits import Limits
from touchfs.segments.packed_times import CLOCK_RATE, PackedTimes

if TYPE_CHECKING:
    from touchfs.media.decoder.pool import DecodePool
    from touchfs.media.video.video_info import VideoInfo

KEPT_BYTES = 1 << 26
_NO_PICTURES = b""


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A video, or a recording in the same container that has no pictures: then `info` is None."""

    info: VideoInfo | None

    def span(self, detail: bytes) -> tuple[float, float]:
        """Start and end in seconds of the times that a detail packs. Times after the end of the video are its end.

        Raises FormatError if the detail is damaged, or if its times are samples and there is no sound.
        """
        times = PackedTimes.parse(detail)
        info = self.info
        if info is None:
            return 0.0, 0.0
        rate = CLOCK_RATE  # the precision of ffmpeg's times
        if times.in_samples:
            if info.sound is None:
                raise FormatError("its times count samples, and the video has no sound")
            rate = info.sound.rate
        first, length, _ = times.span(rate, ceil(info.seconds * rate))
        return first / rate, (first + length) / rate


def video_of(extent: Extent, limits: Limits, pool: DecodePool | None = None) -> VideoFile:
    """Describe the video in an extent. This may read all of it; threads that ask at once wait for one reading.
    A `pool` reads it instead of the one that all share.

    Raises FormatError if it is damaged or not supported, or if finding that out takes too long, MissingExtraError
    without PyAV, and the errors of the source.
    """
    video = known_video(extent)
    if video is not None:
        return video
    find_version(extent)
    return _videos.get(key_of(extent), lambda: _probe(extent, limits, pool))


def known_video(extent: Extent) -> VideoFile | None:
    """The description of the video in an extent if this process has it, else None. Never waits."""
    return _videos.known(key_of(extent))


def _probe(extent: Extent, limits: Limits, pool: DecodePool | None) -> VideoFile:
    from touchfs.media.decoder.shared import shared_pool
    from touchfs.media.video.probe_video import probe_video
    from touchfs.media.video.video_info import NoPicturesError, VideoInfo

    def probe() -> bytes:
        try:
            return probe_video(extent, pool or shared_pool(limits.decode_seconds)).to_bytes()
        except NoPicturesError:
            return _NO_PICTURES

    data = bytes(kept_or_made(extent, "video", probe))
    try:
        return VideoFile(VideoInfo.from_bytes(data, extent.size) if data else None)
    except FormatError:  # another version of touchfs wrote it
        data = probe()
        return VideoFile(VideoInfo.from_bytes(data, extent.size) if data else None)


def _size_of(video: VideoFile) -> int:
    info = video.info
    if info is None:
        return 0
    return 2 * (info.packets.nbytes + (0 if info.sound is None else info.sound.packets.nbytes))  # with their indexes


_videos = Results(KEPT_BYTES, _size_of)
