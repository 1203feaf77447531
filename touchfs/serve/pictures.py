"""Pictures of files of the tree, drawn when a browser asks for them, and kept in the scratch store.

Few are drawn at a time, by processes that nothing else uses, and few requests wait for that: so files are served
meanwhile as if nothing were drawn.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from touchfs.core.errors import FormatError, SourceError, UsageError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.core.names import hex_digest
from touchfs.explore.files import PictureSize, part_of
from touchfs.explore.html import SIZE
from touchfs.explore.page import Map, Problem
from touchfs.explore.recordings import MOST_BYTES, Span, frames_drawn, read_drawn, recording_info
from touchfs.form.video.videos import video_of
from touchfs.limits import Limits
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.video.frame_index import FrameIndex
from touchfs.media.video.probe_video import probe_video
from touchfs.media.video.render_frames import render_frames
from touchfs.media.video.video_info import NoPicturesError, VideoInfo
from touchfs.picture.palette import PAPER
from touchfs.picture.png import levels_png
from touchfs.serve.drawing import OPERATION, PROGRAM, as_wav
from touchfs.serve.turns import Turns
from touchfs.source.scratch.store import Scratch

# All pictures that one client may ask for at once can wait.
AT_ONCE, WAITING, WAIT_SECONDS = 2, 32, 10.0
WIDEST, WIDTHS = 2400, {"wave": 1200, "spectrogram": 1200, "thumb": 320, "array": 800, "frame": 320}
# Changes with the look of pictures.
_VERSION = 2
# Waveforms in a list are this wide at most: of PCM so many bytes are read.
_SMALL, _SMALL_BYTES = 320, 1 << 20
_IMAGE_BYTES = 1 << 26
_PARTS = struct.Struct("<III")
_PATH = re.compile(r"(wave|spectrogram|array|thumb|frame)/(.+)\.(svg|png|jpg)", re.DOTALL)
ENDINGS = {"wave": "svg", "spectrogram": "png", "array": "png", "thumb": "jpg", "frame": "jpg"}
TYPES = {"svg": "image/svg+xml", "png": "image/png", "jpg": "image/jpeg"}
# Of an SVG alone; its style follows the system.
SVG_POLICY = ("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'")


def parse_picture(path: str) -> tuple[str, str] | None:
    """The kind of a picture, and the path of the file in the tree that it is of; None for what is no picture."""
    match = _PATH.fullmatch(path)
    return (match[1], match[2]) if match is not None and ENDINGS[match[1]] == match[3] else None


class Pictures:
    """Draws pictures, two at a time."""

    def __init__(self, limits: Limits) -> None:
        self.turns = Turns("pictures are being drawn", AT_ONCE, WAITING, WAIT_SECONDS)
        self.pool = DecodePool(AT_ONCE, limits.decode_seconds)
        self._drawing = DecodePool(AT_ONCE, limits.decode_seconds, program=PROGRAM)
        self._limits = limits

    def etag(self, version: str, kind: str, width: int, *facts: object) -> str:
        """The version of a picture of a version of a file, for these facts about it."""
        return f'"{_name(version, kind, str(width), *map(str, facts))}"'

    def picture(
        self, kind: str, content: Content, name: str, version: str, width: int, span: Span | None, *, is_night: bool
    ) -> bytes:
        """A picture of a file, or of a span of a recording. Raises Refusal if too many are being drawn, FormatError,
        MissingExtraError, UsageError for a span that is not in the recording, and the errors of the content.
        """
        if kind in ("wave", "spectrogram"):
            wave, paper, night = _unpack(
                self._kept(_name(version, "sound", str(width), str(span)), partial(self._sound, content, width, span))
            )
            return wave if kind == "wave" else night if is_night else paper
        make = self._thumb if kind == "thumb" else self._array
        return self._kept(_name(version, kind, str(width)), partial(make, content, name, width))

    def frame(self, content: Content, version: str, number: int, count: int, width: int) -> bytes:
        """One of `count` frames of a video at equal distances, the first and the last one among them. Raises as
        `picture`.
        """
        make = partial(self._frame, content, number, count, width)
        return self._kept(_name(version, "frame", str(width), str(number), str(count)), make)

    def _frame(self, content: Content, number: int, count: int, width: int) -> bytes:
        info = self._video(content)
        times = FrameIndex.of(info.packets).times
        chosen = times[(len(times) - 1) * number // (count - 1)]
        (image,) = render_frames(content, info, [int(chosen)], self.pool)
        if not image:
            raise FormatError("this frame is damaged")
        return bytes(self.pool.request("thumbnail", {"width": width}, [image]).blobs[0])

    def _video(self, content: Content) -> VideoInfo:
        if not isinstance(content, Extent):
            return probe_video(content, self.pool)
        if (info := video_of(content, self._limits, self.pool).info) is None:
            raise NoPicturesError("has no pictures")
        return info

    def _kept(self, name: str, make: Callable[[], Buffer]) -> bytes:
        scratch = Scratch.configured()
        with suppress(SourceError):  # without a place for it, it is drawn each time
            if (kept := scratch.kept(name)) is not None:
                return kept
        with self.turns.turn():
            return bytes(scratch.kept_or_made(name, make))

    def _sound(self, content: Content, width: int, span: Span | None) -> bytes:
        info = recording_info(content, self.pool, self._limits)
        frames_drawn(info, span)  # refuses a span that is not in the recording: the drawing process cannot
        if not info.is_plain_pcm:
            content, span = as_wav(read_drawn(content, info, span, self.pool), info.rate), None
        most = _SMALL_BYTES if width <= _SMALL else MOST_BYTES
        values = {"width": width, "most_bytes": most, "size": content.size, "span": span}
        return _pack(*map(bytes, self._drawing.request(OPERATION, values, content=content).blobs))

    def _thumb(self, content: Content, name: str, width: int) -> bytes:
        if content.size > _IMAGE_BYTES:
            raise FormatError(f"an image of {content.size:,} bytes is not read to be shown")
        data = bytes(content.read(0, content.size))
        return bytes(self.pool.request("thumbnail", {"width": width}, [data]).blobs[0])

    def _array(self, content: Content, name: str, width: int) -> bytes:
        part = part_of(name, lambda: content, PictureSize(width, 1, 1, SIZE.rows), self._limits)
        if isinstance(part, Problem):
            raise FormatError(part.reason)
        if not isinstance(part, Map):
            raise UsageError("only an array of two dimensions or more is a picture")
        return levels_png(part.levels, PAPER)


def _name(*facts: str) -> str:
    return hex_digest("\0".join([str(_VERSION), *facts]).encode())[:32]


def _pack(*parts: bytes) -> bytes:
    return _PARTS.pack(*map(len, parts)) + b"".join(parts)


def _unpack(data: bytes) -> tuple[bytes, bytes, bytes]:
    first, second, _ = _PARTS.unpack_from(data)
    start = _PARTS.size
    return data[start : start + first], data[start + first : start + first + second], data[start + first + second :]
