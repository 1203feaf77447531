"""Decode all frames of a video in their order and encode each as WebP, in the child process.

libav's demuxer and decoder run side by side, so nothing of the video is kept but what the decoder needs. Unlike a
player, it passes over no error: a video with a frame that is damaged has no frames.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, WebPImagePlugin  # noqa: F401 (Pillow would import it when no file can be opened any more)

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.decoder.demux import open_container
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.render_frames import DECODERS
from touchfs.media.decoder.request_content import RequestContent

Image.preinit()

# Pixels of the frames that one answer has, about a second of work
_PIXELS = 1 << 22
_WEBP_SIDE_MAX = 16383


def encode_frames(request: Message, content: RequestContent) -> Iterator[tuple[dict[str, Any], list[Buffer]]]:
    """Yield the frames as WebP, some at a time: a blob for each.

    Values: `demuxer`, `quality` from 0 to 100, `resize`: the side of the square that larger frames become, or None.
    Values of the answers: `width` and `height` of all frames.
    """
    quality, resize = request.values["quality"], request.values["resize"]
    blobs: list[Buffer] = []
    size: tuple[int, int] | None = None
    number = pixels = 0
    with open_container(request.values["demuxer"], content) as container:
        for number, frame in enumerate(container.decode(_pictures(container))):
            if frame.is_corrupt:
                raise FormatError(f"frame {number} cannot be decoded: it is damaged")
            image = _resized(Image.fromarray(_upright(frame)), resize)
            if image.size != (size := size or image.size):
                raise FormatError(f"frame {number} has {image.size} pixels, and the first one {size}: `resize` helps")
            blobs.append(_webp(image, quality))
            pixels += frame.width * frame.height
            if pixels >= _PIXELS:
                yield _answer(size, blobs)
                blobs, pixels = [], 0
    if size is None:
        raise FormatError("empty video")
    if blobs:
        yield _answer(size, blobs)


def _answer(size: tuple[int, int], blobs: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
    return {"width": size[0], "height": size[1]}, blobs


def _pictures(container: Any) -> av.VideoStream:
    stream = container.streams.best("video")
    if not isinstance(stream, av.VideoStream) or stream.disposition & av.stream.Disposition.attached_pic:
        raise FormatError("has no pictures that can be decoded")
    if stream.codec_context.codec.name not in DECODERS.values():
        raise FormatError(f"the coding {stream.codec_context.codec.name} is not supported")
    for other in container.streams:
        if other is not stream and hasattr(other, "discard"):  # newer PyAV
            other.discard = av.stream.Discard.all
    stream.codec_context.thread_count = 1
    return stream


def _upright(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """The pixels in RGB, turned as players turn them."""
    pixels = frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
    return np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90) % 4))


def _resized(image: Image.Image, resize: int | None) -> Image.Image:
    """A square, by the mean of the pixels of an area, if a side is larger than `resize`."""
    if resize is None or max(image.size) <= resize:
        return image
    return image.resize((resize, resize), Image.Resampling.BOX)


def _webp(image: Image.Image, quality: int) -> bytes:
    if max(image.size) > _WEBP_SIDE_MAX:
        raise FormatError(f"WebP has up to {_WEBP_SIDE_MAX} pixels a side, not {image.size}: `resize` helps")
    data = io.BytesIO()
    image.save(data, "WEBP", quality=quality)
    return data.getvalue()
