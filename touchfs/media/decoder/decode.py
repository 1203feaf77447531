"""Decode packets to samples, in the child process. No container is opened: the caller knows where the packets are.

The decoder gets the packets before the span first, as many as it needs to come to the state that a decode from the
start would have (`slices/preroll.py`). What they decode to is dropped, and so are their errors.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.coding.adpcm import build_adpcm_header
from touchfs.media.coding.sample_format import convert_samples, dtype
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.packet import make_packet
from touchfs.media.decoder.request_content import RequestContent
from touchfs.media.libav import open_media

if TYPE_CHECKING:
    from av import AudioFrame
    from av.audio.codeccontext import AudioCodecContext

# The names of libav's decoders. No other decoder is ever opened.
DECODERS = {
    "aac": "aac",
    "adpcm_ima_wav": "adpcm_ima_wav",
    "adpcm_ms": "adpcm_ms",
    "alac": "alac",
    "amr_nb": "amrnb",
    "amr_wb": "amrwb",
    "flac": "flac",
    "mp2": "mp2float",
    "mp3": "mp3float",
    "opus": "opus",
    "vorbis": "vorbis",
    **{
        f"pcm_{name}": f"pcm_{name}"
        for name in ("alaw", "mulaw", "u8", "s8", *(f"s{n}{end}" for n in (16, 24, 32) for end in ("be", "le")))
    },
    **{f"pcm_f{n}{end}": f"pcm_f{n}{end}" for n in (32, 64) for end in ("be", "le")},
}
# libav's names of our sample formats; those of planes end in "p"
LIBAV_FORMATS = {"u8": "u8", "s16": "s16", "s32": "s32", "flt": "f32", "dbl": "f64", "s64": "f64"}
_OPUS_PRE_SKIP = slice(10, 12)


def decode(request: Message, _: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Decode packets and return the samples `[skip, skip + count)` of them, in the format `target`.

    Values: `coding`, `rate`, `channels`, `sample_format`, `target`, `skip`, `count`. Blobs: the codec's extra data;
    the bytes of the packets; (offset, size) of each piece in them; pieces of each packet; samples of each packet.
    """
    values = request.values
    extradata, data, pieces, piece_counts, lengths = request.blobs
    packets = _packets(data, np.frombuffer(pieces, "<u4").reshape(-1, 2).tolist(), np.frombuffer(piece_counts, "<u4"))
    decoder = open_decoder(values["coding"], bytes(extradata), values["rate"], values["channels"])
    channels, skip, count = values["channels"], values["skip"], values["count"]
    source, target = values["sample_format"], values["target"]
    samples = np.empty((count, channels), dtype(source))
    position = -skip  # of the next sample, in the result
    for packet, length in zip(packets, np.frombuffer(lengths, "<u4").tolist(), strict=True):
        end = position + length
        if end <= 0:
            with suppress(av.FFmpegError):
                decoder.decode(make_packet(packet))
            position = end
            continue
        for block in decode_packet(decoder, packet, source):
            first, last = max(-position, 0), min(len(block), count - position)
            if block.shape[1] == channels and first < last:
                samples[position + first : position + last] = block[first:last]
            position += len(block) if block.shape[1] == channels else 0
        if position != end:
            found = position + length - end
            raise FormatError(f"is damaged: {found} samples are found where {length} were expected")
    if position < count:
        raise FormatError(f"cannot be decoded: {position} samples where {count} were expected")
    return {}, [convert_samples(samples, source, target).data]


def open_decoder(coding: str, extradata: bytes, rate: int, channels: int) -> AudioCodecContext:
    """Open the decoder of a coding. Raises FormatError for a coding that is not in the list."""
    if coding not in DECODERS:
        raise FormatError(f"the coding {coding} is not supported")
    if coding.startswith("adpcm"):  # only a demuxer can tell them the size of a block
        with open_media(io.BytesIO(build_adpcm_header(extradata)), format="wav") as container:
            return container.streams.audio[0].codec_context
    decoder = av.CodecContext.create(DECODERS[coding], "r")
    if not isinstance(decoder, av.AudioCodecContext):
        raise FormatError(f"the coding {coding} is not supported")
    if coding == "opus":  # the caller drops the samples of the pre-skip, the decoder must not
        zeroed = bytearray(extradata)
        zeroed[_OPUS_PRE_SKIP] = bytes(2)
        extradata = bytes(zeroed)
    if extradata:
        decoder.extradata = extradata
    if coding.startswith(("amr", "pcm")):  # others have it in their extra data or in each packet
        decoder.sample_rate = rate
        decoder.layout = "mono" if channels == 1 else "stereo" if channels == 2 else f"{channels}c"
    if coding == "flac":
        decoder.options = {"err_detect": "crccheck+explode"}
    decoder.thread_count = 1
    return decoder


def decode_packet(decoder: AudioCodecContext, packet: bytes, sample_format: str) -> list[NDArray[Any]]:
    """Decode a packet to blocks of samples of shape (frames, channels): one; none if it has none yet; one for each
    frame of a packet of many.
    """
    return [samples_of(frame, sample_format) for frame in decoder.decode(make_packet(packet))]


def samples_of(frame: AudioFrame, sample_format: str) -> NDArray[Any]:
    """The samples of a frame, shape (frames, channels).

    Planes are padded. `frame.to_ndarray` does the same in three times the time, and is most of it for Opus.
    """
    channels, planes = frame.layout.nb_channels, [memoryview(plane) for plane in frame.planes]
    name = frame.format.name.removesuffix("p")
    stored = np.dtype("<i8") if name == "s64" else dtype(LIBAV_FORMATS[name])
    if channels == 1:
        samples = np.frombuffer(planes[0], stored, frame.samples)[:, None]
    elif frame.format.is_planar:
        samples = np.stack([np.frombuffer(plane, stored, frame.samples) for plane in planes], 1)
    else:
        samples = np.frombuffer(planes[0], stored, frame.samples * channels).reshape(-1, channels)
    if name == "s64":
        return samples / np.float64(1 << 63)
    return samples >> 8 if sample_format == "s24" else samples  # libav has 24 bits as the upper ones of 32


def _packets(data: memoryview, pieces: list[list[int]], counts: NDArray[Any]) -> list[bytes]:
    parts = [bytes(data[offset : offset + size]) for offset, size in pieces]
    if len(counts) == len(parts):
        return parts
    ends = np.cumsum(counts).tolist()
    return [b"".join(parts[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)]
