"""The frames of spans of videos, as JPEG files.

Which frames a span has follows from the description of the video. Frames that decode from the same key frame are
rendered together, up to `_PIXELS_MAX` pixels, as one costs nearly as much as all. What is rendered is in the scratch
store; this process keeps the last `KEPT_BYTES` of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Extent
from touchfs.core.names import hex_digest
from touchfs.form.kept import find_version, kept_or_made, key_of
from touchfs.form.results import Results
from touchfs.form.video.videos import video_of
from touchfs.limits import Limits

KEPT_BYTES = 1 << 26
_INDEX_BYTES = 1 << 24
# 32 frames of 1920 × 1080, which are up to 20 MB
_PIXELS_MAX = 1 << 26
_GROUP_MAX = 256
_COUNT = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class SpanFrames:
    """The frames of a span: their `times` in ticks of `time_base` seconds, ascending; and where in them each group
    begins, with the end of the last one. The video begins `start` seconds after time 0.
    """

    times: NDArray[np.int64]
    groups: NDArray[np.int64]
    time_base: Fraction
    start: Fraction

    def __len__(self) -> int:
        return len(self.times)

    def seconds(self, number: int) -> float:
        """The time of a frame in seconds from the begin of the video."""
        return float(int(self.times[number]) * self.time_base - self.start)

    def group(self, number: int) -> tuple[int, int]:
        """The first frame that is rendered together with a frame, by its number from 0, and the end of them."""
        place = int(np.searchsorted(self.groups, number, "right"))
        return int(self.groups[place - 1]), int(self.groups[place])


@dataclass(frozen=True, slots=True)
class FramesOf:
    """The frames of the span that `detail` packs, of the video in `extent`: all, or with `fps` so many a second."""

    extent: Extent
    detail: bytes
    fps: Fraction | None
    limits: Limits

    def known(self) -> SpanFrames | None:
        """The frames, if this process has found them. Never waits."""
        return _spans.known(self._key)

    def find(self) -> SpanFrames:
        """Find the frames, without decoding. Raises as `video_of`, and FormatError for too many frames."""
        find_version(self.extent)
        return _spans.get(self._key, self._find)

    def known_jpeg(self, number: int) -> bytes | None:
        """The JPEG of a frame by its number from 0, if this process has it. Never waits."""
        if (frames := self.known()) is None:
            return None
        first, _ = frames.group(number)
        jpegs = _jpegs.known((self._key, first))
        return None if jpegs is None else jpegs.each[number - first] or None

    def jpeg(self, number: int) -> bytes:
        """The JPEG of a frame by its number from 0. Blocks. Raises as `find`, and FormatError if it is damaged."""
        frames = self.find()
        first, end = frames.group(number)
        times = frames.times[first:end]
        jpegs = _jpegs.get((self._key, first), lambda: _Jpegs.parse(self._rendered(times), len(times)))
        if not (jpeg := jpegs.each[number - first]):
            raise FormatError("the frame cannot be decoded: it is damaged")
        return jpeg

    @property
    def _key(self) -> object:
        return key_of(self.extent), self.detail, self.fps

    def _find(self) -> SpanFrames:
        from touchfs.media.video.frame_index import FrameIndex, frames_in

        video = video_of(self.extent, self.limits)
        info = video.info
        if info is None:
            return SpanFrames(np.zeros(0, np.int64), np.zeros(1, np.int64), Fraction(1), Fraction(0))
        try:
            times = frames_in(info, *video.span(self.detail), fps=None if self.fps is None else float(self.fps))
        except UsageError as error:
            raise FormatError(error.message) from error
        index, most = FrameIndex.of(info.packets), max(min(_PIXELS_MAX // (info.width * info.height), _GROUP_MAX), 1)
        return SpanFrames(times, _groups(index.keys_before(times), most), info.time_base, info.start)

    def _rendered(self, times: NDArray[np.int64]) -> bytes:
        """The JPEGs of frames, packed, from the scratch store."""
        from touchfs.media.decoder.shared import shared_pool
        from touchfs.media.video.render_frames import render_frames
        from touchfs.media.video.video_info import VIDEO_VERSION

        def render() -> bytes:
            info = video_of(self.extent, self.limits).info
            if info is None:
                raise FormatError("has no pictures")
            pool = shared_pool(self.limits.decode_seconds)
            return _pack(list(render_frames(self.extent, info, times, pool)))

        name = f"jpegs {VIDEO_VERSION} {hex_digest(times.astype('<i8').tobytes())}"
        return bytes(kept_or_made(self.extent, name, render))


def _groups(keys: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The indexes at which groups of frames begin, and the end. A group has at most `most` frames of one key frame."""
    places = np.arange(len(keys))
    is_first = np.diff(keys, prepend=-1) != 0
    since = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return np.append(np.flatnonzero(since % most == 0), len(keys))


@dataclass(frozen=True, slots=True)
class _Jpegs:
    """JPEGs that were rendered together."""

    each: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.each))

    @classmethod
    def parse(cls, data: bytes, count: int) -> _Jpegs:
        """Parse what `_pack` returned for so many. Raises FormatError."""
        head = _COUNT.size * count
        sizes = np.frombuffer(data[:head], "<u4") if len(data) >= head else np.zeros(0, "<u4")
        ends = np.cumsum(sizes, dtype=np.int64) + head
        if not count or len(sizes) != count or int(ends[-1]) != len(data):
            raise FormatError("what is kept of its frames is damaged")
        return cls(tuple(data[end - size : end] for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)))


def _pack(jpegs: list[bytes]) -> bytes:
    return b"".join((*(_COUNT.pack(len(jpeg)) for jpeg in jpegs), *jpegs))


_spans: Results[SpanFrames] = Results(_INDEX_BYTES, lambda frames: frames.times.nbytes + frames.groups.nbytes)
_jpegs: Results[_Jpegs] = Results(KEPT_BYTES, lambda jpegs: jpegs.nbytes)
