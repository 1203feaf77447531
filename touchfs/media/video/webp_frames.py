"""All frames of a video as WebP, in their order. The video is decoded and encoded in a child process, which streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, drive
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.containers import DEMUXERS, detect
from touchfs.media.slices.reading import Exactly
from touchfs.media.video.probe_video import CONTAINERS

_SIZE_MAX = 1 << 14


@dataclass(frozen=True, slots=True)
class WebpFrames:
    """Some frames of a video, each a WebP of `width` × `height` pixels."""

    width: int
    height: int
    frames: list[bytes]


def webp_frames(
    content: Content, pool: DecodePool, quality: int = 65, resize: int | None = None
) -> Iterator[WebpFrames]:
    """Yield the frames in their order, some at a time, upright and all of one size.

    `quality` is from 0 to 100. If a side of the frames is larger than `resize`, they become squares of that side.
    Raises FormatError if the video has no frames or a damaged one, the errors of `pool.request`, and those of
    `content`.
    """
    container, _ = drive(detect(content.size), Exactly(content))
    if container not in CONTAINERS:
        raise FormatError(f"a {container} file is no video")
    values = {"demuxer": DEMUXERS[container], "size": content.size, "quality": quality, "resize": resize}
    for answer in pool.request_parts("encode_frames", values, content):
        yield _parsed(answer)


def _parsed(answer: Message) -> WebpFrames:
    match answer:
        case Message({"width": int(width), "height": int(height)}, [_, *_] as frames):
            if 0 < width < _SIZE_MAX and 0 < height < _SIZE_MAX:
                return WebpFrames(width, height, list(map(bytes, frames)))
    raise FormatError("cannot be decoded: the decoder sends nonsense")
