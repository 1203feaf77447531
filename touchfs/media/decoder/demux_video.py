"""Find the packets of a video's pictures and sound in a container, in the child process. Nothing is decoded.

Of an MP4 or QuickTime file, the index says where they are (`mp4_index`), and few of them are read.

An MP4 needs a description of each stream (`stsd`), which differs from codec to codec. libav makes it: its muxer writes
a file of the first packet, of which the boxes are kept. So a span is copied later without libav.
"""

from __future__ import annotations

import io
import re
import struct
from array import array
from collections.abc import Iterable
from itertools import islice
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.coding.mp4_boxes import box, find_box, full_box
from touchfs.media.coding.packet_table import COLUMNS, HIDDEN, KEY, PACKETS_MAX
from touchfs.media.decoder.demux import locate, open_container
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.mp4_index import Packets, read_index
from touchfs.media.decoder.packet import make_packet
from touchfs.media.decoder.request_content import RequestContent

_MICROSECONDS = 1_000_000
# Packets that are read before an index is asked
_COMPARED = 64
# Muxers that describe a coding, the better one first: players know MP4, and QuickTime has more codings.
_MUXERS = (("mp4", "isom"), ("mov", "qt  "))
# Codings that libav's muxers do not take, under the names by which its demuxer knows them
_NAMES = {"theora": b"theo", "vp8": b"VP80"}
_DPI, _DEPTH = 72 << 16, 24
_PCM = re.compile(r"pcm_[a-z]*(\d*)")
# VP8 has frames that are never shown, as packets of their own. Bit 4 of the first byte says that one is shown.
_VP8_SHOWN = 0x10
# Xvid and DivX may put two frames in one packet of an AVI, and write so in the stream.
_PACKED = re.compile(rb"DivX\d+(?:b|Build)\d+p")
_USER_DATA_MAX = 4096


def demux_video(request: Message, content: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Return the pictures and the sound that ffmpeg would choose, as `VideoInfo` has them; nothing without pictures.

    Values: `demuxer`. Values and blobs of the answer: see `video_info.build`; a table has a blob for each column.
    """
    with open_container(request.values["demuxer"], content) as container:
        pictures, sound = container.streams.best("video"), container.streams.best("audio")
        if pictures is None or pictures.disposition & av.stream.Disposition.attached_pic:
            return {}, []
        if not isinstance(pictures, av.VideoStream):
            raise FormatError("has no pictures that can be decoded")
        streams = [_VideoStream(pictures, content)]
        if isinstance(sound, av.AudioStream) and sound.codec_context is not None:
            streams.append(_VideoStream(sound, content))
        by_index = {each.stream.index: each for each in streams}
        packets = container.demux([each.stream for each in streams])
        for packet in islice(packets, _COMPARED):
            by_index[packet.stream.index].add(packet)
        if request.values["demuxer"] != "mov" or not _use_index(streams, content):
            for packet in packets:
                by_index[packet.stream.index].add(packet)
        return _describe(container, streams[0], streams[1] if len(streams) > 1 else None)


def _use_index(streams: list[_VideoStream], content: RequestContent) -> bool:
    """Take all packets from the index of the container. False if it has none that agrees with those that were read."""
    if any(each.coding == "vp8" or not each.sizes for each in streams):  # in VP8 only packets say if they are shown
        return False
    found = read_index([each.stream for each in streams], content)
    if found is None:
        return False
    indexes = [
        index._replace(times=index.times + each.times[0] - index.times[0])
        for each, index in zip(streams, found, strict=True)
    ]
    if not all(index.begin_with(each.packets()) for each, index in zip(streams, indexes, strict=True)):
        return False
    for each, index in zip(streams, indexes, strict=True):
        each.use(index)
    return True


class _VideoStream:
    """A stream and the columns of its packets."""

    def __init__(self, stream: Any, content: RequestContent) -> None:
        self.stream = stream
        self.coding = stream.codec_context.codec.canonical_name
        self.extradata = bytes(stream.codec_context.extradata or b"")
        self.first: bytes | None = None
        self.offsets, self.sizes, self.times = array("q"), array("I"), array("q")
        self.durations, self.flags = array("I"), array("B")
        self._content = content
        self._end = 0

    def add(self, packet: Any) -> None:
        """Note the place and the times of a packet. Raises FormatError."""
        if not packet.size:
            return
        if packet.is_corrupt or packet.pos is None or packet.pos < 0:
            raise FormatError("is damaged or cut short")
        if packet.pts is None:
            raise FormatError("has packets without a time: such a video is not supported")
        data = bytes(packet)
        offset = locate(self._content, data, packet.pos, self._end)
        self._end = offset + len(data)
        is_hidden = packet.is_discard or (self.coding == "vp8" and not data[0] & _VP8_SHOWN)
        self.offsets.append(offset)
        self.sizes.append(len(data))
        self.times.append(packet.pts)
        self.durations.append(min(max(packet.duration or 0, 0), 0xFFFFFFFF))
        self.flags.append(KEY * packet.is_keyframe + HIDDEN * is_hidden)
        if self.first is None:
            self.first = data
        if len(self.sizes) > PACKETS_MAX:
            raise FormatError(f"has over {PACKETS_MAX:,} packets")

    def packets(self) -> Packets:
        """The packets as columns."""
        columns = zip(COLUMNS, (self.offsets, self.sizes, self.times, self.durations, self.flags), strict=True)
        return Packets(*(np.frombuffer(column, dtype) for dtype, column in columns))

    def use(self, packets: Packets) -> None:
        """Have these packets instead of those that were added."""
        own = self.offsets, self.sizes, self.times, self.durations, self.flags
        columns: Iterable[NDArray[Any]] = packets
        for column, values in zip(own, columns, strict=True):
            del column[:]
            column.frombytes(values.tobytes())

    def columns(self) -> list[Buffer]:
        return [each.tobytes() for each in (self.offsets, self.sizes, self.times, self.durations, self.flags)]


def _describe(
    container: Any, pictures: _VideoStream, sound: _VideoStream | None
) -> tuple[dict[str, Any], list[Buffer]]:
    stream, context = pictures.stream, pictures.stream.codec_context
    if container.format.name == "avi" and pictures.first is not None:
        _check_avi(pictures)
    brand, sample_entry, track_header = _describe_for_mp4(pictures)
    values: dict[str, Any] = {
        "coding": pictures.coding,
        "codec_tag": context.codec_tag,
        "width": context.width,
        "height": context.height,
        "time_base": _ratio(stream.time_base),
        "start": [container.start_time or 0, _MICROSECONDS],
        "brand": brand,
        "packets": len(pictures.sizes),
        "sound": None,
    }
    blobs: list[Buffer] = [pictures.extradata, sample_entry, track_header, *pictures.columns()]
    if sound is not None and sound.first is not None:
        brand, sample_entry, _ = _describe_for_mp4(sound)
        values["sound"] = {
            "coding": sound.coding,
            "rate": sound.stream.codec_context.sample_rate,
            "frame_size": _pcm_width(sound.coding) * sound.stream.codec_context.channels,
            "time_base": _ratio(sound.stream.time_base),
            "brand": brand,
            "packets": len(sound.sizes),
        }
        blobs += [sample_entry, *sound.columns()]
    return values, blobs


def _ratio(value: Any) -> list[int]:
    """A fraction, or a rational of PyAV 19, which is not a Fraction."""
    return [value.numerator, value.denominator]


def _check_avi(pictures: _VideoStream) -> None:
    """AVI has no times of frames. Where they are shown in another order, only some codings have it in the packets.

    And all packets of H.263 are key frames there.
    """
    is_packed = _PACKED.search(pictures.extradata + (pictures.first or b"")[:_USER_DATA_MAX])
    is_reordered = pictures.coding in ("h264", "hevc") and pictures.stream.codec_context.has_b_frames
    if is_packed or is_reordered or pictures.coding == "h263":
        raise FormatError(f"an AVI of {pictures.coding} that does not say how to seek: such a video is not supported")


def _pcm_width(coding: str) -> int:
    """Bytes of a sample of PCM, 0 of other codings."""
    match = _PCM.match(coding)
    return 0 if match is None else int(match[1] or 8) // 8


def _describe_for_mp4(track: _VideoStream) -> tuple[str, bytes, bytes]:
    """The brand of the file, `stsd`, and `tkhd`. All are empty if an MP4 cannot have the coding."""
    muxers = reversed(_MUXERS) if track.coding.startswith("pcm") else _MUXERS  # few know PCM in MP4
    for muxer, brand in muxers:
        data = io.BytesIO()
        try:
            with av.open(data, "w", format=muxer, options={"fflags": "+bitexact"}) as container:
                stream = container.add_stream_from_template(track.stream, opaque=True)
                packet = make_packet(track.first or b"")
                packet.pts = packet.dts = 0
                packet.duration = 1
                packet.time_base = track.stream.time_base
                packet.is_keyframe = True
                packet.stream = stream
                container.mux(packet)
        except (ValueError, av.FFmpegError):  # it does not take the coding
            continue
        movie = data.getvalue()
        if find_box(movie, b"mdat") != track.first:  # the muxer changes packets: H.264 and AAC of streams
            continue
        header = find_box(movie, b"moov", b"trak", b"tkhd")
        entry = find_box(movie, b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")
        return brand, box(b"stsd", _without_pre_skip(entry) if track.coding == "opus" else entry), header
    if track.coding in _NAMES:
        return "qt  ", full_box(b"stsd", 0, 0, (1).to_bytes(4, "big"), _picture_entry(track)), b""
    return "", b"", b""


def _without_pre_skip(entry: bytes) -> bytes:
    """Opus without samples that the decoder drops at the begin. A span begins elsewhere, and has an edit list."""
    before, name, after = entry.partition(b"dOps")
    return b"".join((before, name, after[:2], bytes(2), after[4:]))


def _picture_entry(track: _VideoStream) -> bytes:
    """The entry of a coding that libav reads in MP4 and does not write."""
    size = struct.pack(">HH", track.stream.codec_context.width, track.stream.codec_context.height)
    rest = struct.pack(">IIIH32xHh", _DPI, _DPI, 0, 1, _DEPTH, -1)
    private = box(b"glbl", track.extradata) if track.extradata else b""
    return box(_NAMES[track.coding], bytes(6), (1).to_bytes(2, "big"), bytes(16), size, rest, private)
