"""Find the packets of a recording in a container, in the child process: where they are, and how many samples they have.

The caller names the demuxer, which it chose by the file's first bytes. It opens nothing but this file: no protocol, no
playlist, no reference to another file. Nothing is decoded but the first packets, which say what the decoder makes
of them: an AAC header may have half the rate and channels.

Samples are dropped as libav drops them: at the begin (encoder delay), at the end (padding), and between the parts of an
edit list.
"""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import av

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, drive
from touchfs.core.extent.file_object import FileObject
from touchfs.media.coding.flac_frames import parse_frame, parse_stream_info
from touchfs.media.coding.mp3_frames import Frames, read_frames
from touchfs.media.coding.mpeg import is_frame_header
from touchfs.media.coding.packet_length import VorbisLength, opus_length, vorbis_headers
from touchfs.media.decoder.decode import DECODERS, LIBAV_FORMATS, decode_packet, open_decoder
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.mp4_index import ExactReads, IndexedPacket, read_index
from touchfs.media.decoder.request_content import RequestContent
from touchfs.media.libav import open_media

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from av import AudioStream, Packet
    from av.container import InputContainer

    AnyPacket: TypeAlias = Packet[AudioStream] | IndexedPacket

_SKIP_SAMPLES = struct.Struct("<II")  # at the begin, at the end
# Until a decoder has a format, in packets
_TRIED_PACKETS = 16
PARTS_MAX = 1000
_MPEG = ("mp1", "mp2", "mp3")
# Matroska's blocks have a header of 4 bytes or more before the packet.
_HEADER_MAX = 64
# Codings whose packets have samples alike, or of the same size
_ALIKE = ("aac", "pcm_")
# Packets that are read at both ends of such a coding
_ENDS = 64
# No packet of sound is larger.
_PACKET_MAX = 1 << 24


# The answer for a recording whose packets cannot be decoded by themselves
_NOT_BY_ITSELF: dict[str, Any] = {}


class NotByItselfError(FormatError):
    """Packets cannot be decoded by themselves: they are spread over the file, or need more than we tell a decoder."""


def demux(request: Message, content: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Return the format and the packets of the audio stream that ffmpeg would choose.

    Values: `demuxer`. Blobs of the answer: extra data; offset, size and samples of each packet. Its value `parts` has
    the samples that are shown: the first of each part in the samples of all packets, and their number. It is missing if
    the recording has to be decoded from its start.
    """
    if not hasattr(av.Packet, "has_sidedata"):
        return {"missing": "PyAV 16 or newer is needed for this recording: pip install -U av"}, []
    with open_container(request.values["demuxer"], content) as container, suppress(NotByItselfError):
        stream = sound_of(container)
        if stream.codec_context.codec.canonical_name not in DECODERS:
            return _NOT_BY_ITSELF, []
        if request.values["demuxer"] == "mov" and stream.codec_context.codec.canonical_name.startswith(_ALIKE):
            return _read_packets(_few_packets(container, stream, content), stream, content)
        if request.values["demuxer"] == "mp3":
            return _read_packets(_few_frames(container, stream, content), stream, content)
        return _read_packets(container.demux(stream), stream, content)
    return _NOT_BY_ITSELF, []


def _few_packets(container: InputContainer, stream: AudioStream, content: RequestContent) -> Iterator[AnyPacket]:
    """All packets of the sound of an MP4 or QuickTime file. If its index agrees with the first and the last ones, those
    between them are not read.
    """
    packets = (packet for packet in container.demux(stream) if packet.size)
    first = list(islice(packets, _ENDS))
    yield from first
    for index in read_index([stream], content) or ():
        last = _last_packets(content) if len(index.offsets) > 2 * _ENDS and index.has(first, 0) else []
        end = len(index.offsets) - len(last)
        if last and end > _ENDS and index.has(last, end):
            yield from index.between(_ENDS, end)
            yield from last
            return
    yield from packets


def _few_frames(
    container: InputContainer, stream: AudioStream, content: RequestContent
) -> Iterator[AnyPacket | Frames]:
    """All packets of an MP3. If one frame follows the other, those after the first ones are not read by libav."""
    packets = (packet for packet in container.demux(stream) if packet.size)
    first = list(islice(packets, _ENDS))
    yield from first
    if len(first) == _ENDS:
        known = [(packet.pos, bytes(packet)) for packet in first]
        if (frames := drive(read_frames(content.size, known, _skipped(first[0])), ExactReads(content))) is not None:
            yield frames
            return
    yield from packets


def _last_packets(content: RequestContent) -> list[AnyPacket]:
    """The last packets of the sound; none if libav cannot seek there."""
    with suppress(av.FFmpegError), open_container("mov", content) as container:
        stream = sound_of(container)
        container.seek(int(stream.index_entries[-_ENDS].timestamp), stream=stream)
        return [packet for packet in container.demux(stream) if packet.size]
    return []


def sound_of(container: InputContainer) -> AudioStream:
    """The audio stream that ffmpeg would choose. No other is read. Raises FormatError."""
    stream = container.streams.best("audio")
    if not isinstance(stream, av.AudioStream) or stream.codec_context is None:
        raise FormatError("has no sound that can be decoded")
    for other in container.streams:
        if other is not stream and hasattr(other, "discard"):  # newer PyAV: pictures need not be read
            other.discard = av.stream.Discard.all
    return stream


def open_container(demuxer: str, content: RequestContent) -> InputContainer:
    """Open a content with a demuxer, or the one of several that libav chooses, so that libav opens nothing else.

    Raises av.FFmpegError.
    """
    options = {"protocol_whitelist": "", "enable_drefs": "0", "format_whitelist": demuxer}
    if "," not in demuxer:
        return open_media(FileObject(content), format=demuxer, options=options, io_open=_refuse)
    try:
        return open_media(FileObject(content), options=options, io_open=_refuse)
    except av.FFmpegError as error:
        raise FormatError("not a recording that can be sliced") from error


def _refuse(url: str, flags: int, options: dict[str, str]) -> NoReturn:
    raise FormatError("refers to another file, and such files are not opened")


def _read_packets(packets: Any, stream: AudioStream, content: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    context = stream.codec_context
    coding = context.codec.canonical_name  # libav may have several decoders of one coding
    extradata = bytes(context.extradata or b"")
    trial = _Trial(coding, extradata, context.sample_rate or 0, context.channels)
    length_of: Callable[[AnyPacket], int] | None = None
    trim = _Trim()
    offsets, sizes, lengths = array("q"), array("I"), array("I")
    waiting: list[AnyPacket] = []
    end = 0
    for packet in packets:
        if isinstance(packet, Frames):
            offsets.extend(accumulate(packet.sizes[:-1], initial=packet.offset))
            sizes.extend(packet.sizes)
            lengths.extend(array("I", [packet.samples]) * len(packet.sizes))
            trim.add_frames(packet)
            break
        if not packet.size:
            continue
        # PCM that its header says to go on has what is there, as in a WAV: CAF may have -1 as its size.
        if (packet.is_corrupt and not coding.startswith("pcm_")) or packet.size > _PACKET_MAX:
            raise FormatError("is damaged or cut short")
        if packet.pos is None or packet.pos < 0:
            raise NotByItselfError("its packets are not stored as they are")
        data = b"" if isinstance(packet, IndexedPacket) else bytes(packet)
        if data and coding in _MPEG and not is_frame_header(data):
            continue  # no frame, such as zeros after the last one: decoders pass over it
        offset = locate(content, data, packet.pos, end) if data else packet.pos
        end = offset + packet.size
        offsets.append(offset)
        sizes.append(packet.size)
        waiting.append(packet)
        if length_of is None and (trial.decode(data) or len(waiting) == _TRIED_PACKETS):
            length_of = trial.length_of()
        if length_of is not None:
            for each in waiting:
                lengths.append(trim.add(each, length_of(each)))
            waiting.clear()
    length_of = length_of or trial.length_of()
    for each in waiting:  # a recording of few packets
        lengths.append(trim.add(each, length_of(each)))
    values = {
        "coding": coding,
        "rate": trial.rate,
        "channels": trial.channels,
        "sample_format": trial.sample_format,
        "parts": trim.parts,
    }
    return values, [extradata, offsets.tobytes(), sizes.tobytes(), lengths.tobytes()]


def locate(content: RequestContent, data: bytes, position: int, end: int) -> int:
    """The offset of a packet in the file, near where libav says it is, or after the packet before."""
    if content.read(position, len(data)) == data:
        return position
    for begin in (position, end):
        found = content.read(begin, len(data) + _HEADER_MAX).find(data)
        if found >= 0:
            return begin + found
    raise NotByItselfError("its packets are not stored as they are: such a container is not supported")


class _Trial:
    """The format of the samples that the decoder gives for the first packets."""

    def __init__(self, coding: str, extradata: bytes, rate: int, channels: int) -> None:
        self.rate = rate
        self.channels = channels
        self.sample_format = "f32"
        self._coding = coding
        self._extradata = extradata
        self._decoder = open_decoder(coding, extradata, rate, channels)
        self._length = 0
        self._gave_sound: list[bool] = []  # each packet: libav drops those in which FAAC counts its delay

    def decode(self, data: bytes) -> bool:
        """Decode a packet. Returns True when the format is known: from the third packet on that decodes."""
        try:
            blocks = decode_packet(self._decoder, data, self.sample_format)
        except av.FFmpegError:
            blocks = []
        if length := sum(map(len, blocks)):
            self._length = length
            self.rate, self.channels = self._decoder.sample_rate, blocks[0].shape[1]
        self._gave_sound.append(length > 0)
        return sum(self._gave_sound) == 3

    def length_of(self) -> Callable[[AnyPacket], int]:
        """A function that returns the samples per channel of each packet in turn. Raises FormatError."""
        if not any(self._gave_sound):
            raise NotByItselfError("cannot be decoded: it has no sound")
        name = self._decoder.format.name.removesuffix("p")
        self.sample_format = LIBAV_FORMATS[name]
        if self.sample_format == "s32" and self._bits() <= 24:
            self.sample_format = "s24"
        match self._coding:
            case "opus":
                return lambda packet: opus_length(bytes(packet)[:2])
            case "vorbis":
                headers = vorbis_headers(self._extradata)
                vorbis_length = VorbisLength(headers[0], headers[2])
                return lambda packet: vorbis_length(bytes(packet)[:2])
            case "flac":
                return self._flac_length
            case "alac":
                return self._alac_length
            case coding if coding.startswith("pcm"):
                width = {"s24": 3}.get(self.sample_format, self._decoder.format.bytes)
                width = 1 if coding in ("pcm_alaw", "pcm_mulaw") else width
                return lambda packet: packet.size // (width * self.channels)
        tried = iter(self._gave_sound)
        return lambda packet: self._length if next(tried, True) else 0

    def _flac_length(self, packet: AnyPacket) -> int:
        frame = parse_frame(bytes(packet)[:16], 0, parse_stream_info(self._extradata[-34:], 0, 0), 0)
        if frame is None:
            raise FormatError("a FLAC frame that is damaged")
        return frame.length

    def _alac_length(self, packet: AnyPacket) -> int:
        """A packet that is not full begins with its number of samples. Durations differ from it in edit lists."""
        header = int.from_bytes(bytes(packet)[:7], "big")  # 19 bits, has_size, 3 bits, size
        return header >> 1 & 0xFFFFFFFF if header >> 36 & 1 else int.from_bytes(self._extradata[12:16], "big")

    def _bits(self) -> int:
        """Bits of a sample, where libav has them as the upper ones of 32."""
        if self._coding == "flac":
            return parse_stream_info(self._extradata[-34:], 0, 0).bits
        if self._coding == "alac" and len(self._extradata) > 17:
            return self._extradata[17]
        return 24 if "24" in self._coding else 32


class _Trim:
    """The samples that libav keeps, as parts: [first, number] in the samples of all packets."""

    def __init__(self) -> None:
        self.parts: list[list[int]] = []
        self._total = 0
        self._skip = 0

    def add(self, packet: AnyPacket, length: int) -> int:
        """Count the samples of the next packet, and return them."""
        padding = 0
        if not isinstance(packet, IndexedPacket) and (found := _skipped(packet)) is not None:
            self._skip, padding = found
        front = length if packet.is_discard else min(self._skip, length)
        self._skip = max(self._skip - length, 0) if packet.is_discard else self._skip - front
        back = padding if padding <= length - front else 0
        self._keep(self._total + front, length - front - back)
        self._total += length
        return length

    def add_frames(self, frames: Frames) -> None:
        """Count frames that are alike, which are the last ones."""
        length = frames.samples * len(frames.sizes)
        self._keep(self._total, length - frames.padding)
        self._total += length

    def _keep(self, first: int, kept: int) -> None:
        if not kept:
            return
        if self.parts and sum(self.parts[-1]) == first:
            self.parts[-1][1] += kept
            return
        self.parts.append([first, kept])
        if len(self.parts) > PARTS_MAX:
            raise FormatError(f"has gaps: an edit list of over {PARTS_MAX:,} parts is not supported")


def _skipped(packet: Any) -> tuple[int, int] | None:
    """The samples that libav drops at the begin of a packet and at its end, if it says so."""
    if not packet.has_sidedata("skip_samples"):
        return None
    first, last = _SKIP_SAMPLES.unpack_from(bytes(packet.get_sidedata("skip_samples")))
    return first, last
