"""Decode a recording from its start, in the child process: one whose packets nobody can decode by themselves.

Such packets are spread over the file (transport streams), or of a coding that needs all that was decoded before (WMA,
AC-3 with its noise, GSM). So a span costs what is before it, and its samples are those of a full decode by definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.coding.sample_format import convert_samples
from touchfs.media.decoder.decode import LIBAV_FORMATS, samples_of
from touchfs.media.decoder.demux import open_container, sound_of
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.request_content import RequestContent

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream
    from av.container import InputContainer


def decode_from_start(request: Message, content: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Return the samples `[first, first + count)` in the format `target`; without a `count`, what the recording is.

    Values: `demuxer`, `first`, `count`, `target`. What it is has the values `rate`, `channels`, `sample_format`, and
    `frames`, the samples per channel.
    """
    values = request.values
    with open_container(values["demuxer"], content) as container:
        frames = _frames(container, sound_of(container))
        if "count" not in values:
            return _described(frames), []
        return {}, [_span(frames, values["first"], values["count"], values["target"]).data]


def _described(frames: Iterator[AudioFrame]) -> dict[str, Any]:
    first, count = None, 0
    for frame in frames:
        first, count = first or _format(frame), count + frame.samples
    if first is None:
        raise FormatError("cannot be decoded: it has no sound")
    rate, channels, name = first
    return {"rate": rate, "channels": channels, "sample_format": LIBAV_FORMATS[name], "frames": count}


def _span(frames: Iterator[AudioFrame], first: int, count: int, target: str) -> NDArray[Any]:
    blocks: list[NDArray[Any]] = []
    position = -first
    for frame in frames:
        if position + frame.samples > 0:
            source = LIBAV_FORMATS[_format(frame)[2]]
            block = samples_of(frame, source)[max(-position, 0) : count - position]
            blocks.append(convert_samples(block, source, target))
        position += frame.samples
        if position >= count:
            return np.concatenate(blocks)
    raise FormatError(f"cannot be decoded: {max(position, 0)} samples where {count} were expected")


def _frames(container: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
    """All frames, which have one format. Raises FormatError."""
    first = None
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise FormatError("is damaged or cut short")
        for frame in packet.decode():
            first = first or _format(frame)
            if _format(frame) != first:
                raise FormatError("changes its rate, channels or sample format: this is not supported")
            yield frame


def _format(frame: AudioFrame) -> tuple[int, int, str]:
    return frame.sample_rate, frame.layout.nb_channels, frame.format.name.removesuffix("p")
