"""Decode packets of pictures and encode some of the frames as JPEG, in the child process.

No container is opened: the caller knows where the packets are. The first one is a key frame. Errors in packets are
passed over, as ffmpeg does; a frame that they damage has no JPEG.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.packet import make_packet
from touchfs.media.decoder.request_content import RequestContent

# The names of libav's decoders. No other decoder is ever opened.
DECODERS = {
    "av1": "libdav1d",
    **{
        name: name
        for name in (
            *("ffv1", "h264", "hevc", "mjpeg", "mpeg1video", "mpeg2video", "mpeg4"),
            *("msmpeg4v1", "msmpeg4v2", "msmpeg4v3", "prores", "theora", "vp8", "vp9"),
        )
    },
}
_TURNS: dict[int, list[tuple[str, ...]]] = {
    90: [("transpose", "clock")],
    180: [("hflip",), ("vflip",)],
    270: [("transpose", "cclock")],
}
_TIME_BASE = Fraction(1, 25)  # any
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG


def render_frames(request: Message, _: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Return a JPEG for each wanted frame, in their order; empty for one that is damaged or missing.

    Values: `coding`, `codec_tag`, `width`, `height`, `rotation` in degrees, `quality`. Blobs: the codec's extra data;
    the bytes of all packets; (offset, size) of each packet in them; its time; the wanted times, which ascend.
    """
    values = request.values
    extradata, data, places, times, wanted = request.blobs
    packets = _packets(data, np.frombuffer(places, "<u4").reshape(-1, 2).tolist(), np.frombuffer(times, "<i8").tolist())
    left = set(np.frombuffer(wanted, "<i8").tolist())
    found: dict[int, bytes] = {}
    for frame in _frames(_open_decoder(values, bytes(extradata)), packets):
        if frame.pts is not None and frame.pts in left:
            left.remove(frame.pts)
            if frame.is_corrupt:
                continue
            found[frame.pts] = _jpeg(_turn(_to_jpeg_colours(frame), values["rotation"]), values["quality"])
        if not left:
            break
    return {}, [found.get(time, b"") for time in np.frombuffer(wanted, "<i8").tolist()]


def _open_decoder(values: dict[str, Any], extradata: bytes) -> av.VideoCodecContext:
    if values["coding"] not in DECODERS:
        raise FormatError(f"the coding {values['coding']} is not supported")
    decoder = av.CodecContext.create(DECODERS[values["coding"]], "r")
    if not isinstance(decoder, av.VideoCodecContext):
        raise FormatError(f"the coding {values['coding']} is not supported")
    if extradata:
        decoder.extradata = extradata
    decoder.codec_tag = values["codec_tag"]
    decoder.width, decoder.height = values["width"], values["height"]
    decoder.thread_count = 1
    return decoder


def _packets(data: memoryview, places: list[list[int]], times: list[int]) -> Iterator[av.Packet[Any] | None]:
    for (offset, size), time in zip(places, times, strict=True):
        packet = make_packet(data[offset : offset + size])
        packet.pts = time
        yield packet
    yield None  # frames that wait for others come out


def _frames(decoder: av.VideoCodecContext, packets: Iterator[av.Packet[Any] | None]) -> Iterator[av.VideoFrame]:
    for packet in packets:
        with suppress(av.FFmpegError):
            yield from decoder.decode(packet)


def _to_jpeg_colours(frame: av.VideoFrame) -> av.VideoFrame:
    """JPEG has the matrix of BT.601, and values from 0 to 255."""
    return frame.reformat(format="yuv420p", dst_colorspace="ITU601", dst_color_range=_FULL_RANGE)


def _turn(frame: av.VideoFrame, rotation: int) -> av.VideoFrame:
    if rotation not in _TURNS:
        return frame
    graph = av.filter.Graph()
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=_TIME_BASE)
    turns = [graph.add(*each) for each in _TURNS[rotation]]
    graph.link_nodes(source, *turns, graph.add("buffersink")).configure()
    graph.vpush(frame)
    return graph.vpull()


def _jpeg(frame: av.VideoFrame, quality: int) -> bytes:
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuv420p"
    encoder.color_range = _FULL_RANGE
    encoder.time_base = _TIME_BASE
    encoder.qmin = encoder.qmax = quality
    encoder.flags |= av.codec.context.Flags.bitexact
    encoder.thread_count = 1
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
